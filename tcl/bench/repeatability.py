"""Do records repeat? ``python -m tcl.bench.repeatability`` measures some of a device's records once more on this host.

The device must be this machine, and the project folder the current one.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tcl.costmodel.metrics import rank_correlation
from tcl.devices.device import Device
from tcl.devices.host import check_reachable
from tcl.devices.store import DeviceStore
from tcl.measuring.engine import MeasuringEngine
from tcl.measuring.types import MeasureRequest
from tcl.records.record import MeasureRecord
from tcl.records.store import RecordStore
from tcl.settings import load_settings

Pair = tuple[float, float]
"""One candidate's time then and now, each in runs of the reference kernel beside it."""


def measure_again(
    store: RecordStore, device: Device, workloads: int, candidates: int, seed: int
) -> dict[str, list[Pair]]:
    """Measure random successful records of some workloads again.

    Returns
    -------
    dict
        By workload; what failed now is left out.
    """
    chosen = _draw(store, device, workloads, candidates, seed)
    programs = store.workloads(device.name)
    requests = [
        MeasureRequest(
            record.workload, programs[record.workload].program, device.target, record.trace, "random"
        )
        for record in chosen
    ]
    then = {(record.workload, record.trace): record for record in chosen}
    found: dict[str, list[Pair]] = defaultdict(list)
    with MeasuringEngine(device) as engine:
        for result in engine.measure(requests):
            if result.error is None and result.reference_seconds:
                record = then[result.request.workload, result.request.trace]
                assert record.reference_seconds is not None
                before = statistics.median(record.run_seconds) / record.reference_seconds
                now = statistics.median(result.run_seconds) / result.reference_seconds
                found[record.workload].append((before, now))
    return found


def agreement(pairs: Sequence[Pair]) -> tuple[float, float, float]:
    """Rank correlation, best time now over the time now of what was fastest then, log2 spread of the quotients."""
    then, now = np.array(pairs).T
    quotients = np.log2(now / then)
    return rank_correlation(then, now), float(now.min() / now[then.argmin()]), float(quotients.std())


def _draw(
    store: RecordStore, device: Device, workloads: int, candidates: int, seed: int
) -> list[MeasureRecord]:
    distinct: dict[str, dict[str, MeasureRecord]] = defaultdict(dict)
    for record in store.records(device.name):
        if record.error is None and record.origin == "random" and record.reference_seconds:
            distinct[record.workload][record.trace] = record
    rng = np.random.default_rng(seed)
    keys = sorted(key for key, records in distinct.items() if len(records) >= candidates)
    chosen = []
    for key in rng.permutation(keys)[:workloads]:
        records = list(distinct[key].values())
        chosen += [records[at] for at in rng.permutation(len(records))[:candidates]]
    return chosen


def main() -> None:
    """Print the agreement of each workload, and of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="znver4-2c", help="default znver4-2c")
    parser.add_argument("--workloads", type=int, default=24, help="default 24")
    parser.add_argument("--candidates", type=int, default=12, help="of each workload (default 12)")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    arguments = parser.parse_args()
    settings = load_settings(Path.cwd())
    device = DeviceStore(settings.devices_dir).get(arguments.device)
    check_reachable(device)
    store = RecordStore(settings.data_dir)
    found = measure_again(store, device, arguments.workloads, arguments.candidates, arguments.seed)
    names = {key: workload.name for key, workload in store.workloads(device.name).items()}
    rows = {key: agreement(pairs) for key, pairs in found.items() if len(pairs) > 2}
    print("rank correlation  share of the best  spread (log2)  records  workload")
    for key, (ranks, share, spread) in rows.items():
        print(f"{ranks:16.3f}  {share:17.3f}  {spread:13.3f}  {len(found[key]):7}  {names[key]}")
    ranks, share, spread = np.mean(list(rows.values()), axis=0)
    print(f"{ranks:16.3f}  {share:17.3f}  {spread:13.3f}  {sum(map(len, found.values())):7}  all")


if __name__ == "__main__":
    main()
