"""What every operation begins with: notice what has ended, and write ahead what must go soon.

This is the only place where flights end, so that nothing else of a cache depends on the timing of
an I/O thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from kvtier import cleaning
from kvtier.demands import Demands
from kvtier.errors import CopyFailed
from kvtier.flights import News
from kvtier.pages import HOST

NO_ROOM_POLLS = 32
"""Polls after which it is looked again, at the latest, for pages that can be written down."""


@dataclass(slots=True)
class Upkeep:
    """The upkeep of one cache."""

    demands: Demands
    _idle: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """By tier and group where nothing could be written: for how many polls, and until which."""
    most_idle: int = NO_ROOM_POLLS
    is_ending: bool = False
    """Whether the cache is being closed: nothing is begun any more."""
    _tiers: range = field(init=False)
    """The tiers that are written down from."""

    def __post_init__(self) -> None:
        config = self.demands.config
        last = len(config.chain) - 1
        self._tiers = range(HOST, last if config.demote == "ahead" else HOST)

    def run(self) -> None:
        """Take notice of what has ended, then clean."""
        store = self.demands.store
        if store.copies.quarantined:
            store.copies.poll()
        news = store.flights.poll()
        self._tell(news)
        if news.ended:
            self._idle.clear()
        for tier in reversed(self._tiers):  # from below: what goes down twice is not dropped
            if not self.is_ending and store.flights.takes(tier + 1):
                self._clean(tier)

    def give_up(self, tickets: Iterable[int]) -> None:
        """Stop waiting for flights."""
        self._tell(self.demands.store.flights.give_up(tickets))

    def _tell(self, news: News) -> None:
        if news.failed:
            self.demands.users.note(news)

    def _clean(self, tier: int) -> None:
        """Write the coldest pages of a tier down, if it is time.

        Where that leads to nothing (no page can be, the tier below has no room, a copy is refused)
        it is not tried again for some polls, unless something has ended: looking costs time.
        """
        store, config = self.demands.store, self.demands.config
        for group in range(len(config.groups)):
            waited, until = self._idle.get((tier, group), (0, 0))
            if store.flights.polls < until:
                continue
            wanted = cleaning.wanted(store.ledger, tier, group, config.clean_low, config.clean_high)
            if not wanted:
                continue
            stage = cleaning.ahead(store.ledger, tier, group, wanted)
            begun = False
            if stage.starts:
                with suppress(CopyFailed):
                    begun = bool(self.demands.run_in(group, stage))
            if not begun:
                more = min(2 * waited or 1, self.most_idle)
                self._idle[tier, group] = more, store.flights.polls + more
