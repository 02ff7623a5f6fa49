"""What are prefetches and shared rows worth in a network? ``python -m tcl.bench.in_network NETWORK`` measures it.

A network of `tcl bench tune` is tuned once, and the schedules found are built as always, and without either of the two.
The packages are timed in turns, in processes of their own.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

from tcl.bench.machine import own_device
from tcl.bench.tune_run import Runner
from tcl.bench.tune_study import Cell, read_params
from tcl.compiler.running.latency import benchmark
from tcl.jobs.tables import Table
from tcl.settings import load_settings

_AS_BUILT = "as it is built"
_VARIANTS = {
    _AS_BUILT: {},
    "without prefetches": {"prefetch": False},
    "rows not shared out": {"by_rows": False},
}


def compare(runner: Runner, network: str, trials: int, rounds: int) -> Table:
    """Time the packages of a network in `rounds` processes each.

    Returns
    -------
    Table
        One row a package: median, least and greatest latency of the rounds in ms, and the median of its ratios to
        the first of the same round.
    """
    runner.start(network)
    arena = runner.arena(network)
    outcome = arena.run(Cell(network, "tcl", trials, 0))
    with tempfile.TemporaryDirectory() as folder:
        packages = {name: Path(folder, name) for name in _VARIANTS}
        for name, package in packages.items():
            runner.package(arena.network, outcome.traces, package, **_VARIANTS[name])
        timed = benchmark(packages, None, rounds)
    rows = []
    for name, latency in timed.items():
        ms = [1e3 * seconds for seconds in latency.rounds]
        ratio = latency.ratio(timed[_AS_BUILT])[0]
        cells = (statistics.median(ms), min(ms), max(ms), ratio)
        rows.append((name, *(f"{cell:.3g}" for cell in cells)))
    columns = ("package            ", "median ms", "least", "greatest", "ratio")
    return Table(f"{network}, {len(outcome.trials)} trials, {rounds} rounds", columns, rows)


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", help="of a study of the tuning benchmark, or a file")
    parser.add_argument("--trials", type=int, default=128, help="of the search (default 128)")
    parser.add_argument("--rounds", type=int, default=7, help="processes of each package (default 7)")
    arguments = parser.parse_args()
    settings = load_settings()
    params = replace(read_params(settings.root / "params.yaml")["large"], networks=(arguments.network,))
    folder = settings.state_dir / "bench" / "tune"
    runner = Runner(settings, params, own_device(settings), folder, folder / "in_network")
    table = compare(runner, arguments.network, arguments.trials, arguments.rounds)
    print(table.title)
    for row in (table.columns, *table.rows):
        print("  ".join(str(cell).ljust(len(name)) for cell, name in zip(row, table.columns, strict=True)))


if __name__ == "__main__":
    main()
