"""The cpu engine: real byte copies between the memories of the tiers, in lanes.

By default a submission runs at once. With `is_manual=True` it waits for `pump`, so that tests can
be late in any order: a lane's first job runs only when the fences it waits for have passed, exactly
as streams do. `launch` queues a user's own work (writing an open page, reading a pinned one) on a
stream, where an attention kernel would run.

Failure is an argument of the call under test: inside `with engine.failing(at=2, queued=1):` the
second submission queues one copy and then raises.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from kvtier.slots import Fence, merge_fences
from kvtier.tiers import Memory
from kvtier.transfer.base import CALLER, Copies, CopyFault, CopyRefused, Fences
from kvtier.transfer.null import Lanes
from kvtier.transfer.races import Job, Use, races

Memories = Sequence[Sequence[Memory]]
"""By tier, by group."""

GPU = 0
"""The tier that a user's own work is on."""


class CpuEngine:
    """Copies on the host; manual or at once."""

    def __init__(self, memories: Memories, *, is_manual: bool = False) -> None:
        self.is_manual = is_manual
        self._memories: Memories = memories
        self._lanes = Lanes()
        self._queues: dict[int, deque[Job]] = {}
        self._submitted: list[Job] = []
        self._done: Counter[int] = Counter()
        self._copied: Counter[tuple[int, int]] = Counter()
        self._blocked: dict[int, dict[int, int]] = {}
        self._failure: list[int] | None = None

    @property
    def memories(self) -> Memories:
        """Give the memories that it copies between."""
        return self._memories

    def lane(self, stream: Hashable | None) -> int:
        """Name the lane of a user's stream."""
        return self._lanes.of(stream)

    def submit(self, copies: Copies, waits: Fences) -> Fence:
        """Queue copies after these fences, or fail as `failing` says."""
        queued = self._queued(len(copies))
        if queued is None:
            fence = self._enqueue(copies, waits, len(copies))
            page_bytes = self._memories[copies.target][copies.group].shape[1]
            self._copied[copies.source, copies.target] += len(copies) * page_bytes
            return fence
        if queued == 0:
            raise CopyRefused("refused by the test")
        self._enqueue(copies, waits, queued)
        raise CopyFault("failed half submitted by the test", queued)

    def launch(
        self,
        stream: Hashable,
        work: Callable[[], object],
        *,
        reads: Iterable[int] = (),
        writes: Iterable[int] = (),
        group: int = 0,
    ) -> Fence:
        """Queue a user's work on a stream, after all that the stream was told to wait for.

        `reads` and `writes` name the gpu slots that it uses, for the order detector.
        """
        uses = {Use(GPU, group, int(slot), writes=False) for slot in reads}
        uses |= {Use(GPU, group, int(slot), writes=True) for slot in writes}
        return self._push(self.lane(stream), {}, work, uses=frozenset(uses), name="a kernel")

    def queued(self) -> tuple[Job, ...]:
        """List all work that has not run, in order of submission."""
        return tuple(self._submitted)

    def races(self) -> list[str]:
        """List conflicting uses of slots, among all that is queued, that nothing orders (I2)."""
        return races(self._submitted)

    def record(self, lane: int) -> Fence:
        """Give the fence of all that was submitted to a lane so far, its waits included."""
        if self._blocked.get(lane):
            return self._push(lane, {}, _nothing)
        return lane, self._lanes.last[lane]

    def wait(self, lane: int, fences: Fences) -> None:
        """Order what comes next on a lane after these fences; CALLER runs lanes until they pass."""
        if lane != CALLER:
            merge_fences(self._blocked.setdefault(lane, {}), fences)
            return
        while any(not self.is_done(fence) for fence in fences.items()):
            assert self.pump(), f"waiting for {dict(fences)} that nothing will pass"

    def is_done(self, fence: Fence) -> bool:
        """Say whether a fence was passed."""
        lane, number = fence
        return lane == CALLER or self._done[lane] >= number

    def runnable(self) -> list[int]:
        """List the lanes whose first job waits for nothing any more."""
        return [
            lane
            for lane, queue in self._queues.items()
            if queue and all(self.is_done(fence) for fence in queue[0].waits)
        ]

    def pump(self, lane: int | None = None) -> bool:
        """Run the first job of a lane (of the first runnable one); say whether one ran."""
        ready = self.runnable()
        if not ready or (lane is not None and lane not in ready):
            return False
        chosen = ready[0] if lane is None else lane
        job = self._queues[chosen].popleft()
        self._submitted.remove(job)
        job.run()
        self._done[chosen] = job.fence[1]
        return True

    def synchronize(self) -> None:
        """Run everything."""
        while self.pump():
            pass
        left = sum(len(queue) for queue in self._queues.values())
        assert not left, f"{left} jobs wait for fences that nothing will pass"

    def copied(self) -> Mapping[tuple[int, int], int]:
        """Count the bytes submitted so far."""
        return self._copied

    @contextmanager
    def failing(self, *, at: int, queued: int = 0) -> Iterator[None]:
        """Let the `at`-th submission from here (1 is the next) fail with `queued` copies queued."""
        self._failure = [at, queued]
        try:
            yield
        finally:
            self._failure = None

    def close(self) -> None:
        """Finish all work and close the memories."""
        self.synchronize()
        for tier in self._memories:
            for memory in tier:
                memory.close()

    def _queued(self, size: int) -> int | None:
        """Say how many copies of this submission are queued before it fails; None: it does not."""
        if self._failure is None:
            return None
        self._failure[0] -= 1
        return min(self._failure[1], size - 1) if self._failure[0] == 0 else None

    def _enqueue(self, copies: Copies, waits: Fences, count: int) -> Fence:
        source = self._memories[copies.source][copies.group]
        target = self._memories[copies.target][copies.group]
        part = replace(copies, sources=copies.sources[:count], targets=copies.targets[:count])

        def run() -> None:
            target.write(part.targets, source.read(part.sources))

        ends = ((copies.source, part.sources, False), (copies.target, part.targets, True))
        uses = frozenset(
            Use(tier, copies.group, int(slot), writes)
            for tier, slots, writes in ends
            for slot in slots
        )
        return self._push(copies.lane, waits, run, uses=uses, name="a copy")

    def _push(
        self,
        lane: int,
        waits: Fences,
        run: Callable[[], object],
        *,
        uses: frozenset[Use] = frozenset(),
        name: str = "a record",
    ) -> Fence:
        fence = self._lanes.next(lane)
        needed = self._blocked.pop(lane, {})
        merge_fences(needed, waits)
        needed.pop(lane, None)
        job = Job(fence, tuple(needed.items()), run, uses, name)
        self._queues.setdefault(lane, deque()).append(job)
        self._submitted.append(job)
        while not self.is_manual and self.pump():
            pass
        return fence


def _nothing() -> None:
    """Be the event behind a wait: it is passed when the wait is over."""
