"""Does building other candidates disturb a timing? ``python -m tcl.bench.overlap`` measures it on this host.

The same candidates, of a real network's programs, are timed in three ways, in turns so that the machine's drift
meets all of them alike: one by one with no build going on, in one stream with builds stopped while a candidate is
timed (the engine's default), and in one stream with builds going on.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np

from tcl.bench.networks import export
from tcl.devices.device import Device
from tcl.devices.host import detect_host
from tcl.jobs.pool import draw_pool
from tcl.jobs.programs import extract_programs
from tcl.jobs.tables import Table
from tcl.measuring.engine import MeasuringEngine
from tcl.measuring.types import MeasureOptions, MeasureRequest, MeasureResult

_NETWORK = "squeezenet"
_SEED = 7
_WAYS = ("no builds", "builds stopped", "builds going on")


def compare(device: Device, candidates: int, rounds: int) -> Table:
    """Time `candidates` schedules of each of the network's programs `rounds` times in each way.

    Returns
    -------
    Table
        One row a way: quantiles over the candidates of its time relative to the time without builds, where a time
        is the median over the rounds of the drift-normalised medians; and the spread between the rounds.
    """
    requests = _requests(device, candidates)
    seconds: dict[str, dict[str, list[float]]] = {way: defaultdict(list) for way in _WAYS}
    with ExitStack() as stack:
        stopped = stack.enter_context(MeasuringEngine(device))
        overlapping = stack.enter_context(MeasuringEngine(device, MeasureOptions(overlap=True)))
        for _ in range(rounds):
            ways = (_one_by_one(stopped, requests), stopped.measure(requests), overlapping.measure(requests))
            for way, results in zip(_WAYS, ways, strict=True):
                for result in results:
                    if result.error is None and result.reference_seconds is not None:
                        time = statistics.median(result.run_seconds) / result.reference_seconds
                        seconds[way][result.request.workload + result.request.trace].append(time)
    complete = [key for key, times in seconds[_WAYS[0]].items() if len(times) == rounds]
    rows = [_row(way, complete, seconds) for way in _WAYS]
    columns = ("while timing    ", "candidates", "relative time: median", "5 %", "95 %", "spread of rounds")
    return Table(f"Timing {_NETWORK}'s programs on {device.name}", columns, rows)


def _row(way: str, keys: Sequence[str], seconds: dict[str, dict[str, list[float]]]) -> tuple[object, ...]:
    medians = {key: statistics.median(seconds[way][key]) for key in keys if seconds[way][key]}
    relative = [medians[key] / statistics.median(seconds[_WAYS[0]][key]) for key in medians]
    spread = statistics.median(max(seconds[way][key]) / min(seconds[way][key]) - 1 for key in medians)
    low, middle, high = np.quantile(relative, (0.05, 0.5, 0.95))
    return way, len(relative), f"{middle:.3f}", f"{low:.3f}", f"{high:.3f}", f"{spread:.1%}"


def _one_by_one(engine: MeasuringEngine, requests: Sequence[MeasureRequest]) -> Iterator[MeasureResult]:
    for request in requests:
        yield from engine.measure([request])


def _requests(device: Device, candidates: int) -> list[MeasureRequest]:
    with tempfile.TemporaryDirectory() as folder:
        tasks = extract_programs((str(export(_NETWORK, folder)),), (), device)
    requests = []
    for task in tasks:
        pool = draw_pool(task, device, candidates, _SEED)
        for number in range(min(candidates, len(pool))):
            trace = pool.trace(number)
            requests.append(
                MeasureRequest(task.workload.key, task.workload.program, device.target, trace, "random")
            )
    return requests


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=2, help="schedules of each program (default 2)")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions in each way (default 3)")
    arguments = parser.parse_args()
    table = compare(detect_host(), arguments.candidates, arguments.rounds)
    print(table.title)
    for row in (table.columns, *table.rows):
        print("  ".join(str(cell).ljust(len(name)) for cell, name in zip(row, table.columns, strict=True)))


if __name__ == "__main__":
    main()
