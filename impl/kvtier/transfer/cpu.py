"""The cpu engine: real byte copies between the memories of the tiers, in lanes and as jobs.

By default a submission runs at once, and jobs of fallible tiers run on a few threads. With
`is_manual=True` everything waits: lanes for `pump`, jobs for `finish`, so that tests can be late in
any order. A lane's first work runs only when the fences it waits for have passed, exactly as
streams do; a job likewise. `launch` queues a user's own work (writing an open page, reading a
pinned one) on a stream, where an attention kernel would run.

Failure is an argument of the call under test: inside `with engine.failing(at=2, queued=1):` the
second submission queues one copy and then raises; `finish(job, failed=[0])` fails a row.
"""

from __future__ import annotations

import warnings
from collections import Counter, deque
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import numpy as np

from kvtier.slots import Fence, merge_fences
from kvtier.tiers import Memory
from kvtier.transfer.base import CALLER, Copies, CopyFault, CopyRefused, Ended, Fences
from kvtier.transfer.jobs import Jobs, copy_rows
from kvtier.transfer.null import Lanes
from kvtier.transfer.races import Job, Use, races

Memories = Sequence[Sequence[Memory]]
"""By tier, by group."""

GPU = 0
"""The tier that a user's own work is on."""

JOB_THREADS = 4
"""Threads for fallible tiers: a disk serves a few requests at once."""

JUNK = 0xBD
"""What a failed row leaves in its target, which nobody may read."""


