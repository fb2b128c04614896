"""Every tier's memory passes the same tests; what only the disk does has its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvtier import CacheClosed, Config, ConfigError
from kvtier.memories import make_memories
from kvtier.tiers import DevicePool, DiskFile, HostPool, Memory
from kvtier_spec import GPU_HOST_DISK, GPU_HOST_DISK_REMOTE
from model_tests.test_extension import Remote

POOLS: list[Callable[[int, int], Memory]] = [HostPool, DevicePool, DiskFile, Remote]


def rows(*values: int, size: int = 24) -> Any:
    """Pages of so many bytes, each filled with one value."""
    return np.array(values, np.uint8)[:, None].repeat(size, axis=1)


@pytest.mark.parametrize("pool", POOLS)
def test_a_slot_gives_back_what_was_written(pool: Callable[[int, int], Memory]) -> None:
    """Slots are independent, in any order, and overwritten whole."""
    memory = pool(5, 24)
    memory.write(np.array([4, 0, 2]), rows(1, 2, 3))
    memory.write(np.array([0]), rows(9))

    found = memory.read(np.array([2, 4, 0]))

    assert tuple(memory.shape) == (5, 24)
    assert np.array_equal(found, rows(3, 1, 9))
    memory.close()
    memory.close()


@pytest.mark.parametrize("pool", [HostPool, DevicePool, DiskFile])
def test_resizing_keeps_the_first_slots(pool: Callable[[int, int], Memory]) -> None:
    """Grown and shrunk, slots that stay keep their bytes."""
    memory = pool(2, 24)
    memory.write(np.array([0, 1]), rows(7, 8))

    memory.resize(4)
    memory.write(np.array([3]), rows(5))
    memory.resize(1)

    assert memory.is_resizable
    assert tuple(memory.shape) == (1, 24)
    assert np.array_equal(memory.read(np.array([0])), rows(7))
    memory.close()


def test_memory_says_whether_it_can_be_resized() -> None:
    """Adopted memory and a class without resize() cannot, and say so."""
    import torch

    adopted = DevicePool(2, 8, tensor=torch.zeros((2, 8), dtype=torch.uint8))

    for memory in (adopted, Remote(2, 8)):
        assert not memory.is_resizable
        with pytest.raises(ConfigError, match="cannot be resized"):
            memory.resize(3)


def test_a_flipped_bit_on_disk_is_an_error() -> None:
    """What is read is what was written, or it is an OSError; other slots are not affected."""
    disk = DiskFile(3, 24)
    disk.write(np.array([0, 1]), rows(1, 2))
    number = disk._number()  # noqa: SLF001
    os.pwrite(number, bytes([os.pread(number, 1, 30)[0] ^ 4]), 30)

    with pytest.raises(OSError, match="slot 1"):
        disk.read(np.array([1]))
    assert np.array_equal(disk.read(np.array([0])), rows(1))
    disk.close()


def test_a_short_file_and_a_slot_never_written_are_errors() -> None:
    """A file that was cut, and a slot without content, cannot be read."""
    disk = DiskFile(3, 24)
    disk.write(np.array([2]), rows(1))
    os.ftruncate(disk._number(), 60)  # noqa: SLF001

    for slot in (0, 2):
        with pytest.raises(OSError, match=f"slot {slot}"):
            disk.read(np.array([slot]))
    disk.close()


def test_a_disk_forgets_what_is_not_kept() -> None:
    """After a reset only the slots in use can be read."""
    disk = DiskFile(3, 24)
    disk.write(np.array([0, 1, 2]), rows(1, 2, 3))

    disk.invalidate(np.array([1]))

    assert np.array_equal(disk.read(np.array([1])), rows(2))
    with pytest.raises(OSError, match="slot 0"):
        disk.read(np.array([0]))
    disk.close()
    with pytest.raises(CacheClosed):
        disk.read(np.array([1]))


def test_a_disk_that_has_no_room_is_refused(tmp_path: Path) -> None:
    """A file that cannot be made is one clear error, and leaves nothing open."""
    with pytest.raises(ConfigError, match="no room on disk"):
        DiskFile(2, 24, folder=tmp_path / "no such folder")


def test_many_threads_read_and_write_different_slots() -> None:
    """Slots can be used from several threads at once."""
    disk = DiskFile(64, 512)
    wrong: list[int] = []

    def work(slot: int) -> None:
        for value in range(20):
            disk.write(np.array([slot]), rows(value, size=512))
            if not np.array_equal(disk.read(np.array([slot])), rows(value, size=512)):
                wrong.append(slot)

    threads = [threading.Thread(target=work, args=(slot,)) for slot in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    disk.close()


def test_a_disk_may_be_written_while_it_is_invalidated() -> None:
    """Slots that are kept stay readable, whatever is written meanwhile."""
    disk = DiskFile(64, 24)
    kept = np.arange(64)
    stop = threading.Event()

    def write(first: int) -> None:
        while not stop.is_set():
            for slot in range(first, 64, 4):
                disk.write(np.array([slot]), rows(slot, size=24))

    threads = [threading.Thread(target=write, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        disk.invalidate(kept)
    stop.set()
    for thread in threads:
        thread.join()

    assert len(disk.read(kept)) == 64
    disk.close()


def test_tiers_are_made_by_their_classes() -> None:
    """Host memory and a file by default; any other tier must be given; nothing is left open."""
    slots = {"gpu": 1, "host": 2, "disk": 3}
    gpu, host, disk = make_memories(Config(slots=slots, chain=GPU_HOST_DISK), {})
    assert [type(tier[0]) for tier in (gpu, host, disk)] == [HostPool, HostPool, DiskFile]
    disk[0].close()

    four = Config(slots=slots | {"remote": 4}, chain=GPU_HOST_DISK_REMOTE)
    with pytest.raises(ConfigError, match="no memory is known for tier 'remote'"):
        make_memories(four, {})
    with pytest.raises(ConfigError, match="the chain has"):
        make_memories(four, {"tape": Remote})
    every = make_memories(four, {"remote": Remote})
    assert isinstance(every[3][0], Remote)
    every[2][0].close()
