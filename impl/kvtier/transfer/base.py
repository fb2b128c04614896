"""What an engine does: copies in lanes, ordered by fences.

A lane is a queue: what is submitted to it runs in order, and lanes run in any order but for the
fences they wait for. A fence is (lane, number): all work of that lane up to that number. The engine
is addressed by (tier, slot), never by pointers, and decides nothing: what to copy, and what it must
wait for, comes from above.

Lanes 0 to 2 are the engine's own; every stream of a user has one more. `CALLER` is the caller of
the cache itself: making it wait blocks, and its own work is always done.

Copies to and from a fallible tier are jobs, in no lane and in no order. A job begins once the
fences it waits for have passed, ends row by row well or badly, and is reported once by `ended`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kvtier.slots import Fence
from kvtier.tiers import Memory

CALLER, OFFLOAD, RECALL = 0, 1, 2
FIRST_USER_LANE = 3
FLIGHT = -1
"""What stands for a lane in the copies of a job: it has none."""

Fences = Mapping[int, int]
"""Lane -> number to wait for."""


@dataclass(frozen=True, slots=True)
class Copies:
    """One submission: rows of slots from one tier to another, unordered among themselves."""

    lane: int
    group: int
    source: int
    target: int
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sources)


class Ended(NamedTuple):
    """A job that has ended, the rows that failed, and those of them that could not be read."""

    job: int
    failed: frozenset[int] = frozenset()
    unread: frozenset[int] = frozenset()


class CopyRefused(Exception):
    """Nothing of a submission was queued."""


class CopyFault(Exception):
    """A part of a submission was queued: its slots may still be touched."""

    def __init__(self, reason: str, queued: int) -> None:
        super().__init__(reason)
        self.queued = queued


class Engine(Protocol):
    """Copies and fences.

    Methods never block but for `wait(CALLER, ...)`, `wait_for`, `synchronize` and `close`.
    """

    @property
    def memories(self) -> Sequence[Sequence[Memory]] | None:
        """Give the memories that it copies between, by tier and group; None if it moves nothing."""

    def lane(self, stream: Hashable | None) -> int:
        """Name the lane of a user's stream; None is the host itself."""

    def submit(self, copies: Copies, waits: Fences) -> Fence:
        """Queue copies after these fences; raise CopyRefused or CopyFault."""

    def start(self, copies: Copies, waits: Fences) -> int:
        """Begin a job after these fences and give its number, which goes up; CopyRefused if not."""

    def ended(self) -> list[Ended]:
        """Give the jobs that have ended since this was asked last."""

    def wait_for(self, jobs: Collection[int], timeout_s: float | None = None) -> bool:
        """Block until these jobs have ended, or for so long; say whether they have."""

    def abandon(self, job: int) -> None:
        """Take note that nobody will use what a job writes, nor keep what it reads."""

    def record(self, lane: int) -> Fence:
        """Give the fence of all that was submitted to a lane so far."""

    def wait(self, lane: int, fences: Fences) -> None:
        """Order whatever comes next on a lane after these fences; CALLER blocks."""

    def is_done(self, fence: Fence) -> bool:
        """Say whether a fence was passed."""

    def synchronize(self, *, with_jobs: bool = True) -> None:
        """Block until all lanes are empty, and all jobs that were not abandoned have ended."""

    def copied(self) -> Mapping[tuple[int, int], int]:
        """Count bytes by (source, target) tier: of whole submissions, and of good rows of jobs."""

    def close(self) -> None:
        """Finish all work and return what the engine holds; idempotent."""
