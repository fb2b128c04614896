"""A tier that is well is used, and one that is not holds nobody up: what a second review found."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from kvtier import BadRequest, Busy, Cache, Config, Granted, Group, OutOfSlots, PageLost
from kvtier.tiers import HostPool
from kvtier.transfer import jobs
from kvtier_spec import GPU_HOST_DISK, GPU_HOST_DISK_REMOTE
from model_tests.test_tier_faults import SIZE, Bad, cache, down, granted, run

FOUR = {"gpu": 4, "host": 2, "disk": 1, "remote": 8}


def test_a_disk_that_the_cleaner_has_no_use_for_is_not_ill() -> None:
    """Only open pages are held, which the cleaner leaves: a demand has them written, though."""
    of, _ = cache({"gpu": 8, "host": 8, "disk": 64}, clean_low=0.5, clean_high=0.75)
    for _ in range(2):
        sequence = of.sequence()
        granted(of, lambda sequence=sequence: sequence.resume(new=8))  # type: ignore[misc]
        sequence.suspend()
    for _ in range(100):
        of.poll()

    asked = of.sequence()
    granted(of, lambda: asked.resume(new=8))

    assert of.stats().copied["host", "disk"] == 8


def test_a_shrink_over_a_dead_disk_is_refused_in_the_end() -> None:
    """Held pages stand in the way and cannot be written: no answer is busy for ever."""
    of, memories = cache({"gpu": 3, "host": 3, "disk": 20}, clean_low=0, clean_high=0)
    run(of, "abc", end="suspend")
    run(of, "def", end="suspend")
    memories[2][0].bad_writes = True

    answers = []
    for _ in range(30):
        answers.append(of.resize("host", 0))
        if isinstance(answers[-1], Busy):
            of.wait(answers[-1].tickets)

    assert sum(isinstance(answer, OutOfSlots) for answer in answers) > 20


def test_a_dead_remote_makes_nobody_wait_who_could_go_without() -> None:
    """On demand, pages of the disk that cannot be written on are dropped for those of the host."""
    slots = {"gpu": 1, "host": 1, "disk": 1, "remote": 4}
    of, memories = cache(slots, GPU_HOST_DISK_REMOTE, demote="on_demand")
    memories[3][0].bad_writes = True

    for key in "abcdefgh":
        run(of, key)

    assert memories[3][0].writes < 20


@pytest.mark.parametrize("width", [1, SIZE // 2, 2 * SIZE])
def test_a_read_of_another_shape_is_a_miss(width: int) -> None:
    """Bytes are never stretched or cut to a page."""
    of, memories = cache({"gpu": 3, "host": 3, "disk": 20})
    sequence = down(of, "ab", end="suspend")
    memories[2][0].read = lambda slots: np.zeros((len(slots), width), np.uint8)
    answer = sequence.resume()
    assert isinstance(answer, Busy)
    of.wait(answer.tickets)

    with pytest.raises(PageLost):
        sequence.resume()


def test_a_tier_may_raise_whatever_it_likes_on_a_thread() -> None:
    """Even an exit is a failed row, and the thread goes on."""

    class Exits(Bad):
        def write(self, slots: Any, data: Any) -> None:
            if self.bad_writes:
                raise SystemExit
            super().write(slots, data)

    config = Config(
        slots={"gpu": 2, "host": 2, "disk": 9},
        chain=GPU_HOST_DISK,
        groups=(Group(page_bytes=SIZE),),
        clean_low=1,
        clean_high=1,
    )
    with Cache(config, tiers={"disk": Exits}) as of:
        disk = of.memory("disk")
        disk.bad_writes = True
        run(of, "ab")
        run(of, "cd")
        of.poll()
        assert of.wait(of.flights(), timeout_s=20)
        disk.bad_writes = False
        for _ in range(2000):
            of.poll()
            of.wait(of.flights())
        assert of.stats().copied["host", "disk"] == 2


def test_giving_up_needs_no_new_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A substitute that cannot be started is done without."""
    of, memories = cache({"gpu": 3, "host": 3, "disk": 20}, threads=1)
    run(of, "abc")
    memories[2][0].hangs = True
    run(of, "def")
    of.poll()
    assert memories[2][0].entered.wait(20)

    def no_thread(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(jobs.Thread, "start", no_thread)
        of.give_up(of.flights())

    assert of.flights() == {}
    memories[2][0].gate.set()
    of.close()


def test_substitutes_go_when_what_they_replaced_comes_back() -> None:
    """Slow copies that are given up do not pile threads up."""
    before = threading.active_count()
    of, memories = cache({"gpu": 3, "host": 3, "disk": 90}, threads=2)
    run(of, "abc")
    for round_ in range(12):
        memories[2][0].gate.clear()
        memories[2][0].entered.clear()
        memories[2][0].hangs = True
        run(of, ("def", "ghi", "jkl", "mno")[round_ % 4])
        of.poll()
        if not of.flights():
            continue
        assert memories[2][0].entered.wait(20)
        tickets = list(of.flights())
        of.give_up(tickets)
        memories[2][0].hangs = False
        memories[2][0].gate.set()
        assert of.wait(tickets, timeout_s=20)

    assert threading.active_count() <= before + 4
    of.close()


def test_a_cache_that_is_forgotten_leaves_no_threads() -> None:
    """Without close() the threads end with it."""
    before = threading.active_count()
    for _ in range(5):
        of, _ = cache({"gpu": 3, "host": 3, "disk": 20}, threads=2)
        run(of, "abc")
        run(of, "def")
        of.poll()
        of.wait(of.flights())
        del of
    gc.collect()
    ended = threading.Event()
    for _ in range(200):
        if threading.active_count() <= before + 2:
            break
        ended.wait(0.02)

    assert threading.active_count() <= before + 2


def test_busy_names_what_hangs_only_if_there_is_nothing_else() -> None:
    """Who waits for the tickets of a demand does not wait for what was given up."""
    slots = {"gpu": 2, "host": 2, "disk": 8, "remote": 8}
    of, memories = cache(slots, GPU_HOST_DISK_REMOTE, threads=1, clean_low=0, clean_high=0)
    for keys in ("ab", "cd"):
        run(of, keys, end="suspend")
    hung = [99]
    of._store.flights.given_up[1] = _Hung(hung[0])  # type: ignore[assignment] # noqa: SLF001

    answer = of.sequence().resume(new=2)

    assert isinstance(answer, Busy)
    assert set(answer.tickets).isdisjoint(hung)
    memories[2][0].gate.set()


class _Hung:
    """A flight to the remote that was given up."""

    group, source, target, slots = 0, 2, 3, (0,)

    def __init__(self, ticket: int) -> None:
        self.ticket = self.job = ticket


def test_pages_go_down_twice_where_the_tier_between_is_full_of_copies() -> None:
    """All are held; the remote has room: nobody is refused."""
    of, _ = cache(FOUR, GPU_HOST_DISK_REMOTE)
    for keys in ("abcd", "ef"):
        run(of, keys, end="suspend")

    asked = of.sequence()
    granted(of, lambda: asked.resume(new=2))


def test_one_memory_that_cannot_be_closed_keeps_no_other_open() -> None:
    """All are closed, then the error is raised."""

    class Stuck(HostPool):
        def close(self) -> None:
            raise OSError("gone")

    config = Config(slots={"gpu": 1, "host": 1, "disk": 1}, chain=GPU_HOST_DISK)
    of = Cache(config, tiers={"host": Stuck, "disk": HostPool})
    disk = of.memory("disk")
    with pytest.raises(OSError, match="gone"):
        of.close()

    with pytest.raises(Exception, match="closed"):
        _ = disk.array


def test_a_time_to_wait_is_a_number() -> None:
    """Anything else is refused in our words."""
    of, _ = cache({"gpu": 1, "host": 1, "disk": 1})

    with pytest.raises(BadRequest, match="give seconds"):
        of.wait([], timeout_s="a")  # type: ignore[arg-type]
    assert of.wait([], timeout_s=0)
    assert isinstance(of.resize("gpu", 2), Granted)
