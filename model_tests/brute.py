"""Brute force over all plans, in small worlds: what a demand for new pages could be answered.

A world is what counts of each page: its valid tiers, whether it is pinned or held, whether a flight
reads it somewhere. `granted` tries every choice of victims and every way for each to leave. `later`
lets all that runs end well, then searches everything that writing pages down can reach.

It shares nothing with the planner but the rules: the stages of a plan, no copy to a fallible tier
in it, no held page without a replica.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

from kvtier_spec import SlotState

GPU, HOST = 0, 1


@dataclass(frozen=True)
class Spot:
    """A page: valid tiers, pinned or held, open, the tier that a flight reads and fills."""

    valid: frozenset[int]
    pinned: bool
    held: bool
    is_open: bool = False
    reads: int | None = None
    fills: int | None = None

    def may_leave(self, tier: int) -> bool:
        """Say whether its slot on a tier behind the gpu can be had at once."""
        if tier not in self.valid or self.reads == tier:
            return False
        others = self.valid - {tier}
        return bool(others) if self.held or self.pinned else bool(others) or self.reads is None


@dataclass(frozen=True)
class Small:
    """A world: pages, and slots of each tier that are free."""

    pages: tuple[Spot, ...]
    free: tuple[int, ...]


def small(ledger: Any, group: int = 0) -> Small:
    """Read a world off the books."""
    pages = tuple(
        Spot(
            frozenset(tier for tier, slot in enumerate(page.slots) if slot is not None),
            bool(page.pins),
            bool(page.holds),
            page.phase == "open",
            page.flight and page.flight.source,
            page.flight and page.flight.target,
        )
        for page in ledger.pages[group].values()
    )
    return Small(pages, tuple(tier[group].free for tier in ledger.pools))


def granted(world: Small, new: int) -> bool:
    """Say whether some plan that waits for nothing opens so many pages."""
    short = new - world.free[GPU]
    if short <= 0:
        return True
    movable = [at for at, page in enumerate(world.pages) if GPU in page.valid and not page.pinned]
    return any(
        _works(world, victims, ways)
        for victims in combinations(movable, short)
        for ways in product(("drop", "rebind", "copy", "sink"), repeat=short)
    )


def _works(world: Small, victims: tuple[int, ...], ways: tuple[str, ...]) -> bool:
    """Say whether these victims can leave in these ways, the host giving up all that it may."""
    chosen = dict(zip(victims, ways, strict=True))
    if not all(_can(world.pages[at], way) for at, way in chosen.items()):
        return False
    gain = sum(
        page.may_leave(HOST) if at not in chosen else HOST in page.valid
        for at, page in enumerate(world.pages)
        if chosen.get(at) not in ("rebind", "copy")
    )
    return [*chosen.values()].count("copy") <= world.free[HOST] + gain


def _can(page: Spot, way: str) -> bool:
    if way == "drop":
        return not page.held and page.reads is None
    if way == "rebind":
        return HOST in page.valid
    if way == "copy":
        return HOST not in page.valid and page.fills != HOST
    return bool(page.valid - {GPU, HOST}) and page.reads != HOST


def later(world: Small, ledger: Any, new: int, group: int = 0) -> bool:
    """Say whether some plan will open so many pages, once all has ended and was written down."""
    start = _landed(world, ledger, group)
    seen, queue = {start}, [start]
    while queue:
        world = queue.pop()
        if granted(world, new):
            return True
        for after in _writes(world):
            if after not in seen:
                seen.add(after)
                queue.append(after)
    return False


def _landed(world: Small, ledger: Any, group: int) -> Small:
    """Let every flight land, every quarantine end; give up what nobody needs below the gpu."""
    pages, free = [], [tier[group].free for tier in ledger.pools]
    for tier, pool in enumerate(ledger.pools):
        free[tier] += pool[group].counts()[SlotState.QUARANTINED]
    live = list(ledger.pages[group].values())
    for page, spot in zip(live, world.pages, strict=True):
        valid = spot.valid
        if spot.fills is not None:
            valid |= {spot.fills}
            if spot.is_open:
                free[spot.reads or 0] += 1
                valid -= {spot.reads}  # type: ignore[arg-type]
        awaited = spot.fills == GPU and bool(page.awaited)
        pages.append(replace(spot, valid=valid, reads=None, fills=None))
        if awaited:
            pages[-1] = replace(pages[-1], pinned=True)
    for flight in ledger.flights.values():
        if flight.group == group:
            free[flight.source] += len(flight.doomed)
            free[flight.target] += len(flight.doomed)
    return _without_waste(Small(tuple(pages), tuple(free)))


def _without_waste(world: Small) -> Small:
    """Give up what no held page needs behind the gpu: it can only be in the way."""
    pages, free = [], list(world.free)
    for page in world.pages:
        kept = page.valid
        if page.pinned or not page.held:
            kept = page.valid & {GPU}
            for tier in page.valid - {GPU}:
                free[tier] += 1
        if kept:
            pages.append(replace(page, valid=kept))
    return Small(tuple(sorted(pages, key=repr)), tuple(free))


def _writes(world: Small) -> Iterator[Small]:
    """List what one write down, or one release behind the gpu, leads to.

    Shadows of pages on the gpu are not written down: that is nobody's way out.
    """
    last = len(world.free) - 1
    for at, page in enumerate(world.pages):
        for tier in page.valid - {GPU}:
            if page.may_leave(tier):
                yield _changed(world, at, page.valid - {tier}, {tier: 1})
            below = tier + 1
            can = below <= last and below not in page.valid and world.free[below]
            if can and tier == min(page.valid):
                left = page.valid - {tier} if page.is_open else page.valid
                gains = {tier: 1, below: -1} if page.is_open else {below: -1}
                yield _changed(world, at, left | {below}, gains)


def _changed(world: Small, at: int, valid: frozenset[int], gains: dict[int, int]) -> Small:
    pages = list(world.pages)
    pages[at] = replace(pages[at], valid=valid)
    free = tuple(count + gains.get(tier, 0) for tier, count in enumerate(world.free))
    return Small(tuple(sorted(pages, key=repr)), free)


def spare(world: Small, tier: int) -> int:
    """Count the slots of a tier behind the gpu that could be had at once."""
    return world.free[tier] + sum(page.may_leave(tier) for page in world.pages)
