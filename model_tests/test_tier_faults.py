"""Tiers that fail, hang or lie, and what a review found wrong about them once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kvtier import (
    BadRequest,
    Busy,
    Cache,
    Config,
    CpuEngine,
    Demand,
    Granted,
    Group,
    NullEngine,
    OutOfSlots,
    PageLost,
)
from kvtier.errors import TierFailed
from kvtier.tiers import HostPool
from kvtier_spec import GPU_HOST_DISK, GPU_HOST_DISK_REMOTE, Chain, SequenceState

SIZE = 16


class Bad(HostPool):
    """A tier with switches: reads or writes raise, or calls hang."""

    def __init__(self, slots: int, page_bytes: int) -> None:
        super().__init__(slots, page_bytes)
        self.bad_reads = self.bad_writes = self.hangs = False
        self.bad_slot: int | None = None
        self.gate, self.entered = threading.Event(), threading.Event()
        self.writes = 0

    def read(self, slots: Any) -> Any:
        """Read, or not."""
        self._maybe_hang()
        if self.bad_reads or self.bad_slot in slots.tolist():
            raise OSError("unreadable")
        return super().read(slots)

    def write(self, slots: Any, data: Any) -> None:
        """Write, or not."""
        self.writes += 1
        self._maybe_hang()
        if self.bad_writes:
            raise OSError("unwritable")
        super().write(slots, data)

    def _maybe_hang(self) -> None:
        if self.hangs:
            self.entered.set()
            self.gate.wait(30)


def cache(
    slots: dict[str, int], chain: Chain = GPU_HOST_DISK, threads: int = 0, **more: Any
) -> tuple[Cache, list[list[Any]]]:
    """A cache whose fallible tiers have switches; jobs run where they are begun, or on threads."""
    settings = {"clean_low": 1.0, "clean_high": 1.0, "cold_policy": "none"} | more
    config = Config(
        slots=slots, chain=chain, groups=(Group(page_bytes=SIZE),), audit=True, **settings
    )
    memories = [
        [(Bad if tier.fallible else HostPool)(slots[tier.name], SIZE)] for tier in chain.tiers
    ]
    return Cache(config, engine=CpuEngine(memories, job_threads=threads)), memories


def run(of: Cache, keys: str, *, end: str = "close") -> Any:
    """Compute what is missing of a prompt, one block a letter."""
    sequence = of.sequence(list(keys))
    granted(of, lambda: sequence.resume(new=len(keys) - sequence.committed))
    sequence.commit(list(keys[sequence.committed :]))
    getattr(sequence, end)()
    return sequence


def granted(of: Cache, ask: Callable[[], Any], tries: int = 50) -> None:
    """Ask until granted, waiting where it is busy."""
    for _ in range(tries):
        answer = ask()
        if not isinstance(answer, Busy):
            assert isinstance(answer, Granted), answer
            return
        of.wait(answer.tickets)
    raise AssertionError(f"busy for ever: {answer}")


def down(of: Cache, keys: str, *, end: str = "close") -> Any:
    """Bring a prompt to the disk: computed, then pushed down by others."""
    first = run(of, keys, end=end)
    for other in ("ABC", "DEF", "GHI"):
        run(of, other)
        for _ in range(3):
            of.wait(of.flights())
    assert {of.primaries()[key] for key in keys} == {"disk"}
    return first


def spoil(of: Cache, memories: list[list[Any]], key: str) -> None:
    """Make one page unreadable on the disk."""
    memories[2][0].bad_slot = of._store.ledger.found[0][key].slots[2]  # noqa: SLF001


def test_a_resume_may_be_given_up_when_it_has_just_failed() -> None:
    """suspend() notices the failure first, and has nothing left to do."""
    of, memories = cache({"gpu": 3, "host": 3, "disk": 20})
    sequence = down(of, "ab", end="suspend")
    spoil(of, memories, "b")
    assert isinstance(sequence.resume(), Busy)

    sequence.suspend()

    assert sequence.state is SequenceState.SUSPENDED
    with pytest.raises(PageLost) as lost:
        sequence.resume()
    assert lost.value.sequence is sequence
    sequence.close()
    assert of.available("gpu") == 3


def test_a_prompt_may_name_a_key_twice_and_lose_a_page() -> None:
    """Every hold of a page goes, also of one that stands at two positions."""
    of, memories = cache({"gpu": 3, "host": 3, "disk": 20})
    down(of, "ac")
    sequence = of.sequence(["a", "a", "c"])
    spoil(of, memories, "c")
    answer = sequence.resume()
    assert isinstance(answer, Busy)
    of.wait(answer.tickets)
    with pytest.raises(PageLost):
        sequence.resume()
    sequence.close()
    of.poll()

    assert not any(of.snapshot().holds.values())


@pytest.mark.parametrize("policy", ["write_through", "write_through_selective"])
def test_a_page_committed_twice_is_written_through_once(policy: str) -> None:
    """Two blocks under one key are one page, with one host slot."""
    of, _ = cache({"gpu": 4, "host": 4, "disk": 4}, policy=policy, demote="on_demand")
    for _ in range(2):
        sequence = of.sequence(["a", "a"])
        assert sequence.resume(new=2 - sequence.committed)
        sequence.commit(["a", "a"][sequence.committed :])
        sequence.close()

    assert of.available("host") == 4
    assert of.stats().tiers["host"].shadows == 1


def test_what_leaves_the_window_is_ordered_after_its_readers() -> None:
    """A commit on another stream does not let go of pages that the sequence's stream reads."""
    groups = (Group("swa", SIZE, window=1),)
    memories = [[HostPool(2, SIZE)], [HostPool(2, SIZE)]]
    engine = CpuEngine(memories, is_manual=True)
    of = Cache(Config(slots={"gpu": 2, "host": 2}, groups=groups), engine=engine)
    sequence = of.sequence()
    assert sequence.resume(new=2, stream="R")
    sequence.commit(["a"], stream="R")
    engine.launch("R", lambda: None, reads=sequence.slots())
    sequence.commit(["b"], stream="W")

    other = of.sequence()
    assert other.resume(new=1, stream="T")
    engine.launch("T", lambda: None, writes=other.slots())

    assert engine.races() == []


