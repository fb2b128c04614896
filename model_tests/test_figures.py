"""Exact figures: the store, really run, reaches the counts of an independent simulator."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from kvtier.bench.figures import figures
from kvtier.replay import Mismatch, Modes, Replay, Sizes, content
from kvtier.trace import Request, extract, load
from kvtier_spec import GPU_HOST, GPU_HOST_DISK

DATA = Path(__file__).parent / "data" / "extract_figures.csv"
ROWS = list(csv.DictReader(DATA.read_text().splitlines()))
"""Counts that the simulator gives for the trace that ships with kvtier, in several sizes."""


def sizes(window: int, page_bytes: int = 4096, **slots: int) -> Sizes:
    """Sizes of tiers by name."""
    return Sizes(window=window, slots=slots, page_bytes=page_bytes)


def _name(row: dict[str, str]) -> str:
    return "-".join(row[part] for part in ("gpu", "host", "disk", "mode", "disk_shadows"))


@pytest.mark.parametrize("row", ROWS, ids=_name)
def test_the_extract_gives_the_simulators_counts(row: dict[str, str]) -> None:
    """Hits by tier, recomputed pages and copies equal the simulator's, to the page."""
    tiers = ("gpu", "host", "disk") if int(row["disk"]) else ("gpu", "host")
    slots = {tier: int(row[tier]) for tier in tiers}
    chain = GPU_HOST_DISK if "disk" in slots else GPU_HOST
    modes = Modes(policy=row["mode"], cold_policy=row["disk_shadows"])

    counts = Replay(
        load(extract()), sizes(int(row["window"]), **slots), modes, chain, moves_bytes=False
    ).run()

    found = {name: str(getattr(counts, name)) for name in row if name in counts.as_dict()}
    assert found == {name: row[name] for name in found} | {"mode": counts.mode}


@pytest.mark.parametrize("demote", ["on_demand", "ahead"])
def test_every_page_is_read_back_and_the_journal_is_legal(demote: str) -> None:
    """With real bytes on three tiers and the auditor on, the main job reads what it should."""
    requests = load(extract(), limit=120)
    modes = Modes(policy="page_first", cold_policy="shadow_first", demote=demote)
    run = Replay(
        requests,
        sizes(3, 24, gpu=300, host=200, disk=900),
        modes,
        GPU_HOST_DISK,
        audit=True,
    )

    counts = run.run()

    assert counts.verified_pages == counts.pages > 10_000
    assert counts.saved_pages > 0
    assert counts.disk_write_pages > 0
    assert counts.lost_pages == 0


def test_a_page_with_other_bytes_fails_the_run() -> None:
    """A replay notices a single wrong byte of a page that it hits."""
    requests = load(extract(), limit=1)
    run = Replay(requests, sizes(1, 16, gpu=300, host=300), Modes(policy="exclusive"))
    run.request(requests[0])
    run.cache.memory("gpu").array[:, 3] ^= 1

    with pytest.raises(Mismatch, match="holds other bytes"):
        run.request(requests[0])


def test_contents_of_different_keys_differ() -> None:
    """Content tells keys apart, so that a comparison of bytes can fail."""
    rows = content(range(1000), 16)

    assert len({row.tobytes() for row in rows}) == 1000


def test_all_rows_of_the_table_are_known() -> None:
    """The table has its 68 rows, 20 of them with a disk, and all can be run."""
    rows = figures()

    assert len(rows) == 68
    assert sum(row.disk > 0 for row in rows) == 20
    assert [row for row in rows if row.unsupported] == []


def test_ids_that_are_no_prefixes_do_not_stop_a_replay() -> None:
    """A request that leaves itself no room is rejected; negative ids are names like others."""
    requests = [Request((-1, 2), 0), Request((-3, 2), 0), Request((-1, 2), 0)]
    run = Replay(requests, sizes(1, 8, gpu=2, host=0), Modes(policy="exclusive"), audit=True)

    counts = run.run()

    assert (counts.requests, counts.rejected, counts.gpu_hits) == (2, 1, 2)
