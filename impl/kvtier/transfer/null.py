"""The null engine: it numbers submissions and moves nothing. All work is done at once.

For replaying traces at full speed and for measuring book-keeping alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence

from kvtier.slots import Fence
from kvtier.transfer.base import FIRST_USER_LANE, Copies, Ended, Fences


class Lanes:
    """Lane numbers of streams, and the number of the last submission of each lane."""

    def __init__(self) -> None:
        self._of: dict[Hashable, int] = {}
        self.last: Counter[int] = Counter()

    def of(self, stream: Hashable | None) -> int:
        """Name the lane of a stream."""
        if stream is None:
            return 0
        return self._of.setdefault(stream, FIRST_USER_LANE + len(self._of))

    def next(self, lane: int) -> Fence:
        """Number a submission."""
        self.last[lane] += 1
        return lane, self.last[lane]


class NullEngine:
    """Book-keeping only; `page_bytes` of each group is what it counts (nothing if not given)."""

    def __init__(self, page_bytes: Sequence[int] = ()) -> None:
        self._lanes = Lanes()
        self._page_bytes = tuple(page_bytes)
        self._copied: Counter[tuple[int, int]] = Counter()
        self._begun: dict[int, Copies] = {}
        self._jobs = 0

    @property
    def memories(self) -> None:
        """Have none."""
        return None

    def lane(self, stream: Hashable | None) -> int:
        """Name the lane of a user's stream."""
        return self._lanes.of(stream)

    def submit(self, copies: Copies, waits: Fences) -> Fence:
        """Count the copies; they are done."""
        del waits
        self._count(copies)
        return self._lanes.next(copies.lane)

    def start(self, copies: Copies, waits: Fences) -> int:
        """Begin a job; it has ended."""
        del waits
        self._jobs += 1
        self._begun[self._jobs] = copies
        return self._jobs

    def ended(self) -> list[Ended]:
        """Give all jobs that were begun since, and count their bytes."""
        found, self._begun = self._begun, {}
        for copies in found.values():
            self._count(copies)
        return [Ended(job) for job in found]

    def _count(self, copies: Copies) -> None:
        sizes, group = self._page_bytes, copies.group
        size = sizes[group] if group < len(sizes) else 0
        self._copied[copies.source, copies.target] += len(copies) * size

    def wait_for(self, jobs: Collection[int], timeout_s: float | None = None) -> bool:
        """Say yes: all jobs have ended."""
        del jobs, timeout_s
        return True

    def abandon(self, job: int) -> None:
        """Do nothing: all jobs have ended."""

    def record(self, lane: int) -> Fence:
        """Give a fence of the lane; it is passed."""
        return self._lanes.next(lane)

    def wait(self, lane: int, fences: Fences) -> None:
        """Do nothing: all work is done."""

    def is_done(self, fence: Fence) -> bool:
        """Say yes."""
        del fence
        return True

    def synchronize(self, *, with_jobs: bool = True) -> None:
        """Do nothing: all work is done."""

    def copied(self) -> Mapping[tuple[int, int], int]:
        """Count the bytes that would have moved."""
        return self._copied

    def close(self) -> None:
        """Do nothing."""
