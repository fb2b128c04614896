"""The order detector of the cpu engine (I2): conflicting uses of a slot that nothing orders.

Jobs that have not run yet are nodes; a job comes after the one before it in its lane and after
whatever its fences wait for. Two jobs conflict when both use a slot and one of them writes it. The
later one must then come after the earlier one on every path that a scheduler may take, so a missing
wait is reported as soon as both are queued, whatever schedule happens to follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvtier.slots import Fence


class Use(NamedTuple):
    """What a job does to one slot."""

    tier: int
    group: int
    slot: int
    writes: bool


@dataclass(frozen=True, slots=True)
class Job:
    """Work of one lane: its place, what it waits for, what it does, which slots it uses."""

    fence: Fence
    waits: tuple[Fence, ...]
    run: Callable[[], object]
    uses: frozenset[Use] = frozenset()
    name: str = "work"


def races(jobs: Sequence[Job]) -> list[str]:
    """List the conflicts between queued jobs, in order of submission, that nothing orders."""
    found = []
    for index, later in enumerate(jobs):
        before = _all_before(later, jobs[:index])
        for earlier in jobs[:index]:
            clash = _conflict(earlier, later)
            if clash is not None and earlier.fence not in before:
                found.append(
                    f"{later.name} {later.fence} uses {clash} unordered after "
                    f"{earlier.name} {earlier.fence}"
                )
    return found


def _all_before(job: Job, others: Sequence[Job]) -> set[Fence]:
    """Collect the queued jobs that must have run before a job may."""
    reached: dict[int, int] = {}
    frontier = [(job.fence[0], job.fence[1] - 1), *job.waits]
    while frontier:
        lane, number = frontier.pop()
        if reached.get(lane, 0) >= number:
            continue
        reached[lane] = number
        for other in others:
            if other.fence[0] == lane and other.fence[1] <= number:
                frontier += other.waits
    return {other.fence for other in others if reached.get(other.fence[0], 0) >= other.fence[1]}


def _conflict(one: Job, other: Job) -> str | None:
    writes = {(u.tier, u.group, u.slot): u.writes for u in sorted(one.uses, key=lambda u: u.writes)}
    for use in sorted(other.uses):
        mine = writes.get((use.tier, use.group, use.slot))
        if mine is not None and (mine or use.writes):
            return f"slot {use.slot} of tier {use.tier}"
    return None
