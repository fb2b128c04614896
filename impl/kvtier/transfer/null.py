"""The null engine: it numbers submissions and moves nothing. All work is done at once.

For replaying traces at full speed and for measuring book-keeping alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from kvtier.slots import Fence
from kvtier.transfer.base import FIRST_USER_LANE, Copies, Fences


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
    """Book-keeping only; `page_bytes` of each group is what it counts."""

    def __init__(self, page_bytes: Sequence[int] = (0,)) -> None:
        self._lanes = Lanes()
        self._page_bytes = tuple(page_bytes)
        self._copied: Counter[tuple[int, int]] = Counter()

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
        self._copied[copies.source, copies.target] += len(copies) * self._page_bytes[copies.group]
        return self._lanes.next(copies.lane)

    def record(self, lane: int) -> Fence:
        """Give a fence of the lane; it is passed."""
        return self._lanes.next(lane)

    def wait(self, lane: int, fences: Fences) -> None:
        """Do nothing: all work is done."""

    def is_done(self, fence: Fence) -> bool:
        """Say yes."""
        del fence
        return True

    def synchronize(self) -> None:
        """Do nothing: all work is done."""

    def copied(self) -> Mapping[tuple[int, int], int]:
        """Count the bytes that would have moved."""
        return self._copied

    def close(self) -> None:
        """Do nothing."""
