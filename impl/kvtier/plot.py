"""Pictures of replays: an extra; matplotlib is imported when one is asked for, and not before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvtier.errors import ConfigError

if TYPE_CHECKING:
    from kvtier.replay import Replay

GIB = 1 << 30
WIDTH_IN, HEIGHT_IN, DPI = 10.0, 4.2, 130


def plot_replays(runs: Sequence[Replay], path: Path) -> None:
    """Draw bytes copied over the run, and the occupancy of each tier, one line a mode."""
    figure_class, canvas = _matplotlib()
    figure = figure_class(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
    canvas(figure)
    copied, occupied = figure.subplots(1, 2)
    for index, run in enumerate(runs):
        color = f"C{index}"
        steps = [sample.request for sample in run.timeline]
        gib = [sample.d2h_bytes / GIB for sample in run.timeline]
        copied.plot(steps, gib, color=color, label=run.mode)
        for tier, style in (("gpu", ":"), ("host", "-")):
            share = [100 * sample.used[tier] / _slots(run, tier) for sample in run.timeline]
            occupied.plot(steps, share, style, color=color, label=f"{run.mode}: {tier}")
        shadows = [100 * sample.shadows / _slots(run, "host") for sample in run.timeline]
        if any(shadows):
            occupied.plot(steps, shadows, "--", color=color, label=f"{run.mode}: host, shadows")
    copied.set(title="copied from GPU to host", xlabel="requests", ylabel="GiB")
    occupied.set(title="slots in use", xlabel="requests", ylabel="% of the tier", ylim=(0, 105))
    copied.legend()
    occupied.legend(fontsize=7)
    figure.savefig(path, dpi=DPI)


def _slots(run: Replay, tier: str) -> int:
    return max(1, run.sizes.gpu if tier == "gpu" else run.sizes.host)


def _matplotlib() -> tuple[Any, Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("a picture needs matplotlib: install kvtier[plot]") from error
    return Figure, FigureCanvasAgg