@pytest.mark.parametrize("demote", ["ahead", "on_demand"])
def test_a_dead_disk_makes_nobody_wait_for_ever(demote: str) -> None:
    """Pages that nobody holds are dropped; held ones refuse the demand; the disk is left alone."""
    of, memories = cache({"gpu": 3, "host": 3, "disk": 20}, demote=demote)
    memories[2][0].bad_writes = True
    for keys in ("abc", "def", "ghi", "jkl", "mno"):
        run(of, keys)
    run(of, "pqr", end="suspend")
    run(of, "stu", end="suspend")
    sequence = of.sequence()
    answers = []
    for _ in range(40):
        answers.append(sequence.resume(new=2))
        if isinstance(answers[-1], Busy):
            of.wait(answers[-1].tickets)
    before = memories[2][0].writes
    for _ in range(200):
        of.poll()

    assert sum(isinstance(answer, OutOfSlots) for answer in answers) > 20
    assert memories[2][0].writes - before < 100


def test_a_page_that_cannot_be_read_on_its_way_down_is_lost_there() -> None:
    """Disk to remote: the bytes on the disk are bad, so the page is a miss, not tried for ever."""
    slots = {"gpu": 3, "host": 3, "disk": 3, "remote": 20}
    of, memories = cache(slots, GPU_HOST_DISK_REMOTE)
    memories[2][0].bad_reads = True
    run(of, "abc")
    for other in ("ABC", "DEF", "GHI", "JKL"):
        run(of, other)
        of.wait(of.flights())
    of.wait(of.flights())

    assert of.stats().events["lose"] > 0
    assert memories[3][0].writes == 0


@pytest.mark.parametrize("is_dead", [False, True])
def test_closing_begins_nothing_and_leaves_nothing_under_way(is_dead: bool) -> None:
    """The cleaner is off while a cache closes."""
    of, memories = cache({"gpu": 600, "host": 600, "disk": 1200}, threads=2)
    memories[2][0].bad_writes = is_dead
    for name in "ab":
        sequence = of.sequence()
        assert sequence.resume(new=600)
        sequence.commit([(name, at) for at in range(600)])
        sequence.close()

    of.close()

    assert of.flights() == {}


def test_what_was_given_up_is_not_begun_again_while_it_hangs() -> None:
    """The cleaner leaves a tier alone that hangs; closing is possible."""
    of, memories = cache({"gpu": 3, "host": 3, "disk": 20}, threads=2)
    run(of, "abc")
    memories[2][0].hangs = True
    run(of, "def")
    of.poll()
    assert of.flights()
    assert memories[2][0].entered.wait(20)
    of.give_up(of.flights())
    for _ in range(50):
        of.poll()

    assert of.flights() == {}
    with pytest.warns(ResourceWarning, match="hangs"):
        of.close()
    memories[2][0].gate.set()


def test_a_tier_that_hangs_holds_up_no_other() -> None:
    """The remote hangs; the disk goes on."""
    slots = {"gpu": 3, "host": 3, "disk": 3, "remote": 20}
    of, memories = cache(slots, GPU_HOST_DISK_REMOTE, threads=1)
    memories[3][0].hangs = True
    run(of, "abc")
    run(of, "ABC")
    of.wait([t for t, (_, target, _) in of.flights().items() if target == "disk"])
    of.poll()
    run(of, "DEF")
    assert memories[3][0].entered.wait(20)

    writes = [t for t, (_, target, _) in of.flights().items() if target == "disk"]
    assert of.wait(writes, timeout_s=20)

    hung = [t for t, (_, target, _) in of.flights().items() if target == "remote"]
    assert not of.wait(hung, timeout_s=0.01)
    memories[3][0].gate.set()
    of.close()


