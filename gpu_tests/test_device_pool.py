"""The device pool on a real GPU: bytes survive eviction and recall, audited by the spec."""

from __future__ import annotations

import numpy as np
import pytest

from kvtier import Cache, Config, Group
from kvtier.replay import Modes, Replay, Sizes, content
from kvtier.tiers import DevicePool, HostPool
from kvtier.trace import extract, load
from kvtier_spec import GPU_HOST_DISK

torch = pytest.importorskip("torch", reason="no torch: install kvtier[cuda]")
if not torch.cuda.is_available():
    pytest.skip("no GPU on this machine", allow_module_level=True)


def cache(gpu: int, host: int, page_bytes: int) -> Cache:
    """A cache whose first tier is GPU memory; copies go through the cpu engine."""
    config = Config(
        slots={"gpu": gpu, "host": host}, audit=True, groups=(Group(page_bytes=page_bytes),)
    )
    memories = [
        [DevicePool(gpu, page_bytes, device="cuda")],
        [HostPool(host, page_bytes)],
    ]
    return Cache(config, memories=memories)


@pytest.mark.parametrize("page_bytes", [4096, 12_345, 1 << 20])
def test_bytes_survive_eviction_and_recall(page_bytes: int) -> None:
    """What was written on the GPU comes back from the host as it was."""
    of = cache(4, 8, page_bytes)
    keys = list(range(4))
    sequence = of.sequence(keys)
    assert sequence.resume(new=4)
    of.memory("gpu").write(sequence.slots(), content(keys, page_bytes))
    sequence.commit(keys)
    sequence.suspend()
    other = of.sequence()
    assert other.resume(new=4)
    of.memory("gpu").write(other.slots(), np.full((4, page_bytes), 9, np.uint8))
    other.close()

    assert sequence.resume()

    found = of.memory("gpu").read(sequence.slots())
    assert np.array_equal(found, content(keys, page_bytes))


def test_pages_come_from_disk_to_the_gpu_on_threads() -> None:
    """Three tiers, real threads: down to the disk, up again, and every byte as it was."""
    slots, size = {"gpu": 6, "host": 6, "disk": 60}, 65_536
    config = Config(
        slots=slots,
        chain=GPU_HOST_DISK,
        groups=(Group(page_bytes=size),),
        cold_policy="none",
        clean_low=1,
        clean_high=1,
        audit=True,
    )
    tiers = {"gpu": lambda count, bytes_: DevicePool(count, bytes_, device="cuda")}
    with Cache(config, tiers=tiers) as of:
        prompts = [list(range(first, first + 6)) for first in range(0, 48, 6)]
        for keys in prompts * 2:
            sequence = of.sequence(keys)
            while not (answer := sequence.resume(new=6 - sequence.committed)):
                of.wait(answer.tickets)
            fresh = keys[sequence.committed :]
            memory, first = of.memory("gpu"), sequence.committed
            memory.write(sequence.slots()[first:], content(fresh, size))
            sequence.commit(fresh)
            assert np.array_equal(memory.read(sequence.slots()), content(keys, size))
            sequence.close()
            of.wait(of.flights())
        assert of.stats().copied["disk", "gpu"] == 48
        assert of.resize("gpu", 8)
        assert of.memory("gpu").tensor.shape == (8, size)


def test_the_main_job_runs_on_a_gpu_and_every_page_is_right() -> None:
    """A real trace, GPU memory as the first tier: the same counts, every page compared."""
    requests, sizes = load(extract(), limit=200), Sizes(window=3, slots={"gpu": 400, "host": 600})
    run = Replay(requests, sizes, Modes(policy="shadow_first"))
    run.cache = cache(*sizes.slots.values(), sizes.page_bytes)

    counts = run.run()

    books = Replay(requests, sizes, Modes(policy="shadow_first"), moves_bytes=False).run()
    assert counts.verified_pages == counts.pages
    assert (counts.d2h_pages, counts.saved_pages) == (books.d2h_pages, books.saved_pages)
