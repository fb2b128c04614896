"""A page and a flight as the runtime keeps them: small objects, written below the store only."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from kvtier_spec import Phase

GPU, HOST = 0, 1
"""The two tiers that every chain begins with."""

_OPEN = Phase.OPEN


class Page:
    """A block's KV data in one group: a set of replicas, with users.

    `slots[tier]` is the slot of its valid replica there, or None. `places[tier]` is the queue in
    which that replica stands, `unclean` the tier in whose order of pages to be written it stands,
    `held_at` the tier of its primary if it is held; `Queues.reconcile` derives all three. While it
    is in `flight`, `filling` is the slot that the copy goes to. `awaited` counts the sequences that
    pin it as soon as it lands on the gpu. A twin knows the page that was found first under its key
    as its `mate`.
    """

    __slots__ = (
        "awaited",
        "filling",
        "flight",
        "group",
        "held_at",
        "holds",
        "id",
        "key",
        "mate",
        "phase",
        "pins",
        "places",
        "slots",
        "unclean",
    )

    def __init__(self, page_id: int, group: int, slots: list[int | None]) -> None:
        self.id = page_id
        self.group = group
        self.slots = slots
        self.places: list[int] = [0] * len(slots)
        self.phase = _OPEN
        self.pins = 0
        self.holds = 0
        self.awaited = 0
        self.key: Hashable | None = None
        self.mate: Page | None = None
        self.flight: Flight | None = None
        self.filling: int | None = None
        self.unclean: int | None = None
        self.held_at: int | None = None

    @property
    def primary(self) -> int:
        """The tier of its warmest valid replica."""
        for tier, slot in enumerate(self.slots):
            if slot is not None:
                return tier
        raise AssertionError(f"{self} has no replica")

    @property
    def is_unused(self) -> bool:
        """Say whether nobody pins or holds it."""
        return not self.pins and not self.holds

    @property
    def is_gone(self) -> bool:
        """Say whether it has no valid replica any more."""
        return self.slots.count(None) == len(self.slots)

    def is_valid_below(self, tier: int) -> bool:
        """Say whether a tier colder than this one has a valid replica."""
        colder = self.slots[tier + 1 :]
        return colder.count(None) < len(colder)

    def flies_from(self, tier: int) -> bool:
        """Say whether a running flight reads its replica there, which must stay until it ends."""
        return self.flight is not None and self.flight.source == tier

    def flies_to(self, tier: int) -> bool:
        """Say whether a running flight fills a slot there for it."""
        return self.flight is not None and self.flight.target == tier

    def __repr__(self) -> str:
        return (
            f"<page {self.id} {self.phase} slots={self.slots} pins={self.pins} holds={self.holds}>"
        )


@dataclass(slots=True, eq=False)
class Flight:
    """Pages of one group on their way to or from a fallible tier, as one job of the engine.

    `ticket` names it to the caller. `slots` are the targets, one a page. A page that was dropped
    meanwhile is in `doomed` with its source slot: the flight owns both slots until it ends.
    """

    ticket: int
    job: int
    group: int
    source: int
    target: int
    pages: list[Page]
    slots: list[int]
    doomed: dict[Page, int] = field(default_factory=dict)
