"""`kvtier replay`: a request trace through several modes, side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path

import click

from kvtier.cli.output import console, print_table, progress
from kvtier.config import DEMOTE
from kvtier.errors import BadRequest
from kvtier.plot import check_target, plot_replays
from kvtier.policy import COLD_POLICIES, POLICIES
from kvtier.replay import Counts, Modes, Replay, Sizes
from kvtier.trace import extract, load
from kvtier_spec import GPU_HOST, GPU_HOST_DISK

DEFAULT_MODES = "exclusive,page_first,shadow_first"
EXTRACT_SIZES = {"window": 3, "gpu": 512, "host": 1024}
"""Sizes that show the effect on the trace that ships with the package."""

MIB = 1 << 20


def _names(known: Collection[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Read names with commas between them, each one of those known."""

    def read(_: click.Context, __: click.Parameter, value: str) -> list[str]:
        names = [name.strip() for name in value.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise click.BadParameter(f"no {name!r}; there are {', '.join(known)}")
        if not names:
            raise click.BadParameter("name at least one")
        return names

    return read


@click.command()
@click.argument("trace", required=False, type=click.Path(path_type=Path))
@click.option(
    "--mode",
    "modes",
    default=DEFAULT_MODES,
    callback=_names(POLICIES),
    show_default=True,
    help="Modes, with commas; the first is the one that others are compared with.",
)
@click.option("--window", type=click.IntRange(min=1), help="Requests that run at once.")
@click.option("--gpu", type=click.IntRange(min=1), help="GPU slots, in pages.")
@click.option("--host", type=click.IntRange(min=0), help="Host slots, in pages.")
@click.option(
    "--disk", type=click.IntRange(min=1), help="Disk slots, in pages; no disk if left out."
)
@click.option(
    "--disk-shadows",
    default="none",
    callback=_names(COLD_POLICIES),
    show_default=True,
    help="With a disk: what becomes of the copy there when a page comes up; several with commas.",
)
@click.option(
    "--demote",
    default="on_demand,ahead",
    callback=_names(DEMOTE),
    show_default=True,
    help="With a disk: when pages are written to it; both side by side.",
)
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
    disk: int | None,
    disk_shadows: list[str],
    demote: list[str],
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
    if disk is None and disk_shadows != ["none"]:
        raise BadRequest("--disk-shadows says what a disk does: give --disk too")
    sizes = _sizes(trace, window, {"gpu": gpu, "host": host}, disk, page_bytes)
    path = trace or extract()
    if plot is not None:
        check_target(plot)
    requests = load(path, page_tokens=page_tokens, limit=limit)
    runs = []
    with progress() as bar:
        for mode in _all_modes(modes, disk_shadows, demote, has_disk=disk is not None):
            chain = GPU_HOST if disk is None else GPU_HOST_DISK
            run = Replay(requests, sizes, mode, chain, moves_bytes=engine == "cpu", audit=audit)
            task = bar.add_task(f"{run.name:>22}", total=len(requests))
            run.run(lambda done, task=task: bar.update(task, completed=done))  # type: ignore[misc]
            runs.append(run)
    if as_json:
        click.echo(json.dumps([run.counts.as_dict() for run in runs], indent=2))
    else:
        _print(path, sizes, [run.counts for run in runs], engine)
    if plot is not None:
        plot_replays(runs, plot)


def _all_modes(
    policies: list[str], cold: list[str], demote: list[str], *, has_disk: bool
) -> list[Modes]:
    """Combine what was asked for; without a disk only the first policy of each run matters."""
    if not has_disk:
        return [Modes(policy=policy) for policy in policies]
    return [
        Modes(policy=policy, cold_policy=below, demote=when)
        for policy in policies
        for below in cold
        for when in demote
    ]


def _sizes(
    trace: Path | None,
    window: int | None,
    slots: dict[str, int | None],
    disk: int | None,
    page_bytes: int,
) -> Sizes:
    given = {"window": window, **slots}
    missing = [f"--{name}" for name, value in given.items() if value is None]
    if trace is not None and missing:
        raise BadRequest(f"a trace of your own needs sizes: give {' '.join(missing)}")
    chosen = {
        name: EXTRACT_SIZES[name] if value is None else value for name, value in given.items()
    }
    running = chosen.pop("window")
    if disk is not None:
        chosen["disk"] = disk
    return Sizes(window=running, slots=chosen, page_bytes=page_bytes)


def _print(path: Path, sizes: Sizes, counts: list[Counts], engine: str) -> None:
    first = counts[0]
    slots = ", ".join(f"{tier} {count}" for tier, count in sizes.slots.items())
    title = (
        f"{path.name}: {first.requests} requests, window {sizes.window}, {slots} pages of "
        f"{sizes.page_bytes} bytes"
    )
    has_disk = "disk" in sizes.slots
    shown = [at for at, name in enumerate(_COLUMNS) if not (has_disk and name in _OF_TWO_TIERS)]
    rows = [_row(count, first) for count in counts]
    columns = tuple(_COLUMNS[at] for at in shown)
    print_table(title, columns, [[row[at] for at in shown] for row in rows])
    if has_disk:
        title = (
            "mode / disk shadows / demote; waits are pages that a request waits for, "
            "mean / 99th percentile"
        )
        print_table(title, _DISK_COLUMNS, [_disk_row(count) for count in counts])
    if engine == "cpu":
        pages = sum(count.verified_pages for count in counts)
        console.print(f"{pages:,} pages were read back and compared with their content: all equal.")
    if first.rejected:
        console.print(f"{first.rejected} requests do not fit on the gpu and were not counted.")


_COLUMNS = (
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
_OF_TWO_TIERS = ("MiB", "change")
"""Columns that there is no room for beside a disk."""
_DISK_COLUMNS = (
    "mode",
    "all hits %",
    "disk hit %",
    "disk writes",
    "writes saved",
    "disk reads",
    "waits: writes",
    "waits: reads",
)


def _disk_row(counts: Counts) -> list[str]:
    said = counts.as_dict()
    waits = [
        f"{said[f'waited_{kind}_pages_mean']:.1f} / {said[f'waited_{kind}_pages_p99']}"
        for kind in ("write", "read")
    ]
    return [
        counts.mode,
        f"{100 * counts.hit_rate:.2f}",
        f"{100 * counts.disk_hits / max(1, counts.pages):.2f}",
        f"{counts.disk_write_pages:,}",
        f"{counts.disk_saved_pages:,}",
        f"{counts.disk_read_pages:,}",
        *waits,
    ]


def _row(counts: Counts, first: Counts) -> list[str]:
    pages = max(1, counts.pages)
    fewer = 100 * (counts.d2h_pages / max(1, first.d2h_pages) - 1)
    points = 100 * (counts.hit_rate - first.hit_rate)
    is_first = counts is first
    return [
        counts.mode,
        f"{counts.d2h_pages:,}",
        f"{counts.d2h_bytes / MIB:,.1f}",
        "" if is_first or not first.d2h_pages else f"{fewer:+.1f} %",
        f"{counts.saved_pages:,}",
        f"{counts.h2d_pages:,}",
        f"{100 * counts.gpu_hits / pages:.2f}",
        f"{100 * counts.host_hits / pages:.2f}",
        f"{100 * counts.hit_rate:.2f}",
        "" if is_first else f"{points:+.2f}",
        f"{counts.computed:,}",
    ]
