"""Latency against wall-clock seconds and against trials, a row of panels a network."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

from tcl.bench.tune_curves import curve
from tcl.bench.tune_run import Runner
from tcl.bench.tune_study import CONTENDERS, cells

_COLOURS = dict(zip(CONTENDERS, ("C3", "C1", "C0", "C2", "C7", "C4"), strict=True))
_PANEL = (4.6, 2.6)  # inches


def draw(runner: Runner) -> bytes | None:
    """The curves as SVG; None while no network has any."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    stems = {Path(network).stem: network for network in runner.params.networks}
    shown = [stem for stem in stems if runner.read(f"{stem}.start")]
    if not shown:
        return None
    size = (2 * _PANEL[0], len(shown) * _PANEL[1])
    figure, axes = plt.subplots(len(shown), 2, figsize=size, squeeze=False, layout="constrained")
    for (by_time, by_trials), stem in zip(axes, shown, strict=True):
        start = runner.read(f"{stem}.start")
        assert start is not None
        for cell in cells(runner.params):
            kept = runner.read(cell.name)
            if cell.network != stems[stem] or kept is None or not kept["trials"]:
                continue
            points = list(curve(start, kept))
            kept_points = [points[0], *(b for a, b in pairwise(points) if a[2] != b[2]), points[-1]]
            seconds, trials, latency = zip(*kept_points, strict=True)
            style = {
                "where": "post",
                "color": _COLOURS[cell.contender],
                "linewidth": 1.0,
                "label": cell.contender if cell.seed == 0 else None,
            }
            by_time.step([max(s, 1.0) for s in seconds], [1e3 * value for value in latency], **style)
            by_trials.step([max(n, 1) for n in trials], [1e3 * value for value in latency], **style)
        for axis, label in ((by_time, "seconds"), (by_trials, "trials")):
            axis.set(xscale="log", yscale="log", xlabel=label, ylabel="estimate, ms", title=stem)
            axis.grid(alpha=0.3)
        by_trials.legend(fontsize="x-small")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    return buffer.getvalue()
