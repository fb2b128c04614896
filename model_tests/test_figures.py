"""Exact figures: the store, really run, reaches the counts of an independent simulator."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from kvtier.bench.figures import figures
from kvtier.replay import Mismatch, Replay, Sizes, content
from kvtier.trace import Request, extract, load

DATA = Path(__file__).parent / "data" / "extract_figures.csv"
ROWS = list(csv.DictReader(DATA.read_text().splitlines()))
"""Counts that the simulator gives for the trace that ships with kvtier, in several sizes."""


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r['gpu']}-{r['host']}-{r['mode']}")
def test_the_extract_gives_the_simulators_counts(row: dict[str, str]) -> None:
    """Hits by tier, recomputed pages and copies both ways equal the simulator's, to the page."""
    sizes = Sizes(window=int(row["window"]), gpu=int(row["gpu"]), host=int(row["host"]))

    counts = Replay(load(extract()), sizes, row["mode"], moves_bytes=False).run()

    found = {name: str(getattr(counts, name)) for name in row if name in counts.as_dict()}
    assert found == {name: row[name] for name in found}


def test_every_page_is_read_back_and_the_journal_is_legal() -> None:
    """With real bytes and the auditor on, the main job runs clean and reads what it should."""
    requests = load(extract(), limit=120)
    run = Replay(
        requests, Sizes(window=3, gpu=300, host=400, page_bytes=24), "page_first", audit=True
    )

    counts = run.run()

    assert counts.verified_pages == counts.pages > 10_000
    assert counts.saved_pages > 0


def test_a_page_with_other_bytes_fails_the_run() -> None:
    """A replay notices a single wrong byte of a page that it hits."""
    requests = load(extract(), limit=1)
    run = Replay(requests, Sizes(window=1, gpu=300, host=300, page_bytes=16), "exclusive")
    run.request(requests[0])
    run.cache.memory("gpu").array[:, 3] ^= 1

    with pytest.raises(Mismatch, match="holds other bytes"):
        run.request(requests[0])


def test_contents_of_different_keys_differ() -> None:
    """Content tells keys apart, so that a comparison of bytes can fail."""
    rows = content(range(1000), 16)

    assert len({row.tobytes() for row in rows}) == 1000


def test_all_rows_of_the_table_are_known() -> None:
    """The table has its 68 rows; those without a disk, in the modes that run, are 32."""
    rows = figures()

    assert len(rows) == 68
    assert sum(not row.unsupported for row in rows) == 32


def test_ids_that_are_no_prefixes_do_not_stop_a_replay() -> None:
    """A request that leaves itself no room is rejected; negative ids are names like others."""
    requests = [Request((-1, 2), 0), Request((-3, 2), 0), Request((-1, 2), 0)]
    run = Replay(requests, Sizes(window=1, gpu=2, host=0, page_bytes=8), "exclusive", audit=True)

    counts = run.run()

    assert (counts.requests, counts.rejected, counts.gpu_hits) == (2, 1, 2)