class CpuEngine:
    """Copies on the host; manual or at once. `job_threads=0` runs jobs where they are begun."""

    def __init__(
        self, memories: Memories, *, is_manual: bool = False, job_threads: int = JOB_THREADS
    ) -> None:
        self.is_manual = is_manual
        self._memories: Memories = memories
        self._lanes = Lanes()
        self._queues: dict[int, deque[Job]] = {}
        self._submitted: list[Job] = []
        self._done: Counter[int] = Counter()
        self._copied: Counter[tuple[int, int]] = Counter()
        self._blocked: dict[int, dict[int, int]] = {}
        self._failure: list[int] | None = None
        self._jobs = Jobs(job_threads)
        self._caught = BaseException if job_threads else Exception
        """What a tier may raise: on a thread of ours anything, on the caller's not Ctrl-C."""
        self._begun: dict[int, Copies] = {}
        self._manual: dict[int, Job] = {}
        self._left: dict[int, Copies] = {}
        """Jobs that were abandoned and have not ended."""
        self._over: list[Ended] = []
        self._last_job = 0

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
            self._count(copies, len(copies))
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

    # ---------------------------------------------------------------------------------- jobs

    def start(self, copies: Copies, waits: Fences) -> int:
        """Begin a job after these fences, or refuse it as `failing` says."""
        if self._queued(len(copies)) is not None:
            raise CopyRefused("refused by the test")
        self._last_job += 1
        job = self._last_job
        self._begun[job] = copies
        if not self.is_manual:
            source, target = self._ends(copies)
            tier, caught = max(copies.source, copies.target), self._caught
            try:
                self._jobs.begin(
                    job, tier, lambda: copy_rows(source, target, copies, caught=caught)
                )
            except RuntimeError as error:  # no thread can be started
                del self._begun[job]
                raise CopyRefused(str(error)) from error
            return job
        self._manual[job] = Job((-job, 1), tuple(waits.items()), _nothing, _uses(copies), "a job")
        self._submitted.append(self._manual[job])
        return job

    def ended(self) -> list[Ended]:
        """Give the jobs that have ended since, and count their bytes."""
        found, self._over = [*self._over, *self._jobs.ended()], []
        for ended in found:
            self._left.pop(ended.job, None)
            copies = self._begun.pop(ended.job, None)
            if copies is not None:
                self._count(copies, len(copies) - len(ended.failed))
        return found

    def finishable(self) -> list[int]:
        """List the jobs of a manual engine that wait for no fence any more."""
        return [
            job
            for job, work in self._manual.items()
            if all(self.is_done(fence) for fence in work.waits)
        ]

    def finish(
        self, job: int, *, failed: Collection[int] = (), unread: Collection[int] = ()
    ) -> None:
        """Let a job of a manual engine end; rows that fail leave junk in their targets.

        Rows that fail on the way up could not be read; on the way down, only `unread` ones.
        """
        work = self._manual.pop(job)
        self._submitted.remove(work)
        copies = self._begun[job] if job in self._begun else self._left[job]
        source, target = self._ends(copies)
        rows = range(len(copies))
        bad = [row for row in rows if row in failed or row in unread]
        good = [row for row in rows if row not in bad]
        part = replace(copies, sources=copies.sources[good], targets=copies.targets[good])
        worse, blind = ({good[row] for row in part} for part in copy_rows(source, target, part))
        if bad:
            with suppress(OSError):
                junk = np.full((len(bad), target.shape[1]), JUNK, np.uint8)
                target.write(copies.targets[bad], junk)
        blind |= set(bad) if copies.source > copies.target else set(unread).intersection(rows)
        self._over.append(Ended(job, frozenset([*bad, *worse]), frozenset(blind)))

    def wait_for(self, jobs: Collection[int], timeout_s: float | None = None) -> bool:
        """Wait for threads; jobs of a manual engine are finished, after all they wait for."""
        for job in jobs:
            if job in self._manual:
                self.wait(CALLER, dict(self._manual[job].waits))
                self.finish(job)
        return self._jobs.wait_for(jobs, timeout_s)

    def abandon(self, job: int) -> None:
        """Take note that nobody will use what a job writes, nor keep what it reads."""
        self._left[job] = self._begun.pop(job)
        self._jobs.abandon(job)
        if job in self._manual:
            writes = frozenset(use for use in self._manual[job].uses if use.writes)
            index = self._submitted.index(self._manual[job])
            self._manual[job] = self._submitted[index] = replace(self._manual[job], uses=writes)

    def _ends(self, copies: Copies) -> tuple[Memory, Memory]:
        group = copies.group
        return self._memories[copies.source][group], self._memories[copies.target][group]

    def _count(self, copies: Copies, rows: int) -> None:
        page_bytes = self._memories[copies.target][copies.group].shape[1]
        self._copied[copies.source, copies.target] += rows * page_bytes

    # --------------------------------------------------------------------------------- lanes

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
        """List the lanes whose first work waits for nothing any more."""
        return [
            lane
            for lane, queue in self._queues.items()
            if queue and all(self.is_done(fence) for fence in queue[0].waits)
        ]

    def pump(self, lane: int | None = None) -> bool:
        """Run the first work of a lane (of the first runnable one); say whether any ran."""
        ready = self.runnable()
        if not ready or (lane is not None and lane not in ready):
            return False
        chosen = ready[0] if lane is None else lane
        work = self._queues[chosen].popleft()
        self._submitted.remove(work)
        work.run()
        self._done[chosen] = work.fence[1]
        return True

    def synchronize(self, *, with_jobs: bool = True) -> None:
        """Run everything; abandoned jobs are not waited for."""
        while self.pump():
            pass
        left = sum(len(queue) for queue in self._queues.values())
        assert not left, f"{left} jobs wait for fences that nothing will pass"
        if with_jobs:
            for job in [job for job in self._manual if job not in self._left]:
                self.finish(job)
            self._jobs.synchronize()

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
        """Finish all work and close the memories, all of them, whatever one raises.

        Those that an abandoned copy may still touch stay open, with a warning.
        """
        self.synchronize()
        hung = [self._left[job] for job in self._jobs.close() if job in self._left]
        busy = {(tier, copies.group) for copies in hung for tier in (copies.source, copies.target)}
        with ExitStack() as stack:
            for tier, groups in enumerate(self._memories):
                for group, memory in enumerate(groups):
                    if (tier, group) not in busy:
                        stack.callback(memory.close)
        if busy:
            warnings.warn(
                "an abandoned copy hangs in a call; its memories stay open until the process ends",
                ResourceWarning,
                stacklevel=2,
            )

    def _queued(self, size: int) -> int | None:
        """Say how many copies of this submission are queued before it fails; None: it does not."""
        if self._failure is None:
            return None
        self._failure[0] -= 1
        return min(self._failure[1], size - 1) if self._failure[0] == 0 else None

    def _enqueue(self, copies: Copies, waits: Fences, count: int) -> Fence:
        source, target = self._ends(copies)
        part = replace(copies, sources=copies.sources[:count], targets=copies.targets[:count])

        def run() -> None:
            target.write(part.targets, source.read(part.sources))

        return self._push(copies.lane, waits, run, uses=_uses(part), name="a copy")

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
        work = Job(fence, tuple(needed.items()), run, uses, name)
        self._queues.setdefault(lane, deque()).append(work)
        self._submitted.append(work)
        while not self.is_manual and self.pump():
            pass
        return fence


def _uses(copies: Copies) -> frozenset[Use]:
    ends = ((copies.source, copies.sources, False), (copies.target, copies.targets, True))
    return frozenset(
        Use(tier, copies.group, int(slot), writes) for tier, slots, writes in ends for slot in slots
    )


def _nothing() -> None:
    """Be the event behind a wait: it is passed when the wait is over."""
