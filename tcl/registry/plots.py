"""The plots that are logged with a cost model."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TOP_K = re.compile(r"top_(\d+)")


def draw_all(
    folder: Path,
    curves: Mapping[str, Sequence[float]],
    scatter: tuple[Sequence[float], Sequence[float]] | None,
    metrics: Mapping[str, float],
) -> None:
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
        Those named ``top_<k>`` are drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in curves.items():
        axes = _axes("epoch", name)
        axes.plot(range(len(values)), values)
        _save(axes, folder / f"learning_curve_{name}.png")
    if scatter is not None:
        axes = _axes("predicted score", "measured speed, best of the task = 1")
        axes.scatter(*scatter, s=4, alpha=0.4)
        _save(axes, folder / "predicted_against_measured.png")
    top = sorted((int(match[1]), value) for key, value in metrics.items() if (match := _TOP_K.fullmatch(key)))
    if top:
        axes = _axes("k", "top-k")
        axes.bar([str(k) for k, _ in top], [value for _, value in top])
        axes.set_ylim(0, 1)
        _save(axes, folder / "top_k.png")


def _axes(x: str, y: str) -> "Axes":
    from matplotlib.figure import Figure  # without pyplot: no display, no global state

    axes = Figure(figsize=(6, 4), layout="constrained").add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return axes


def _save(axes: "Axes", path: Path) -> None:
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.savefig(path, dpi=100)
