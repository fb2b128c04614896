"""Pictures of replays: an extra; matplotlib is imported when one is asked for, and not before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvtier.errors import BadRequest, ConfigError

if TYPE_CHECKING:
    from kvtier.replay import Replay

GIB = 1 << 30
WIDTH_IN, HEIGHT_IN, DPI = 13.0, 4.2, 110


def plot_replays(runs: Sequence[Replay], path: Path) -> None:
    """Draw bytes copied over the run, and the occupancy of each tier, one line a mode."""
    figure_class, canvas = _matplotlib()
    figure = figure_class(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
    canvas(figure)
    copied, *tiers = figure.subplots(1, 3)
    for run in runs:
        steps = [sample.request for sample in run.timeline]
        copied.plot(steps, [sample.d2h_bytes / GIB for sample in run.timeline], label=run.mode)
    copied.set(title="copied from GPU to host", xlabel="requests", ylabel="GiB")
    for axes, tier in zip(tiers, ("gpu", "host"), strict=True):
        _draw_tier(axes, tier, runs)
    copied.legend()
    try:
        figure.savefig(path, dpi=DPI)
    except (OSError, ValueError) as error:
        raise BadRequest(f"the picture cannot be written to {path}: {error}") from error


def check_target(path: Path) -> None:
    """Refuse what could not be drawn, before anything is replayed for it."""
    _matplotlib()
    if not path.parent.is_dir():
        raise BadRequest(f"the picture cannot be written to {path}: no such folder")


def _draw_tier(axes: Any, tier: str, runs: Sequence[Replay]) -> None:  # noqa: ANN401
    """Draw the slots of one tier in use; on the host, dashed, those of shadows."""
    for index, run in enumerate(runs):
        steps = [sample.request for sample in run.timeline]
        used = [100 * sample.used[tier] / _slots(run, tier) for sample in run.timeline]
        axes.plot(steps, used, color=f"C{index}", label=run.mode)
        shadows = [100 * sample.shadows / _slots(run, tier) for sample in run.timeline]
        if tier != "gpu" and any(shadows):
            axes.plot(steps, shadows, "--", color=f"C{index}", label=f"{run.mode}: shadows")
    axes.set(title=f"{tier} slots in use", xlabel="requests", ylabel="%", ylim=(0, 105))
    axes.legend(loc="lower right", fontsize=7, framealpha=0.8)


def _slots(run: Replay, tier: str) -> int:
    return max(1, run.sizes.gpu if tier == "gpu" else run.sizes.host)


def _matplotlib() -> tuple[Any, Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("a picture needs matplotlib: install kvtier[plot]") from error
    return Figure, FigureCanvasAgg
