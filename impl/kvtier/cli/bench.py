"""`kvtier bench`: what the book-keeping costs, and the exact figures."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from kvtier.bench import bookkeeping as bursts
from kvtier.bench.figures import Figure, find_trace, run_all
from kvtier.bench.figures import figures as all_figures
from kvtier.bench.inclusion import FREE, Compared, compare
from kvtier.cli.output import console, print_table, progress
from kvtier.replay import Counts, Sizes
from kvtier.trace import load


@click.group()
def bench() -> None:
    """Measure."""


@bench.command()
@click.option("--rounds", default=bursts.ROUNDS, show_default=True, type=click.IntRange(min=1))
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
def bookkeeping(rounds: int, as_json: bool) -> None:
    """Time the book-keeping a page moved: null engine, one subscriber, checker off."""
    found = bursts.measure(rounds)
    if as_json:
        click.echo(json.dumps([asdict(burst) for burst in found], indent=2))
        return
    base = found[0].us_min
    rows = [
        [b.name, str(b.pages), f"{b.us_min:.2f}", f"{b.us_median:.2f}", f"{b.us_min / base:.1f}"]
        for b in found
    ]
    columns = ("burst", "pages moved", "µs a page, fastest", "median", "x baseline")
    print_table(f"book-keeping, {rounds} rounds of {bursts.BURST_PAGES} pages", columns, rows)


@bench.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
def figures(folder: Path) -> None:
    """Replay every row of the exact figures for the traces found in FOLDER: equal or not."""
    rows, differ = [], 0
    with progress() as bar:
        task = bar.add_task("figures", total=None)
        for figure, counts in run_all(folder):
            verdict = _verdict(folder, figure, counts)
            differ += verdict.startswith("DIFFERS")
            rows.append([figure.trace, *_sizes(figure), figure.mode, verdict])
            bar.update(task, advance=1)
    columns = ("trace", "window", "gpu", "host", "disk", "mode", "counts")
    print_table("exact figures", columns, rows)
    equal = sum(row[-1] == "equal" for row in rows)
    console.print(f"{equal} equal, {differ} differ, {len(rows) - equal - differ} not run")
    sys.exit(1 if differ or not equal else 0)


def _sizes(figure: Figure) -> list[str]:
    return [str(figure.window), str(figure.gpu), str(figure.host), str(figure.disk)]


def _verdict(folder: Path, figure: Figure, counts: Counts | None) -> str:
    if counts is None:
        missing = find_trace(folder, figure.trace) is None
        return "not run: no trace" if missing else f"not run: {figure.unsupported}"
    differences = figure.differences(counts)
    pairs = ", ".join(f"{name} {found}, not {want}" for name, (want, found) in differences.items())
    return f"DIFFERS: {pairs}" if differences else "equal"


@bench.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
def inclusion(folder: Path) -> None:
    """Show T1 on every trace of the exact figures found in FOLDER: inclusion can be free.

    Exclusive against shadow_first in both orders: the same hits and the same primaries after every
    request.
    """
    scopes = {(f.trace, f.window, f.gpu, f.host) for f in all_figures() if not f.disk}
    rows = []
    with progress() as bar:
        for trace, window, gpu, host in sorted(scopes):
            path = find_trace(folder, trace)
            if path is None:
                continue
            requests, sizes = load(path), Sizes(window=window, slots={"gpu": gpu, "host": host})
            for mode in FREE:
                task = bar.add_task(f"{trace} {mode}", total=len(requests))
                done = compare(requests, sizes, mode, lambda n, t=task: bar.update(t, completed=n))  # type: ignore[misc]
                rows.append([trace, str(gpu), str(host), mode, *_compared(done)])
    columns = ("trace", "gpu", "host", "against exclusive", "requests", "places compared", "")
    print_table("T1: the same hits and primaries after every request", columns, rows)
    sys.exit(0 if rows else 1)


def _compared(done: Compared) -> list[str]:
    return [f"{done.requests:,}", f"{done.places:,}", "equal"]
