"""Corners of the public face that a review found wrong once, each held by a test."""

from __future__ import annotations

import warnings

import pytest

from kvtier import (
    BadRequest,
    Busy,
    Cache,
    CacheClosed,
    CacheFailed,
    Config,
    ConfigError,
    CopyFailed,
    CpuEngine,
    Demand,
    Group,
    OutOfSlots,
    StaleHandle,
)
from kvtier.journal import ObserverWarning
from kvtier.tiers import HostPool
from kvtier_spec import Batch
from model_tests.test_cache import cache, late_cache, run


def test_a_new_stream_comes_after_the_recalls_of_the_old_one() -> None:
    """A sequence that changes streams before it used the first one still waits for its bytes."""
    of, engine = late_cache(2, 4)
    sequence = run(of, "a", "b")
    of.memory("gpu").array[sequence.slots()] = [[1], [2]]
    sequence.suspend()
    other = of.sequence()
    assert other.resume(new=2)
    engine.synchronize()
    of.memory("gpu").array[other.slots()] = 9
    other.close()
    assert sequence.resume(stream="S")

    assert of.step([Demand(sequence)], stream=None)

    assert of.memory("gpu").array[sequence.slots()][:, 0].tolist() == [1, 2]


def test_open_pages_are_not_written_while_a_failed_copy_reads_them() -> None:
    """After a half submitted offload the pages' user comes after the copy that is still queued."""
    of, engine = late_cache(2, 4)
    sequence = of.sequence()
    assert sequence.resume(new=2, stream="S")
    sequence.suspend()
    with engine.failing(at=1, queued=1), pytest.raises(CopyFailed):
        of.sequence().resume(new=2, stream="T")

    assert sequence.resume(stream="S")
    engine.launch("S", lambda: None, writes=sequence.slots())

    assert engine.races() == []
    assert engine.lane("S") not in engine.runnable()


