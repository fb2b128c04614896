"""Jobs of the cpu engine: rows copied to and from fallible tiers by a few threads.

Every fallible tier has threads of its own, so that one that hangs holds up no other. A row that
raises is a row that failed; whatever a memory raises, the thread goes on with the next. With no
threads a job runs where it is begun, which makes tests repeatable.

Threads are started by the first job and not before. Python cannot stop a thread that hangs in a
call: jobs that were abandoned are not waited for, another thread takes the place of theirs, and
threads are daemons, which executors of the standard library are not: these would keep the process
from ending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Condition, Thread
from weakref import finalize

import numpy as np

from kvtier.tiers import Memory
from kvtier.transfer.base import Copies, Ended

Rows = tuple[frozenset[int], frozenset[int]]
"""The rows that failed, and those of them that could not be read."""
Work = Callable[[], Rows]

MAX_HUNG = 64
"""Threads of a tier that are replaced because they hang; then it has none any more."""


@dataclass(eq=False)
class _Shared:
    """What the threads know: not `Jobs`, which may be forgotten without being closed."""

    changed: Condition = field(default_factory=Condition)
    queues: dict[int, SimpleQueue[tuple[int, Work] | None]] = field(default_factory=dict)
    alive: Counter[int] = field(default_factory=Counter)
    """Threads by tier, without those that have a substitute."""
    tier_of: dict[int, int] = field(default_factory=dict)
    """Jobs that have not ended, with their tier."""
    begun: set[int] = field(default_factory=set)
    abandoned: set[int] = field(default_factory=set)
    replaced: set[int] = field(default_factory=set)
    """Jobs whose thread has a substitute, and ends with them."""
    over: list[Ended] = field(default_factory=list)


class Jobs:
    """Jobs on a few threads a tier; `ended` gives those that are over."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._shared = _Shared()
        finalize(self, _let_go, self._shared)

    def begin(self, job: int, tier: int, work: Work) -> None:
        """Run a job's work on a thread of a tier, or at once if there are none.

        Raises RuntimeError if no thread can be started and there is none.
        """
        shared = self._shared
        if not self._threads:
            shared.over.append(Ended(job, *work()))
            return
        queue = shared.queues.setdefault(tier, SimpleQueue())
        if shared.alive[tier] < self._threads:
            self._start(tier, is_needed=not shared.alive[tier])
        with shared.changed:
            shared.tier_of[job] = tier
        queue.put((job, work))

    def _start(self, tier: int, *, is_needed: bool) -> bool:
        """Start a thread; where it is not needed, it may fail."""
        thread = Thread(
            target=_run, args=(self._shared, tier), name=f"kvtier-tier-{tier}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            if is_needed:
                raise
            return False
        with self._shared.changed:
            self._shared.alive[tier] += 1
        return True

    def ended(self) -> list[Ended]:
        """Give the jobs that have ended since."""
        shared = self._shared
        with shared.changed:
            found, shared.over = shared.over, []
            done = {ended.job for ended in found}
            shared.abandoned -= done
            shared.begun -= done
        return found

    def wait_for(self, jobs: Collection[int], timeout_s: float | None = None) -> bool:
        """Block until these have ended, or for so long; say whether they have."""
        shared = self._shared
        with shared.changed:
            return shared.changed.wait_for(
                lambda: not any(job in shared.tier_of for job in jobs), timeout_s
            )

    def abandon(self, job: int) -> None:
        """Do not wait for a job any more; give its thread, if it may hang, a substitute."""
        shared = self._shared
        with shared.changed:
            tier = shared.tier_of.get(job)
            shared.abandoned.add(job)
            hangs = tier is not None and job in shared.begun
        if tier is None or not hangs or len(shared.replaced) >= MAX_HUNG:
            return
        if self._start(tier, is_needed=False):
            with shared.changed:
                shared.replaced.add(job)
                shared.alive[tier] -= 1

    def synchronize(self) -> None:
        """Block until all have ended that were not abandoned."""
        shared = self._shared
        with shared.changed:
            shared.changed.wait_for(lambda: shared.abandoned.issuperset(shared.tier_of))

    def close(self) -> set[int]:
        """Let the threads go; give the jobs that are in a call still."""
        self.synchronize()
        _let_go(self._shared)
        with self._shared.changed:
            return set(self._shared.tier_of)


def _let_go(shared: _Shared) -> None:
    """Let every thread end once it has nothing to do."""
    for tier, queue in shared.queues.items():
        for _ in range(shared.alive[tier] + len(shared.replaced)):
            queue.put(None)


def _run(shared: _Shared, tier: int) -> None:
    """Be a thread: one job after the other, until told to end or replaced."""
    queue = shared.queues[tier]
    while (item := queue.get()) is not None:
        job, work = item
        del item
        with shared.changed:
            shared.begun.add(job)
            is_wanted = job not in shared.abandoned
        rows: Rows = work() if is_wanted else (frozenset(), frozenset())
        del work  # and with it what it copied between: this thread may now wait for ever
        with shared.changed:
            shared.over.append(Ended(job, *rows))
            shared.tier_of.pop(job, None)
            shared.changed.notify_all()
            if job in shared.replaced:
                shared.replaced.discard(job)
                return


def copy_rows(
    source: Memory,
    target: Memory,
    copies: Copies,
    *,
    caught: type[BaseException] = Exception,
) -> Rows:
    """Copy row by row; give those that failed, and those that could not be read.

    A page on its way up whose target cannot be written has not been read either: the target cannot
    fail, so the bytes are not a page.
    """
    failed: set[int] = set()
    unread: set[int] = set()
    page, rises = (1, target.shape[1]), copies.target < copies.source
    for row in range(len(copies)):
        at = slice(row, row + 1)
        try:
            data = source.read(copies.sources[at])
            if data.shape != page or data.dtype != np.uint8:
                raise OSError(f"{data.dtype} {data.shape} was read, not {page}")
        except caught:
            unread.add(row)
            continue
        try:
            target.write(copies.targets[at], data)
        except caught:
            (unread if rises else failed).add(row)
    return frozenset(failed | unread), frozenset(unread)
