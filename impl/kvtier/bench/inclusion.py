"""Theorem T1 on whole traces: with `shadow_first`, inclusion is free.

Exclusive and inclusive caches replay the same requests side by side. After every request the hits
must be equal, and every page whose replicas changed must have its warmest one on the same tier in
both. Pages get their numbers in the order in which they are opened, so equal numbers are equal
pages for as long as the theorem holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvtier.errors import KvtierError
from kvtier.replay import Modes, Replay, Sizes
from kvtier.trace import Request
from kvtier_spec import Batch, Kind

FREE = ("shadow_first", "shadow_first_hottest")
"""The modes that T1 speaks of."""

COUNTED = ("gpu_hits", "host_hits", "computed")


class Differs(KvtierError):
    """The theorem does not hold: which request, which page, where it is in each."""


class Primaries:
    """Follow where every page has its warmest replica; `changed` are those touched since asked."""

    def __init__(self) -> None:
        self.on: dict[int, set[int]] = {}
        self.changed: set[int] = set()

    def __call__(self, batch: Batch) -> None:
        """Follow one batch of the journal."""
        for record in batch:
            for page in record.pages:
                tiers = self.on.setdefault(page, set())
                if record.kind in (Kind.OPEN, Kind.JOIN):
                    tiers.add(0)
                elif record.kind is Kind.COPY:
                    tiers.add(record.target)
                elif record.kind is Kind.RELEASE:
                    tiers.discard(record.target)
                elif record.kind is Kind.DROP:
                    tiers.clear()
                else:
                    continue
                self.changed.add(page)

    def of(self, page: int) -> int | None:
        """Say on which tier a page has its warmest replica; None where it is absent."""
        return min(self.on.get(page) or (), default=None)


@dataclass(frozen=True, slots=True)
class Compared:
    """What was compared: requests, and places of pages after them."""

    requests: int
    places: int


def compare(
    requests: Sequence[Request],
    sizes: Sizes,
    mode: str,
    tick: Callable[[int], object] = lambda _: None,
) -> Compared:
    """Replay a trace in both; raise Differs at the first request that tells them apart."""
    modes = [Modes(policy=name) for name in ("exclusive", mode)]
    runs = [Replay(requests, sizes, each, moves_bytes=False) for each in modes]
    places = [Primaries(), Primaries()]
    for run, place in zip(runs, places, strict=True):
        run.cache.subscribe(place)
    compared = 0
    for number, request in enumerate(requests, 1):
        for run in runs:
            run.request(request)
        compared += _same(number, mode, runs, places)
        tick(number)
    return Compared(len(requests), compared)


def _same(number: int, mode: str, runs: Sequence[Replay], places: Sequence[Primaries]) -> int:
    left, right = places
    for count in COUNTED:
        values = [getattr(run.counts, count) for run in runs]
        if values[0] != values[1]:
            raise Differs(f"request {number}: {count} {values[0]}, with {mode} {values[1]}")
    changed = left.changed | right.changed
    for page in changed:
        if left.of(page) != right.of(page):
            where = left.of(page), right.of(page)
            raise Differs(
                f"request {number}: page {page} on tier {where[0]}, with {mode} {where[1]}"
            )
    left.changed, right.changed = set(), set()
    return len(changed)
