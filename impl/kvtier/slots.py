"""The slots of one tier and group: who may use each, and what its next user must wait for.

A slot carries a state, a generation that goes up at each take, and fences: per lane the number of
the last write and of the highest read. Release hands the fences on: they stay with the slot, and
the next owner is ordered after them on the device. Nothing here waits.

Everything is done for many slots at once on numpy arrays. The free slots are a queue, oldest first:
a slot that rests longer has fewer fences that are still open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kvtier_spec import Kind, SlotState

Fence = tuple[int, int]
"""(lane, number): all work of that lane up to that number."""
Slots = NDArray[np.int64]

MAX_LANES = 256
"""Lanes whose fences a slot remembers; a runtime has a handful of streams."""

_STATES = tuple(SlotState)
_FREE, _OWNED, _QUARANTINED, _RETIRING = range(4)


def merge_fences(into: dict[int, int], others: Mapping[int, int]) -> None:
    """Wait for both: keep the higher number of each lane.

    >>> fences = {1: 5}
    >>> merge_fences(fences, {1: 3, 2: 7})
    >>> fences
    {1: 5, 2: 7}
    """
    for lane, number in others.items():
        into[lane] = max(number, into.get(lane, 0))


class SlotPool:
    """Slots with generation and fences.

    >>> pool = SlotPool(3)
    >>> taken = pool.take(2)
    >>> pool.free, taken.tolist(), pool.generation[taken].tolist()
    (1, [0, 1], [1, 1])
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.generation = np.zeros(count, np.int64)
        self._state = np.zeros(count, np.uint8)
        self._free = deque(range(count))
        self._writes = np.zeros((1, count), np.int64)
        self._reads = np.zeros((1, count), np.int64)

    @property
    def free(self) -> int:
        """Count the free slots."""
        return len(self._free)

    def take(self, count: int) -> Slots:
        """Take free slots; the caller has counted that there are so many."""
        assert count <= len(self._free), f"{count} slots taken of {len(self._free)}"
        popleft = self._free.popleft
        slots = np.array([popleft() for _ in range(count)], np.int64)
        self._state[slots] = _OWNED
        self.generation[slots] += 1
        return slots

    def give(self, slots: Sequence[int] | Slots) -> None:
        """Give owned slots back; their fences stay with them."""
        self._become(slots, _OWNED, _FREE)
        self._free.extend(_plain(slots))

    def quarantine(self, slots: Sequence[int] | Slots) -> None:
        """Put owned slots aside, while a job may still touch them."""
        self._become(slots, _OWNED, _QUARANTINED)

    def readmit(self, slots: Sequence[int] | Slots) -> None:
        """Give quarantined slots back, after their job has ended."""
        self._become(slots, _QUARANTINED, _FREE)
        self._free.extend(_plain(slots))

    def resize(self, count: int) -> tuple[Kind, list[int]]:
        """Have so many slots; those that go are free. Give the event and its slots."""
        if count < self.count:
            gone = list(range(count, self.count))
            self._become(gone, _FREE, _RETIRING)
            self._free = deque(slot for slot in self._free if slot < count)
            self.count = count
            return Kind.RETIRE, gone
        come = list(range(self.count, count))
        self._lengthen(count)
        self._become(come, _RETIRING, _FREE)
        self._free.extend(come)
        self.count = count
        return Kind.GROW, come

    def _lengthen(self, count: int) -> None:
        """Have arrays for so many slots; new ones are retiring still."""
        more = count - len(self._state)
        if more > 0:
            self._state = np.append(self._state, np.full(more, _RETIRING, np.uint8))
            self.generation = np.append(self.generation, np.zeros(more, np.int64))
            self._writes = np.pad(self._writes, ((0, 0), (0, more)))
            self._reads = np.pad(self._reads, ((0, 0), (0, more)))

    def note_write(self, slots: Slots, fence: Fence) -> None:
        """Remember that the work up to a fence writes these slots."""
        self._writes = _noted(self._writes, slots, fence)

    def note_read(self, slots: Slots, fence: Fence) -> None:
        """Remember that the work up to a fence reads these slots."""
        self._reads = _noted(self._reads, slots, fence)

    def fences_to_read(self, slots: Slots) -> dict[int, int]:
        """Say what a reader must wait for: the last writes, as lane -> number."""
        return _highest(self._writes, slots)

    def fences_to_write(self, slots: Slots) -> dict[int, int]:
        """Say what a writer must wait for: the last writes and all reads, as lane -> number."""
        found = _highest(self._writes, slots)
        merge_fences(found, _highest(self._reads, slots))
        return found

    def owned(self) -> Slots:
        """List the slots that pages or flights own."""
        return np.flatnonzero(self._state == _OWNED)

    def states(self) -> tuple[SlotState, ...]:
        """Say the state of every slot, in the spec's words."""
        return tuple(_STATES[state] for state in self._state)

    def counts(self) -> dict[SlotState, int]:
        """Count the slots in each state."""
        found = np.bincount(self._state, minlength=len(_STATES))
        return {state: int(found[index]) for index, state in enumerate(_STATES)}

    def check(self) -> None:
        """Assert I1 within the pool: the free queue is exactly the free slots, each once."""
        queued = sorted(self._free)
        assert queued == np.flatnonzero(self._state == _FREE).tolist(), "free queue differs"

    def _become(self, slots: Sequence[int] | Slots, before: int, after: int) -> None:
        index = np.asarray(slots, np.int64)
        found = self._state[index]
        assert (found == before).all(), f"slots {index[found != before]} are not {_STATES[before]}"
        self._state[index] = after


def _plain(slots: Sequence[int] | Slots) -> Iterable[int]:
    return slots.tolist() if isinstance(slots, np.ndarray) else slots


def _noted(table: NDArray[np.int64], slots: Slots, fence: Fence) -> NDArray[np.int64]:
    lane, number = fence
    if lane >= len(table):
        assert lane < MAX_LANES, f"lane {lane} of {MAX_LANES}: are streams made and never reused?"
        table = np.vstack([table, np.zeros((lane + 1 - len(table), table.shape[1]), np.int64)])
    row = table[lane]
    row[slots] = np.maximum(row[slots], number)
    return table


def _highest(table: NDArray[np.int64], slots: Slots) -> dict[int, int]:
    if not len(slots):
        return {}
    highest = table[:, slots].max(axis=1)
    return {int(lane): int(highest[lane]) for lane in np.flatnonzero(highest)}
