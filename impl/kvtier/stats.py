"""Counts: a subscriber of the journal, and the snapshot that `Cache.stats()` gives.

Counters are sums over the journal and nothing else, so that they cannot drift from what happened
(I14 compares the engine's own bytes with them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from kvtier_spec import Batch, Chain, Kind, Record


@dataclass(frozen=True, slots=True)
class TierStats:
    """Slots of one tier by state, and the pages that may go: all groups together.

    Slots that a shrink has taken away stay `retiring`, until the tier grows again.
    """

    slots: Mapping[str, int]
    evictable: int
    shadows: int


@dataclass(frozen=True, slots=True)
class Stats:
    """What a cache holds and has done, at one moment.

    `copied` counts pages by (source, target) tier name, `events` by kind. `saved` are evictions
    that copied nothing because the page had a shadow, by the tier that was left (a page that the
    cleaner wrote down is one only from its next eviction on); `reclaimed` are shadows given up.
    """

    tiers: Mapping[str, TierStats]
    events: Mapping[str, int]
    copied: Mapping[tuple[str, str], int]
    saved: Mapping[str, int]
    reclaimed: int
    sequences: int
    observer_failures: int


class Counters:
    """Sum up the journal."""

    def __init__(self, chain: Chain) -> None:
        self._names = [tier.name for tier in chain.tiers]
        self.events: Counter[str] = Counter()
        self.copied: Counter[tuple[int, int, int]] = Counter()
        """Pages by (source, target, group)."""
        self.saved: Counter[int] = Counter()
        """Evictions without a copy, by the tier left."""
        self.reclaimed = 0
        self._written: set[int] = set()
        """Pages that were written down and have not left their tier since."""

    def __call__(self, batch: Batch) -> None:
        """Count one batch; a release beside its copy, or beside a join, is half of a move."""
        moving = {record.source for record in batch if record.kind in (Kind.COPY, Kind.LAND)}
        joins = any(record.kind is Kind.JOIN and record.pages for record in batch)
        for record in batch:
            size = len(record.pages) or len(record.slots)
            self.events[str(record.kind)] += size
            if record.kind in (Kind.COPY, Kind.LAND):
                self.copied[record.source, record.target, record.group] += size
            if record.kind is Kind.LAND and record.source < record.target:
                self._written.update(record.pages)
            elif record.kind in (Kind.DROP, Kind.DOOM, Kind.LOSE) and self._written:
                self._written.difference_update(record.pages)
            elif record.is_eviction:
                self._count_eviction(record)
            elif record.kind is Kind.RELEASE and not joins and record.target not in moving:
                self.reclaimed += size

    def _count_eviction(self, record: Record) -> None:
        self.saved[record.target] += len(record.pages)
        if record.target and self._written:
            paid = self._written.intersection(record.pages)
            self.saved[record.target] -= len(paid)
            self._written -= paid

    def copied_by_name(self) -> dict[tuple[str, str], int]:
        """Sum the copies over groups, tiers by name."""
        found: Counter[tuple[str, str]] = Counter()
        for (source, target, _), pages in self.copied.items():
            found[self._names[source], self._names[target]] += pages
        return dict(found)

    def saved_by_name(self) -> dict[str, int]:
        """Give the evictions without a copy, by the name of the tier left."""
        return {name: self.saved[tier] for tier, name in enumerate(self._names[:-1])}
