"""A cache with a disk, from outside: threads, losses, hung copies, prefetch, steps."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from kvtier import (
    BadRequest,
    Busy,
    Cache,
    Config,
    ConfigError,
    CpuEngine,
    Demand,
    Granted,
    Group,
    OutOfSlots,
    PageLost,
    WrongState,
)
from kvtier.tiers import DiskFile, HostPool
from kvtier_spec import GPU_HOST_DISK, SequenceState

SIZE = 64


class Slow(HostPool):
    """A tier whose copies hang until they are let go."""

    def __init__(self, slots: int, page_bytes: int) -> None:
        super().__init__(slots, page_bytes)
        self.hangs = False
        self.gate = threading.Event()
        self.entered = threading.Event()

    def read(self, slots: Any) -> Any:
        """Read, when it may."""
        if self.hangs:
            self.entered.set()
            self.gate.wait(20)
        return super().read(slots)


def cache(gpu: int, host: int, disk: int, *, tier: Any = DiskFile, **more: Any) -> Cache:
    """A cache with a disk on real threads, whose host is kept clean."""
    settings = {"clean_low": 1.0, "clean_high": 1.0, "cold_policy": "none"} | more
    config = Config(
        slots={"gpu": gpu, "host": host, "disk": disk},
        chain=GPU_HOST_DISK,
        groups=(Group(page_bytes=SIZE),),
        audit=True,
        **settings,
    )
    return Cache(config, tiers={"disk": tier})


def run(of: Cache, keys: str) -> None:
    """Compute what is missing of a prompt, one page a letter, and compare all of it."""
    sequence = of.sequence(list(keys))
    while not (answer := sequence.resume(new=len(keys) - sequence.committed)):
        assert isinstance(answer, Busy), answer
        of.wait(answer.tickets)
    memory, slots, first = of.memory("gpu").array, sequence.slots(), sequence.committed
    memory[slots[first:]] = np.array([ord(key) for key in keys[first:]])[:, None]
    sequence.commit(list(keys[first:]))
    assert "".join(map(chr, memory[slots][:, -1])) == keys
    sequence.close()


def settle(of: Cache) -> None:
    """Wait until nothing is under way."""
    while flights := of.flights():
        of.wait(flights)


def on_disk(of: Cache, keys: str) -> None:
    """Bring a prompt down to the disk, by running others."""
    run(of, keys)
    settle(of)
    for other in ("ABC", "DEF", "GHI"):
        run(of, other)
        settle(of)
    of.poll()
    assert of.sequence(list(keys)).hits["disk"] == len(keys)


def test_pages_go_to_disk_on_threads_and_come_back() -> None:
    """Four prompts through three slots of gpu and host each: all bytes are right, all are hits."""
    with cache(3, 3, 30) as of:
        for keys in ("abc", "def", "ghi", "jkl") * 3:
            run(of, keys)
            settle(of)
        found = of.sequence(list("abc"))

        assert found.matched == 3
        assert of.stats().copied["disk", "gpu"] > 0


def test_a_page_that_reads_wrong_is_a_miss_and_is_told_once() -> None:
    """Other bytes on the disk: PageLost, then the pages are computed anew."""
    files: list[DiskFile] = []

    def file(slots: int, size: int) -> DiskFile:
        files.append(DiskFile(slots, size))
        return files[0]

    with cache(3, 3, 30, tier=file) as of:
        on_disk(of, "abc")
        file_number = files[0]._number()  # noqa: SLF001
        for slot in range(30):
            _flip(file_number, slot * SIZE)
        sequence = of.sequence(list("abc"))
        answer = sequence.resume()
        assert isinstance(answer, Busy)
        of.wait(answer.tickets)

        with pytest.raises(PageLost, match="0 blocks are left"):
            sequence.resume()
        assert sequence.resume(new=3)
        sequence.close()
        run(of, "abc")
        assert of.stats().events["lose"] >= 3


def _flip(number: int, at: int) -> None:
    import os

    byte = os.pread(number, 1, at)
    os.pwrite(number, bytes([byte[0] ^ 1]), at)


def test_a_copy_that_hangs_can_be_given_up() -> None:
    """The sequence is suspended, its page as before; the slot comes back when the copy ends."""
    pools: list[Slow] = []

    def slow(slots: int, size: int) -> Slow:
        pools.append(Slow(slots, size))
        return pools[0]

    with cache(3, 3, 30, tier=slow) as of:
        on_disk(of, "abc")
        sequence = of.sequence(list("abc"))
        pools[0].hangs = True
        answer = sequence.resume()
        assert isinstance(answer, Busy)
        assert sequence.state is SequenceState.RESUMING
        assert pools[0].entered.wait(20)

        of.give_up(answer.tickets)

        assert sequence.state is SequenceState.SUSPENDED
        assert of.available("gpu") == 0
        assert isinstance(of.sequence().resume(new=3), Busy)
        pools[0].hangs = False
        pools[0].gate.set()
        of.wait(answer.tickets)
        assert of.available("gpu") == 3
        run(of, "abc")


def test_closing_does_not_wait_for_a_copy_that_was_given_up() -> None:
    """A thread that hangs keeps its memory, with a warning; close() returns."""
    pools: list[Slow] = []

    def slow(slots: int, size: int) -> Slow:
        pools.append(Slow(slots, size))
        return pools[0]

    of = cache(3, 3, 30, tier=slow)
    on_disk(of, "abc")
    pools[0].hangs = True
    answer = of.sequence(list("abc")).resume()
    assert isinstance(answer, Busy)
    assert pools[0].entered.wait(20)
    of.give_up(answer.tickets)

    with pytest.warns(ResourceWarning, match="hangs"):
        of.close()

    pools[0].gate.set()


def test_a_step_begins_what_is_cold_and_does_nothing_else_before() -> None:
    """Busy until the pages are there; then all of the step at once."""
    with cache(4, 4, 30) as of:
        on_disk(of, "abc")
        cold, warm = of.sequence(list("abc")), of.sequence()
        answer = of.step([Demand(cold), Demand(warm, new=1)])
        assert isinstance(answer, Busy)
        assert (cold.state, warm.state) == (SequenceState.RESUMING, SequenceState.SUSPENDED)
        of.wait(answer.tickets)

        assert of.step([Demand(cold), Demand(warm, new=1)])

        assert cold.state is warm.state is SequenceState.ACTIVE


def test_a_resume_goes_on_with_what_it_asked_for() -> None:
    """Asked again with another number it is refused; given up, it may ask for another."""
    with cache(4, 4, 30) as of:
        on_disk(of, "abc")
        sequence = of.sequence(list("abc"))
        assert isinstance(sequence.resume(new=1), Busy)

        with pytest.raises(BadRequest, match="resuming with 1 new pages"):
            sequence.resume(new=0)
        with pytest.raises(WrongState, match="until it is granted"):
            sequence.slots()
        sequence.suspend()
        settle(of)

        assert sequence.resume(new=0)


def test_a_prefetch_brings_pages_up_and_spares_what_others_hold() -> None:
    """Pages come to host or gpu as far as there is room; held ones of others stay."""
    with cache(3, 3, 30) as of:
        on_disk(of, "abc")
        sequence = of.sequence(list("abc"))

        of.wait(sequence.prefetch("host"))
        assert of.primaries()["a"] == "host"
        of.wait(sequence.prefetch("gpu"))
        assert [of.primaries()[key] for key in "abc"] == ["gpu"] * 3
        assert sequence.resume()

        other = of.sequence(list("ABC"))
        assert other.prefetch("gpu") == ()
        with pytest.raises(BadRequest, match="no tier 'tape'"):
            other.prefetch("tape")
        with pytest.raises(WrongState, match="for suspended sequences"):
            sequence.prefetch("gpu")


def test_one_full_group_refuses_the_demand_by_name() -> None:
    """All or nothing over groups: nothing of the other group is taken."""
    config = Config(
        slots={"gpu": {"full": 8, "state": 2}, "host": 0},
        groups=(Group("full", 64), Group("state", 32, window=1)),
    )
    with Cache(config) as of:
        answer = of.sequence().resume(new=3)

        assert isinstance(answer, OutOfSlots)
        assert (answer.tier, answer.group, answer.available) == ("gpu", "state", 2)
        assert of.available("gpu", group=0) == 8


def test_windows_have_their_pages_where_the_sequence_says() -> None:
    """After commits the first page of a window group is that of a later block."""
    config = Config(
        slots={"gpu": 8, "host": 8},
        groups=(Group("full", 64), Group("swa", 32, window=2), Group("state", 16, window=1)),
    )
    with Cache(config) as of:
        sequence = of.sequence()
        assert sequence.resume(new=4)
        table = sequence.table(1)
        sequence.commit(["a", "b", "c"])

        assert [sequence.first(group) for group in range(3)] == [0, 1, 2]
        assert [len(sequence.slots(group)) for group in range(3)] == [4, 3, 2]
        with pytest.raises(Exception, match="given slots back"):
            table.check()


def test_a_resize_takes_groups_by_name_and_refuses_adopted_memory() -> None:
    """Slots per group; adopted memory has an owner who knows its address."""
    import torch

    from kvtier.tiers import DevicePool

    tensor = torch.zeros((4, SIZE), dtype=torch.uint8)
    config = Config(slots={"gpu": 4, "host": 2}, groups=(Group(page_bytes=SIZE),))
    memories = [[DevicePool(4, SIZE, tensor=tensor)], [HostPool(2, SIZE)]]
    with Cache(config, memories=memories) as of:
        with pytest.raises(BadRequest, match="cannot be resized"):
            of.resize("gpu", 5)
        with pytest.raises(BadRequest, match="the groups are"):
            of.resize("host", {"other": 5})
        with pytest.raises(BadRequest, match="give 1 or more"):
            of.resize("gpu", 0)

        assert isinstance(of.resize("host", {"full": 5}), Granted)

        assert of.memory("host").array.shape == (5, SIZE)
        assert of.available("host") == 5


def test_a_memory_that_cannot_grow_leaves_all_groups_as_they_were() -> None:
    """The second group's memory has no room: nothing was resized, and the cache goes on."""

    class Full(HostPool):
        def resize(self, slots: int) -> None:
            if slots > self.shape[0]:
                raise MemoryError
            super().resize(slots)

    groups = (Group("a", 8), Group("b", 8))
    memories = [[HostPool(2, 8), HostPool(2, 8)], [HostPool(2, 8), Full(2, 8)]]
    config = Config(slots={"gpu": 2, "host": 2}, groups=groups)
    with Cache(config, engine=CpuEngine(memories)) as of:
        with pytest.raises(ConfigError, match="no room for more slots of host"):
            of.resize("host", 4)

        assert [memory.shape[0] for memory in memories[1]] == [2, 2]
        assert of.available("host") == 2
        assert of.sequence().resume(new=2)
