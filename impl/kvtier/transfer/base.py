"""What an engine does: copies in lanes, ordered by fences.

A lane is a queue: what is submitted to it runs in order, and lanes run in any order but for the
fences they wait for. A fence is (lane, number): all work of that lane up to that number. The engine
is addressed by (tier, slot), never by pointers, and decides nothing: what to copy, and what it must
wait for, comes from above.

Lanes 0 to 2 are the engine's own; every stream of a user has one more. `CALLER` is the caller of
the cache itself: making it wait blocks, and its own work is always done.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvtier.slots import Fence
from kvtier.tiers import Memory

CALLER, OFFLOAD, RECALL = 0, 1, 2
FIRST_USER_LANE = 3

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


class CopyRefused(Exception):
    """Nothing of a submission was queued."""


class CopyFault(Exception):
    """A part of a submission was queued: its slots may still be touched."""

    def __init__(self, reason: str, queued: int) -> None:
        super().__init__(reason)
        self.queued = queued


class Engine(Protocol):
    """Copies and fences. Methods never block but for `wait(CALLER, ...)` and `synchronize`."""

    @property
    def memories(self) -> Sequence[Sequence[Memory]] | None:
        """Give the memories that it copies between, by tier and group; None if it moves nothing."""

    def lane(self, stream: Hashable | None) -> int:
        """Name the lane of a user's stream; None is the host itself."""

    def submit(self, copies: Copies, waits: Fences) -> Fence:
        """Queue copies after these fences; raise CopyRefused or CopyFault."""

    def record(self, lane: int) -> Fence:
        """Give the fence of all that was submitted to a lane so far."""

    def wait(self, lane: int, fences: Fences) -> None:
        """Order whatever comes next on a lane after these fences; CALLER blocks."""

    def is_done(self, fence: Fence) -> bool:
        """Say whether a fence was passed."""

    def synchronize(self) -> None:
        """Block until all lanes are empty."""

    def copied(self) -> Mapping[tuple[int, int], int]:
        """Count the bytes of whole submissions so far, by (source, target) tier."""

    def close(self) -> None:
        """Finish all work and return what the engine holds; idempotent."""
