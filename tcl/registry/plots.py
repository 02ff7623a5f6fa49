"""The plots that are logged with a cost model."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tcl.registry.versions import THEIRS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TOP_K = re.compile(r"top_(\d+)")


def draw_all(
    folder: Path,
    curves: Mapping[str, Sequence[float]],
    scatter: tuple[Sequence[float], Sequence[float]] | None,
    metrics: Mapping[str, float],
) -> list[str]:
    """Draw as PNG files what there is data for: learning curves, predicted against measured, top-k.

    Parameters
    ----------
    folder
        Where the files go; made when absent.
    curves
        Values by epoch.
    scatter
        Predicted scores and measured relative speeds (best of the task = 1), of the same length.
    metrics
        Those named ``top_<k>`` are drawn, beside the champion's on the same programs (`THEIRS`).

    Returns
    -------
    list
        Names of the plots: the files without their suffix.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in curves.items():
        axes = _axes("epoch", name)
        axes.plot(range(len(values)), values)
        _save(axes, folder / f"learning_curve_{name}.png")
    if scatter is not None:
        axes = _axes("predicted score", "measured speed (best = 1)")
        axes.scatter(*scatter, s=4, alpha=0.4)
        _save(axes, folder / "predicted_against_measured.png")
    bars = [(f"k = {match[1]}", key) for key in metrics if (match := _TOP_K.fullmatch(key))]
    kinds = [
        (kind, key) for key in metrics if (kind := key.partition("top_1/")[2]) and key.startswith("top_1/")
    ]
    _draw_bars(folder / "top_k.png", "top-k of all held-out programs", bars, metrics)
    _draw_bars(folder / "top_1_by_kind.png", "top-1 by kind of program", kinds, metrics)
    return sorted(path.stem for path in folder.glob("*.png"))


def _draw_bars(path: Path, title: str, bars: Sequence[tuple[str, str]], metrics: Mapping[str, float]) -> None:
    """Bars of some metrics (label, name), each beside the champion's where that is known."""
    if not bars:
        return
    axes = _axes("", title)
    pairs = any(THEIRS + key in metrics for _, key in bars)
    width = 0.4 if pairs else 0.6
    series = [("this version", "", -width / 2 if pairs else 0.0)]
    series += [("champion", THEIRS, width / 2)] if pairs else []
    for label, prefix, offset in series:
        heights = [metrics.get(prefix + key, 0.0) for _, key in bars]
        drawn = axes.bar([index + offset for index in range(len(bars))], heights, width, label=label)
        axes.bar_label(drawn, [f"{height:.2f}" for height in heights], fontsize=8)
    axes.set_xticks(range(len(bars)), [label for label, _ in bars], rotation=20 if len(bars) > 4 else 0)
    axes.set_ylim(0, 1.1)
    if pairs:
        axes.legend(loc="lower right")
    _save(axes, path)


def _axes(x: str, y: str) -> "Axes":
    from matplotlib.figure import Figure  # without pyplot: no display, no global state

    axes = Figure(figsize=(4.4, 3.2), layout="constrained").add_subplot()
    axes.set_xlabel(x)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylabel(y)
    return axes


def _save(axes: "Axes", path: Path) -> None:
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.savefig(path, dpi=100)
