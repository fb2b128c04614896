"""Conformance: what every engine, memory, pool and order must do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtier import ConfigError, CpuEngine, NullEngine
from kvtier.order import Order
from kvtier.pages import Page
from kvtier.slots import SlotPool
from kvtier.tiers import DevicePool, HostPool, Memory
from kvtier.transfer import CALLER, OFFLOAD, RECALL, Copies, CopyFault, CopyRefused, Engine
from kvtier_spec import SlotState

torch = pytest.importorskip("torch", reason="torch comes with the extra 'test'")


def memories() -> list[list[HostPool]]:
    """Two tiers of four slots of four bytes."""
    return [[HostPool(4, 4)], [HostPool(4, 4)]]


def copies(lane: int, sources: list[int], targets: list[int], *, up: bool = False) -> Copies:
    """A submission between the two tiers."""
    ends = (1, 0) if up else (0, 1)
    return Copies(lane, 0, *ends, np.array(sources), np.array(targets))


ENGINES: list[Callable[[], Engine]] = [
    lambda: NullEngine([4]),
    lambda: CpuEngine(memories()),
    lambda: CpuEngine(memories(), is_manual=True),
]


@pytest.mark.parametrize("make", ENGINES)
def test_every_engine_numbers_and_counts_its_work(make: Callable[[], Engine]) -> None:
    """Fences go up in each lane, all pass at a synchronisation, bytes are counted."""
    engine = make()
    first = engine.submit(copies(OFFLOAD, [0, 1], [1, 2]), {})
    second = engine.submit(copies(OFFLOAD, [2], [3]), {})
    recall = engine.submit(copies(RECALL, [1], [0], up=True), dict([second]))

    assert first[0] == second[0] == OFFLOAD
    assert second[1] > first[1]
    engine.synchronize()
    assert all(engine.is_done(fence) for fence in (first, second, recall))
    assert engine.copied()[0, 1] == 12
    assert engine.lane(None) == CALLER
    assert engine.lane("a") != engine.lane("b")
    assert engine.lane("a") == engine.lane("a")
    engine.wait(CALLER, dict([recall]))
    engine.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: HostPool(5, 6),
        lambda: DevicePool(5, 6),
        lambda: DevicePool(5, 6, tensor=torch.zeros((5, 3), dtype=torch.float16)),
    ],
)
def test_every_memory_reads_what_was_written(make: Callable[[], Memory]) -> None:
    """Slots are independent and hold their bytes; reading gives a copy."""
    memory = make()
    data = np.arange(12, dtype=np.uint8).reshape(2, 6)

    memory.write(np.array([3, 1]), data)
    found = memory.read(np.array([1, 3, 0]))

    assert memory.shape == (5, 6)
    assert found.tolist() == [data[1].tolist(), data[0].tolist(), [0] * 6]
    found[:] = 9
    assert memory.read(np.array([0])).tolist() == [[0] * 6]
    memory.close()
    memory.close()


def test_an_adopted_tensor_is_used_in_place_and_left_alone() -> None:
    """A runtime's own memory is written in place, and still there after close."""
    tensor = torch.zeros((3, 2), dtype=torch.int32)
    pool = DevicePool(3, 8, tensor=tensor)
    pool.write(np.array([2]), np.full((1, 8), 1, np.uint8))
    pool.close()

    assert tensor[2].tolist() == [0x01010101] * 2
    with pytest.raises(ConfigError, match="adopted tensor has 3 slots"):
        DevicePool(4, 8, tensor=tensor)
    with pytest.raises(ConfigError, match="contiguous"):
        DevicePool(2, 12, tensor=tensor.t())


def test_a_late_copy_waits_for_its_fences_and_reads_at_its_start() -> None:
    """Nothing runs before `pump`; a lane whose first job waits is not runnable."""
    tiers = memories()
    engine = CpuEngine(tiers, is_manual=True)
    down = engine.submit(copies(OFFLOAD, [0], [0]), {})
    engine.submit(copies(RECALL, [0], [3], up=True), dict([down]))
    tiers[0][0].array[0] = 7

    assert engine.runnable() == [OFFLOAD]
    assert not engine.pump(RECALL)
    assert engine.pump(OFFLOAD)
    assert engine.pump(RECALL)
    assert tiers[0][0].array[3].tolist() == [7] * 4


def test_failure_is_an_argument_of_the_call() -> None:
    """The chosen submission fails, half queued or not at all; others do not."""
    engine = CpuEngine(memories(), is_manual=True)
    with engine.failing(at=2, queued=1):
        engine.submit(copies(OFFLOAD, [0], [0]), {})
        with pytest.raises(CopyFault) as fault:
            engine.submit(copies(OFFLOAD, [1, 2], [1, 2]), {})
        engine.submit(copies(OFFLOAD, [3], [3]), {})
    with engine.failing(at=1), pytest.raises(CopyRefused):
        engine.submit(copies(OFFLOAD, [1], [1]), {})

    assert fault.value.queued == 1
    engine.synchronize()
    assert engine.copied()[0, 1] == 8


def test_a_slot_hands_its_fences_to_the_next_owner() -> None:
    """Releasing a slot does not forget who reads and writes it."""
    pool = SlotPool(2)
    slots = pool.take(1)
    pool.note_write(slots, (1, 5))
    pool.note_read(slots, (2, 7))
    pool.note_read(slots, (2, 6))
    pool.give(slots)
    again = pool.take(2)

    assert pool.fences_to_read(again) == {1: 5}
    assert pool.fences_to_write(again) == {1: 5, 2: 7}


def test_a_slot_cannot_be_given_twice() -> None:
    """A double release is an assertion, not a corrupt pool."""
    pool = SlotPool(2)
    slots = pool.take(1)
    pool.give(slots)

    with pytest.raises(AssertionError, match="not owned"):
        pool.give(slots)
    pool.check()


def test_quarantine_and_readmission() -> None:
    """A slot set aside is not free, keeps its generation, and comes back once."""
    pool = SlotPool(1)
    slots = pool.take(1)
    pool.quarantine(slots)
    assert (pool.free, pool.states()) == (0, (SlotState.QUARANTINED,))
    pool.readmit(slots)
    assert pool.free == 1
    with pytest.raises(AssertionError):
        pool.readmit(slots)


@given(
    st.lists(st.tuples(st.sampled_from(["push", "remove", "park", "unpark"]), st.integers(0, 5)))
)
def test_an_order_is_a_list_with_places(moves: list[tuple[str, int]]) -> None:
    """Parked pages come back between the same neighbours; all else is an LRU list."""
    pages = [Page(number, 0, [None, None]) for number in range(6)]
    order = Order()
    model: list[tuple[Page, bool]] = []  # every page with a place, and whether it is parked
    for move, number in moves:
        page = pages[number]
        standing = (page, False) in model
        if move == "push" and not standing and (page, True) not in model:
            order.push(page)
            model.append((page, False))
        elif move == "remove" and standing:
            order.remove(page)
            model.remove((page, False))
        elif move == "park" and standing:
            order.park(page)
            model[model.index((page, False))] = (page, True)
        elif move == "unpark" and (page, True) in model:
            order.unpark(page)
            model[model.index((page, True))] = (page, False)

        visible = [p for p, parked in model if not parked]
        assert list(order) == visible
        assert list(reversed(order)) == visible[::-1]
        assert len(order) == len(visible)
        assert all((p in order) == (p in visible) for p in pages)
