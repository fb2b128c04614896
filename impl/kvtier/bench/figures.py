"""Exact figures: replays whose counts an independent simulator gave, to be reached to the page.

The rows stand in `data/figures.csv`. Those that need a tier or a policy that this version does not
run are listed as such, and never as equal.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from kvtier.policy import POLICIES
from kvtier.replay import Counts, Modes, Replay, Sizes
from kvtier.trace import Request, load
from kvtier_spec import GPU_HOST, GPU_HOST_DISK

COUNTED = (
    "gpu_hits",
    "host_hits",
    "disk_hits",
    "computed",
    "d2h_pages",
    "h2d_pages",
    "saved_pages",
    "disk_write_pages",
    "disk_read_pages",
    "disk_saved_pages",
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: what is replayed, and the counts that must come out."""

    trace: str
    window: int
    gpu: int
    host: int
    disk: int
    mode: str
    disk_shadows: str
    expected: dict[str, int] = field(hash=False)

    @property
    def unsupported(self) -> str:
        """Say why this version cannot run the row; empty if it can."""
        return "" if self.mode in POLICIES else f"needs the policy {self.mode}"

    def run(self, requests: list[Request], tick: Callable[[int], object]) -> Counts:
        """Replay the row on the null engine."""
        slots = {"gpu": self.gpu, "host": self.host}
        chain = GPU_HOST_DISK if self.disk else GPU_HOST
        if self.disk:
            slots["disk"] = self.disk
        modes = Modes(policy=self.mode, cold_policy=self.disk_shadows or "none")
        sizes = Sizes(window=self.window, slots=slots)
        return Replay(requests, sizes, modes, chain, moves_bytes=False).run(tick)

    def differences(self, counts: Counts) -> dict[str, tuple[int, int]]:
        """Give the counts that differ, as (expected, found)."""
        pairs = {name: (self.expected[name], getattr(counts, name)) for name in COUNTED}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def figures() -> list[Figure]:
    """Read all rows."""
    text = (resources.files("kvtier") / "data" / "figures.csv").read_text()
    return [
        Figure(
            row["trace"],
            int(row["window"]),
            int(row["gpu"]),
            int(row["host"]),
            int(row["disk"]),
            row["mode"],
            row["disk_shadows"],
            {name: int(row[name]) for name in COUNTED},
        )
        for row in csv.DictReader(text.splitlines())
    ]


def find_trace(folder: Path, name: str) -> Path | None:
    """Find a trace by its name in a folder, compressed or not."""
    for suffix in (".jsonl.xz", ".jsonl.gz", ".jsonl"):
        if (folder / f"{name}{suffix}").is_file():
            return folder / f"{name}{suffix}"
    return None


def run_all(
    folder: Path, tick: Callable[[int], object] = lambda _: None
) -> Iterator[tuple[Figure, Counts | None]]:
    """Replay every row whose trace is in the folder; None for rows that cannot be run."""
    name, requests = "", list[Request]()
    for figure in figures():
        path = find_trace(folder, figure.trace)
        if path is None or figure.unsupported:
            yield figure, None
            continue
        if figure.trace != name:
            name, requests = figure.trace, load(path)
        yield figure, figure.run(requests, tick)
