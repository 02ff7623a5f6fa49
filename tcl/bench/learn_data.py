"""What the learning benchmark is run on: public logs of three GPUs, and the shipped records of three CPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tcl.console import note
from tcl.costmodel.splits import take_rows, take_tasks
from tcl.devices.device import Device
from tcl.errors import BadInput
from tcl.features.dataset import LabelledDataset, load_dataset

if TYPE_CHECKING:
    from tcl.records.store import RecordStore

FEWEST_ROWS = 12
"""Candidates of a task below which it is left out, on all devices."""

FEWEST_SUCCESSES = 0.3
"""Share of successes of a task below which it is left out, on all devices."""

CLIP = 95
"""Percentile of a task's latencies from which all count as equally slow: logs hold single absurd ones (489 s)."""


def _gpu(
    name: str, kind: str, sm: int, bandwidth: float, flops: float, clock: float, warp: int, l2: int
) -> Device:
    facts = {
        "sm_count": sm,
        "memory_bytes_per_second": bandwidth,
        "flops_per_second": flops,
        "clock_hz": clock,
        "warp_size": warp,
        "l2_bytes": l2,
    }
    return Device(name, {"kind": kind}, facts=facts)


PUBLIC_DEVICES = {
    "k80": _gpu("k80", "cuda", 13, 240e9, 4.1e12, 0.82e9, 32, 1_572_864),
    "v100": _gpu("v100", "cuda", 80, 900e9, 14e12, 1.38e9, 32, 6_291_456),
    "mi50": _gpu("mi50", "rocm", 60, 1024e9, 13.4e12, 1.75e9, 64, 4_194_304),
}
"""The devices of the public logs, with what their data sheets say (of one of the K80's two chips)."""


def public_datasets(logs: Path, cache: Path, first: int | None) -> tuple[dict[str, LabelledDataset], float]:
    """The public Ansor logs by device, reduced to the workloads that all devices have; seconds to encode a candidate.

    Parameters
    ----------
    logs
        Holds a folder for each of `PUBLIC_DEVICES`.
    cache
        Where the imported records are kept between runs.
    first
        Only so many of the first records of each task: a tuner's later ones are nearly all good.

    Raises
    ------
    BadInput
        When a device's folder is missing.
    """
    from tcl.importers.importer import import_logs
    from tcl.records.store import RecordStore

    store = RecordStore(cache / "public")
    for name, device in PUBLIC_DEVICES.items():
        if name not in store.devices():
            if not (logs / name).is_dir():
                raise BadInput(f"{logs} holds no folder {name} of Ansor logs; name the folder that does")
            note(f"importing the logs of {name}")
            import_logs([logs / name], device, store)
    return _load(store, list(PUBLIC_DEVICES.values()), first)


def own_datasets(
    store: RecordStore, devices: list[Device], first: int | None
) -> tuple[dict[str, LabelledDataset], float]:
    """The same of the records of some devices that were chosen at random."""
    return _load(store, devices, first, "random")


def _load(
    store: RecordStore, devices: list[Device], first: int | None, origin: str | None = None
) -> tuple[dict[str, LabelledDataset], float]:
    datasets = {}
    started, rows = time.process_time(), 0
    for device in devices:
        dataset = load_dataset(store, [device], None, first)
        rows += len(dataset)
        chosen = np.array([origin in (None, found) for found in dataset.origin])
        datasets[device.name] = take_rows(dataset, np.flatnonzero(chosen))
    seconds = (time.process_time() - started) / rows
    return common_tasks(datasets), seconds


def common_tasks(datasets: dict[str, LabelledDataset]) -> dict[str, LabelledDataset]:
    """The same workloads in the same order on all devices; latencies clipped by rank."""
    usable = [{dataset.keys[task]: task for task in _usable(dataset)} for dataset in datasets.values()]
    keys = sorted(set.intersection(*map(set, usable)))
    if not keys:
        raise BadInput(f"the devices {', '.join(datasets)} have no workload with enough records in common")
    return {
        name: _clip(take_tasks(dataset, np.array([numbers[key] for key in keys])))
        for (name, dataset), numbers in zip(datasets.items(), usable, strict=True)
    }


def _usable(dataset: LabelledDataset) -> Iterator[int]:
    rows = np.bincount(dataset.task, minlength=len(dataset.keys))
    successes = np.bincount(dataset.task, np.isfinite(dataset.seconds), minlength=len(dataset.keys))
    for task in range(len(dataset.keys)):
        if rows[task] >= FEWEST_ROWS and successes[task] >= FEWEST_SUCCESSES * rows[task]:
            yield task


def _clip(dataset: LabelledDataset) -> LabelledDataset:
    """Clip each task's latencies at `CLIP`."""
    seconds = dataset.seconds.copy()
    for task in range(len(dataset.keys)):
        rows = np.flatnonzero((dataset.task == task) & np.isfinite(dataset.seconds))
        seconds[rows] = np.minimum(seconds[rows], np.percentile(seconds[rows], CLIP))
    return replace(dataset, seconds=seconds)


def each_task(
    dataset: LabelledDataset, fraction: float, choose: Callable[[np.ndarray, int], np.ndarray]
) -> LabelledDataset:
    """The rows that `choose(rows of a task, how many)` picks of each task."""
    picked = []
    for task in range(len(dataset.keys)):
        rows = np.flatnonzero(dataset.task == task)
        picked.append(choose(rows, max(2, round(fraction * len(rows)))))
    return take_rows(dataset, np.sort(np.concatenate(picked)))