HANGS = """
import threading, warnings
from model_tests.test_tier_faults import cache, run
warnings.simplefilter("ignore")
of, memories = cache({"gpu": 3, "host": 3, "disk": 20}, threads=1)
run(of, "abc")
memories[2][0].hangs = True
run(of, "def")
of.poll()
memories[2][0].entered.wait(20)
of.give_up(of.flights())
of.close()
"""


def test_a_process_ends_although_a_copy_hangs() -> None:
    """Threads that hang keep nobody."""
    subprocess.run([sys.executable, "-c", HANGS], check=True, timeout=25)  # noqa: S603


def test_resizing_one_tier_does_not_wait_for_another() -> None:
    """The disk hangs: the gpu grows all the same; the disk's own end is busy."""
    of, memories = cache({"gpu": 3, "host": 3, "disk": 20}, threads=1)
    run(of, "abc")
    memories[2][0].hangs = True
    run(of, "def")
    of.poll()
    assert of.flights()

    assert isinstance(of.resize("gpu", 5), Granted)
    assert isinstance(of.resize("disk", 30), Busy)

    memories[2][0].gate.set()
    of.close()


def test_a_step_without_room_begins_nothing() -> None:
    """The cold part would fit, the whole does not: refused, and nobody is resuming."""
    of, _ = cache({"gpu": 3, "host": 3, "disk": 20})
    cold = down(of, "ab", end="suspend")

    answer = of.step([Demand(cold), Demand(of.sequence(), new=4)])

    assert isinstance(answer, OutOfSlots)
    assert cold.state is SequenceState.SUSPENDED


def test_a_tier_that_cannot_invalidate_says_so_and_stops_nothing() -> None:
    """All keys are forgotten; reset() may be repeated."""

    class Stuck(Bad):
        def invalidate(self, kept: Any) -> None:
            raise OSError("gone")

    config = Config(slots={"gpu": 2, "host": 2, "disk": 2}, chain=GPU_HOST_DISK)
    with Cache(config, tiers={"disk": Stuck}) as of:
        run(of, "a")

        with pytest.raises(TierFailed, match="disk could not invalidate"):
            of.reset()

        assert of.sequence(["a"]).matched == 0


def test_a_twin_whose_page_was_lost_and_found_again_costs_nothing() -> None:
    """Nothing is missing, so nothing is told and open pages stay."""
    of, memories = cache({"gpu": 8, "host": 2, "disk": 20})
    first = of.sequence(["a"])
    second = of.sequence(["a"])
    assert first.resume(new=2)
    assert second.resume(new=2)
    first.commit(["a"])
    second.commit(["a"])
    first.close()
    mate = next(iter(of._store.ledger.found[0].values()))  # noqa: SLF001
    for name in ("xy", "zw", "uv"):
        run(of, name)
        blocker = of.sequence()
        granted(of, lambda blocker=blocker: blocker.resume(new=6))  # type: ignore[misc]
        blocker.close()
        of.wait(of.flights())
    assert mate.primary == 2
    memories[2][0].bad_reads = True
    third = of.sequence(["a"])
    answer = third.resume()
    assert isinstance(answer, Busy)
    of.wait(answer.tickets)
    memories[2][0].bad_reads = False
    with pytest.raises(PageLost):
        third.resume()
    assert third.resume(new=1)
    third.commit(["a"])

    second.suspend()

    assert (second.committed, second.open) == (1, 1)
    assert second.resume()


def test_senseless_arguments_are_refused_in_our_words() -> None:
    """Groups, tickets, demands: one error that says what to give."""
    of, _ = cache({"gpu": 2, "host": 2, "disk": 2})
    sequence = of.sequence()
    assert sequence.resume(new=1)
    for call in (
        lambda: of.available("gpu", group=3),
        lambda: of.memory("gpu", 4),
        lambda: of.snapshot(9),
        lambda: sequence.slots(4),
        lambda: sequence.first(7),
        lambda: of.wait(None),  # type: ignore[arg-type]
        lambda: of.wait([99]),
        lambda: of.step([(sequence, 1)]),  # type: ignore[list-item]
        lambda: of.step([Demand(None)]),  # type: ignore[arg-type]
        lambda: of.resize("host", {"full": 2, 3: 4}),  # type: ignore[dict-item]
    ):
        with pytest.raises(BadRequest):
            call()


def test_a_null_engine_needs_no_sizes() -> None:
    """Without sizes it counts no bytes, for any number of groups."""
    config = Config(slots={"gpu": 1, "host": 2}, groups=(Group("a"), Group("b")))
    of = Cache(config, engine=NullEngine())
    first = of.sequence()
    assert first.resume(new=1)
    first.commit(["k"])
    first.suspend()

    assert of.sequence().resume(new=1)