@pytest.mark.parametrize("give_back", [lambda s: s.trim(1), lambda s: s.close()])
def test_a_table_is_stale_once_a_slot_was_given_back(give_back) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Also where the slot has no other owner yet."""
    sequence = cache().sequence()
    assert sequence.resume(new=2)
    table = sequence.table()
    give_back(sequence)

    with pytest.raises(StaleHandle):
        table.check()


@pytest.mark.parametrize(
    "act",
    [
        lambda of, s: of.sequence([["a"]]),
        lambda of, s: of.sequence("abc"),
        lambda of, s: of.sequence(b"abc"),
        lambda of, s: of.sequence(7),
        lambda of, s: s.commit(["k", []]),
        lambda of, s: s.commit("k"),
        lambda of, s: s.append(1.0),
        lambda of, s: s.append(-1),
        lambda of, s: s.trim(0.5),
        lambda of, s: s.suspend(stream=[]),
        lambda of, s: s.close(stream=[]),
        lambda of, s: s.commit(["k"], stream=[]),
        lambda of, s: of.step([Demand(s, 1)], stream=[]),
        lambda of, s: of.step([Demand(s, 1), Demand(s, 1)]),
        lambda of, s: of.step([Demand(cache().sequence(), 1)]),
        lambda of, s: [of.sequence().resume(stream=number) for number in range(300)],
        lambda of, s: of.available("nvme"),
        lambda of, s: of.memory("nvme"),
        lambda of, s: of.wait([1]),
    ],
)
def test_bad_input_is_one_clear_error_and_nothing_is_lost(act) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """A mistake of the caller is BadRequest, changes nothing, and the cache goes on."""
    of = cache()
    sequence = of.sequence()
    assert sequence.resume(new=2)
    before = of.snapshot()

    with pytest.raises(BadRequest):
        act(of, sequence)

    assert of.snapshot() == before
    sequence.commit(["k"])


def test_an_observer_cannot_break_the_cache_where_warnings_are_errors() -> None:
    """The others are told, and the operation is over."""
    of = cache()
    told: list[Batch] = []

    def broken(_: Batch) -> None:
        raise RuntimeError("observer")

    of.subscribe(broken)
    of.subscribe(told.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(of, "a")

    assert len(told) == of.stats().observer_failures == 2


def test_an_observer_sees_the_cache_at_rest_and_may_call_it() -> None:
    """Batches are delivered when the operation is over; what they cause is told afterwards."""
    of = cache(gpu=2, host=1)
    held = run(of, "a", "b")
    held.suspend()
    seen: list[str] = []

    def closes(batch: Batch) -> None:
        seen.extend(record.kind for record in batch)
        held.close()

    of.subscribe(closes)
    other = of.sequence()
    assert other.resume(new=1)

    assert held.state == "closed"
    assert seen == ["copy", "release", "open", "unhold"]


def test_anything_but_a_failed_copy_stops_the_cache() -> None:
    """Memory that goes away under the cache is no ordinary error."""
    of = cache(gpu=2, host=4)
    run(of, "a", "b").close()
    of.memory("host").close()

    with pytest.raises(CacheClosed):
        of.sequence().resume(new=2)
    with pytest.raises(CacheFailed):
        of.poll()


def test_memories_of_another_shape_are_refused() -> None:
    """What the caller brings is checked before anything is built on it."""
    config = Config(slots={"gpu": 2, "host": 2}, groups=(Group(page_bytes=8),))
    with pytest.raises(ConfigError, match="asks for"):
        Cache(config, memories=[[HostPool(2, 8)], [HostPool(1, 8)]])
    engine = CpuEngine([[HostPool(2, 8)], [HostPool(2, 8)]])
    assert Cache(config, engine=engine).memory("gpu") is engine.memories[0][0]
    with pytest.raises(ConfigError, match="two that differ"):
        Cache(config, engine=engine, memories=[[HostPool(2, 8)], [HostPool(2, 8)]])


def test_spare_pages_and_mates_count_as_held() -> None:
    """A refusal names whoever keeps pages from going, also behind a gap."""
    of = cache(gpu=2, host=0)
    run(of, "b", "c").close()
    waiting = of.sequence(["a", "b", "c"])

    refused = of.sequence().resume(new=1)

    assert isinstance(refused, OutOfSlots)
    assert [(h.sequence, h.held) for h in refused.holders] == [(waiting.id, 2)]


def test_questions_begin_with_poll_too() -> None:
    """What is available counts slots whose jobs have ended meanwhile."""
    of, engine = late_cache(2, 4)
    run(of, "a", "b").close()
    with engine.failing(at=1, queued=1), pytest.raises(CopyFailed):
        of.sequence().resume(new=2, stream="S")
    assert of.available("host") == 2
    engine.synchronize()

    assert of.available("host") == 4


def test_a_prompt_used_through_twins_is_as_hot_as_any() -> None:
    """The last use of a block counts, whichever of two pages with its content was read."""
    of = cache(gpu=8, host=0)
    first, second = of.sequence(["a", "b"]), of.sequence(["a", "b"])
    for sequence in (first, second):
        assert sequence.resume(new=2)
        sequence.commit(["a", "b"])
    first.close()
    run(of, "x").close()
    second.close()

    assert of.sequence().resume(new=6)

    assert of.sequence(["a", "b"]).matched == 2


def test_a_stopped_cache_lets_its_sequences_go() -> None:
    """Release paths do not fail; each error is fresh."""
    of = cache()
    sequence = run(of, "a")
    of._operations.stop.failure = CacheFailed("a test", ("event",))  # noqa: SLF001

    with pytest.raises(CacheFailed) as one:
        of.sequence()
    with pytest.raises(CacheFailed) as two:
        sequence.slots()
    sequence.close()

    assert one.value is not two.value
    assert (sequence.state, two.value.events) == ("closed", ("event",))
    of.close()


def test_slots_set_aside_make_a_demand_busy_not_impossible() -> None:
    """With a queued copy in the way the answer is what to wait for; nobody holds those slots."""
    of, engine = late_cache(2, 2)
    held = run(of, "a", "b")
    held.suspend()
    other = of.sequence()
    assert other.resume(new=2)
    other.close()
    with engine.failing(at=1, queued=1), pytest.raises(CopyFailed):
        held.resume(stream="S")

    busy = of.sequence().resume(new=1)

    assert isinstance(busy, Busy)
    assert isinstance(of.sequence().resume(new=3), OutOfSlots)
    of.wait(busy.tickets)
    assert of.sequence().resume(new=1)


@pytest.mark.parametrize(
    "act",
    [
        lambda s: s.close(),
        lambda s: s.commit(["k"]),
        lambda s: s.suspend(),
        lambda s: s.trim(1),
        lambda s: s.append(1),
    ],
)
def test_an_observer_cannot_come_between_a_check_and_what_it_is_for(act) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """The poll that begins a call tells its news when the call is over."""
    of, engine = late_cache(3, 4)
    first = of.sequence()
    assert first.resume(new=2)
    first.suspend()
    with engine.failing(at=1, queued=1), pytest.raises(CopyFailed):
        of.sequence().resume(new=3)
    sequence = of.sequence()
    assert sequence.resume(new=1, stream="S")
    engine.synchronize()
    of.subscribe(lambda batch: sequence.close() if batch[0].kind == "readmit" else None)

    act(sequence)

    assert sequence.state == "closed"
    of.poll()


def test_a_table_of_a_stopped_cache_is_refused() -> None:
    """Nothing can be read through a cache that has stopped."""
    of = cache()
    sequence = run(of, "a")
    table = sequence.table()
    of._operations.stop.failure = CacheFailed("a test")  # noqa: SLF001

    with pytest.raises(CacheFailed):
        table.check()
    sequence.close()
    with pytest.raises(StaleHandle):
        table.check()


def test_observers_are_told_of_a_close_when_it_is_over() -> None:
    """Whoever calls a closing cache from its journal finds it closed, and nothing stays in use."""
    of = cache()
    run(of, "a").suspend()
    told: list[str] = []

    def calls_back(batch: Batch) -> None:
        told.extend(record.kind for record in batch)
        of.close()
        of.sequence(["a"])

    of.subscribe(calls_back)
    with pytest.warns(ObserverWarning, match="closed"):
        of.close()

    assert told == ["unhold"]
    assert of._checker.quiescent() == []  # noqa: SLF001


def test_an_interrupted_observer_costs_the_others_nothing() -> None:
    """Ctrl-C while subscribers are told: the rest is told with the next operation."""
    of = cache()
    told: list[str] = []

    def interrupted(_: Batch) -> None:
        raise KeyboardInterrupt

    leave = of.subscribe(interrupted)
    of.subscribe(lambda batch: told.extend(record.kind for record in batch))
    sequence = of.sequence()
    with pytest.raises(KeyboardInterrupt):
        sequence.resume(new=1)
    leave()

    of.poll()

    assert (sequence.state, told) == ("active", ["open"])


def test_an_observers_error_may_be_as_bad_as_it_likes() -> None:
    """An exception that cannot even be printed does not get out."""

    class Bad(Exception):
        def __repr__(self) -> str:
            raise RuntimeError("no")

        __str__ = __repr__

    of = cache()

    def broken(_: Batch) -> None:
        raise Bad

    of.subscribe(broken)
    with pytest.warns(ObserverWarning):
        assert of.sequence().resume(new=1)


def test_a_refused_close_changes_nothing_and_waiting_takes_any_iterable() -> None:
    """The table stays good, and tickets may come from an iterator; statistics tell their news."""
    of, engine = late_cache(2, 2)
    sequence = run(of, "a")
    table = sequence.table()
    with pytest.raises(BadRequest):
        sequence.close(stream=[])
    assert table.check().tolist() == sequence.slots().tolist()
    sequence.close()
    run(of, "b").close()
    with engine.failing(at=1, queued=1), pytest.raises(CopyFailed):
        of.sequence().resume(new=2, stream="S")
    aside = of.stats().events["quarantine"]

    of.wait(iter([0]))

    assert of.stats().events["readmit"] == aside == 2
