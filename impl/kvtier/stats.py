"""Counts: a subscriber of the journal, and the snapshot that `Cache.stats()` gives.

Counters are sums over the journal and nothing else, so that they cannot drift from what happened
(I14 compares the engine's own bytes with them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from kvtier_spec import Batch, Chain, Kind, SlotState


@dataclass(frozen=True, slots=True)
class TierStats:
    """Slots of one tier by state, and the pages that may go: all groups together."""

    slots: Mapping[SlotState, int]
    evictable: int
    shadows: int


@dataclass(frozen=True, slots=True)
class Stats:
    """What a cache holds and has done, at one moment.

    `copied` counts pages by (source, target) tier name, `events` by kind. `saved` are evictions
    that copied nothing because the page had a shadow; `reclaimed` are shadows given up.
    """

    tiers: Mapping[str, TierStats]
    events: Mapping[str, int]
    copied: Mapping[tuple[str, str], int]
    saved: int
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
        self.saved = 0
        self.reclaimed = 0

    def __call__(self, batch: Batch) -> None:
        """Count one batch; a release beside its copy, or beside a join, is half of a move."""
        moving = {record.source for record in batch if record.kind is Kind.COPY}
        joins = any(record.kind is Kind.JOIN and record.pages for record in batch)
        for record in batch:
            size = len(record.pages) or len(record.slots)
            self.events[record.kind] += size
            if record.kind is Kind.COPY:
                self.copied[record.source, record.target, record.group] += size
            elif record.kind is Kind.RELEASE and not joins and record.target not in moving:
                self.saved += size if record.target == 0 else 0
                self.reclaimed += size if record.target != 0 else 0

    def copied_by_name(self) -> dict[tuple[str, str], int]:
        """Sum the copies over groups, tiers by name."""
        found: Counter[tuple[str, str]] = Counter()
        for (source, target, _), pages in self.copied.items():
            found[self._names[source], self._names[target]] += pages
        return dict(found)
