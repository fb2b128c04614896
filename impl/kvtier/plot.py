"""Pictures of replays: an extra; matplotlib is imported when one is asked for, and not before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvtier.errors import BadRequest, ConfigError

if TYPE_CHECKING:
    from kvtier.replay import Replay

GIB = 1 << 30
PANEL_IN, HEIGHT_IN, DPI = 4.3, 4.4, 100


def plot_replays(runs: Sequence[Replay], path: Path) -> None:
    """Draw bytes copied over the run, and the occupancy of each tier, one line a run."""
    figure_class, canvas = _matplotlib()
    names = list(runs[0].sizes.slots)
    size = PANEL_IN * (1 + len(names)), HEIGHT_IN
    figure = figure_class(figsize=size, layout="constrained")
    canvas(figure)
    copied, *tiers = figure.subplots(1, 1 + len(names))
    for run in runs:
        steps = [sample.request for sample in run.timeline]
        copied.plot(steps, [sample.d2h_bytes / GIB for sample in run.timeline], label=run.name)
    copied.set(title="copied from GPU to host", xlabel="requests", ylabel="GiB")
    for axes, tier in zip(tiers, names, strict=True):
        _draw_tier(axes, tier, runs)
    lines, labels = copied.get_legend_handles_labels()
    title = "dashed: slots of shadows" if any(_has_shadows(run) for run in runs) else None
    figure.legend(lines, labels, loc="outside lower center", ncols=3, title=title, frameon=False)
    try:
        figure.savefig(path, dpi=DPI)
    except (OSError, ValueError) as error:
        raise BadRequest(f"the picture cannot be written to {path}: {error}") from error


def check_target(path: Path) -> None:
    """Refuse what could not be drawn, before anything is replayed for it."""
    _matplotlib()
    if not path.parent.is_dir():
        raise BadRequest(f"the picture cannot be written to {path}: no such folder")


def _has_shadows(run: Replay) -> bool:
    return any(any(sample.shadows.values()) for sample in run.timeline)


def _draw_tier(axes: Any, tier: str, runs: Sequence[Replay]) -> None:  # noqa: ANN401
    """Draw the slots of one tier in use; dashed, those of shadows."""
    for index, run in enumerate(runs):
        slots = max(1, run.sizes.slots[tier])
        steps = [sample.request for sample in run.timeline]
        used = [100 * sample.used[tier] / slots for sample in run.timeline]
        axes.plot(steps, used, color=f"C{index}", linewidth=1)
        shadows = [100 * sample.shadows[tier] / slots for sample in run.timeline]
        if any(shadows):
            axes.plot(steps, shadows, "--", color=f"C{index}", linewidth=0.8)
    axes.set(title=f"{tier} slots in use", xlabel="requests", ylabel="%", ylim=(0, 105))


def _matplotlib() -> tuple[Any, Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("a picture needs matplotlib: install kvtier[plot]") from error
    return Figure, FigureCanvasAgg
