"""`kvtier replay`: a request trace through several modes, side by side."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kvtier.cli.output import console, print_table, progress
from kvtier.errors import BadRequest
from kvtier.plot import check_target, plot_replays
from kvtier.policy import POLICIES
from kvtier.replay import Counts, Replay, Sizes
from kvtier.trace import extract, load

DEFAULT_MODES = "exclusive,page_first,shadow_first"
EXTRACT_SIZES = {"window": 3, "gpu": 512, "host": 1024}
"""Sizes that show the effect on the trace that ships with the package."""

MIB = 1 << 20


def _modes(_: click.Context, __: click.Parameter, value: str) -> list[str]:
    modes = [mode.strip() for mode in value.split(",") if mode.strip()]
    for mode in modes:
        if mode not in POLICIES:
            raise click.BadParameter(f"no mode {mode!r}; there are {', '.join(POLICIES)}")
    if not modes:
        raise click.BadParameter("name at least one mode")
    return modes


@click.command()
@click.argument("trace", required=False, type=click.Path(path_type=Path))
@click.option(
    "--mode",
    "modes",
    default=DEFAULT_MODES,
    callback=_modes,
    show_default=True,
    help="Modes, with commas; the first is the one that others are compared with.",
)
@click.option("--window", type=click.IntRange(min=1), help="Requests that run at once.")
@click.option("--gpu", type=click.IntRange(min=1), help="GPU slots, in pages.")
@click.option("--host", type=click.IntRange(min=0), help="Host slots, in pages.")
@click.option(
    "--page-bytes",
    default=4096,
    show_default=True,
    type=click.IntRange(min=1),
    help="Bytes of a page.",
)
@click.option(
    "--page-tokens",
    type=click.IntRange(min=1),
    help="Tokens of a page; by default from the file's name (_b64), or 512.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Replay only so many requests.")
@click.option(
    "--engine",
    default="cpu",
    show_default=True,
    type=click.Choice(["cpu", "null"]),
    help="cpu moves and compares real bytes; null only keeps books.",
)
@click.option("--audit", is_flag=True, help="Replay the journal through the spec as it is written.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, one a mode.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a picture: bytes copied, slots in use (needs kvtier[plot]).",
)
def replay(
    trace: Path | None,
    modes: list[str],
    window: int | None,
    gpu: int | None,
    host: int | None,
    page_bytes: int,
    page_tokens: int | None,
    limit: int | None,
    engine: str,
    audit: bool,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Replay TRACE (Mooncake format; by default a small one that ships with kvtier).

    Every mode really runs the cache. Sizes are in pages.
    """
    sizes = _sizes(trace, window, gpu, host, page_bytes)
    path = trace or extract()
    if plot is not None:
        check_target(plot)
    requests = load(path, page_tokens=page_tokens, limit=limit)
    runs = []
    with progress() as bar:
        for mode in modes:
            run = Replay(requests, sizes, mode, moves_bytes=engine == "cpu", audit=audit)
            task = bar.add_task(f"{mode:>22}", total=len(requests))
            run.run(lambda done, task=task: bar.update(task, completed=done))  # type: ignore[misc]
            runs.append(run)
    if as_json:
        click.echo(json.dumps([run.counts.as_dict() for run in runs], indent=2))
    else:
        _print(path, sizes, [run.counts for run in runs], engine)
    if plot is not None:
        plot_replays(runs, plot)


def _sizes(
    trace: Path | None, window: int | None, gpu: int | None, host: int | None, page_bytes: int
) -> Sizes:
    given = {"window": window, "gpu": gpu, "host": host}
    missing = [f"--{name}" for name, value in given.items() if value is None]
    if trace is not None and missing:
        raise BadRequest(f"a trace of your own needs sizes: give {' '.join(missing)}")
    chosen = {
        name: EXTRACT_SIZES[name] if value is None else value for name, value in given.items()
    }
    return Sizes(**chosen, page_bytes=page_bytes)


def _print(path: Path, sizes: Sizes, counts: list[Counts], engine: str) -> None:
    first = counts[0]
    title = (
        f"{path.name}: {first.requests} requests, window {sizes.window}, gpu {sizes.gpu}, "
        f"host {sizes.host} pages of {sizes.page_bytes} bytes"
    )
    columns = (
        "mode",
        "GPU→host pages",
        "MiB",
        "change",
        "copies saved",
        "host→GPU pages",
        "GPU hit %",
        "host hit %",
        "all hits %",
        "change",
        "recomputed",
    )
    print_table(title, columns, [_row(count, first) for count in counts])
    if engine == "cpu":
        pages = sum(count.verified_pages for count in counts)
        console.print(f"{pages:,} pages were read back and compared with their content: all equal.")
    if first.rejected:
        console.print(f"{first.rejected} requests do not fit on the gpu and were not counted.")


def _row(counts: Counts, first: Counts) -> list[str]:
    pages = max(1, counts.pages)
    fewer = 100 * (counts.d2h_pages / max(1, first.d2h_pages) - 1)
    points = 100 * (counts.hit_rate - first.hit_rate)
    is_first = counts is first
    return [
        counts.mode,
        f"{counts.d2h_pages:,}",
        f"{counts.d2h_bytes / MIB:,.1f}",
        "" if is_first else f"{fewer:+.1f} %",
        f"{counts.saved_pages:,}",
        f"{counts.h2d_pages:,}",
        f"{100 * counts.gpu_hits / pages:.2f}",
        f"{100 * counts.host_hits / pages:.2f}",
        f"{100 * counts.hit_rate:.2f}",
        "" if is_first else f"{points:+.2f}",
        f"{counts.computed:,}",
    ]
