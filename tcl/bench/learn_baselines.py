"""TVM's cost models in the learning benchmark, on per-store features of the shipped records."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tcl.console import progress
from tcl.costmodel.groups import relevance
from tcl.features.dataset import LabelledDataset

if TYPE_CHECKING:
    from tcl.devices.device import Device
    from tcl.records.store import RecordStore

NAMES = ("XGBModel", "Tenset-MLP")


@dataclass
class Stores:
    """Per-store features of a device's candidates.

    Attributes
    ----------
    features
        float32[stores, 172] of each candidate, in the order of the dataset.
    seconds
        Time to replay, lower and extract one candidate.
    """

    features: list[np.ndarray]
    seconds: float

    def of(self, dataset: LabelledDataset) -> list[np.ndarray]:
        """Those of a part of the dataset that `numbered` made."""
        return [self.features[int(number)] for number in dataset.origin]


def numbered(dataset: LabelledDataset) -> LabelledDataset:
    """The dataset with each row's number as its origin, so that it is known after the dataset was divided."""
    return replace(dataset, origin=[str(row) for row in range(len(dataset))])


def load_stores(store: RecordStore, device: Device, dataset: LabelledDataset, cache: Path) -> Stores:
    """Features of the dataset's rows, extracted once and kept in the file `cache`."""
    from tcl.compiler.bootstrap import import_tvm

    import_tvm(device.target)
    from tcl.compiler.metaschedule.cost_models import store_features

    if not cache.exists():
        workloads = store.workloads(device.name)
        found: list[np.ndarray] = []
        started = time.process_time()
        with progress("extracting per-store features", len(dataset.keys)) as advance:
            for key in dataset.keys:
                records = store.records(device.name, [key])
                traces = [record.trace for record in records if record.origin == "random"]
                found += store_features(workloads[key].program, traces, device.target)
                advance()
        seconds = (time.process_time() - started) / len(found)
        cache.parent.mkdir(parents=True, exist_ok=True)
        lengths = np.array([len(array) for array in found])
        np.savez(cache, values=np.concatenate(found), lengths=lengths, seconds=seconds)
    with np.load(cache, allow_pickle=False) as kept:
        ends = np.cumsum(kept["lengths"])
        stores = Stores(np.split(kept["values"], ends[:-1]), float(kept["seconds"]))
    if len(stores.features) != len(dataset):
        cache.unlink()
        return load_stores(store, device, dataset, cache)
    return stores


def rank(
    name: str, stores: Stores, training: LabelledDataset, test: LabelledDataset, seed: int
) -> tuple[np.ndarray, float, float]:
    """Train one of `NAMES`: (scores of the test candidates, training seconds, seconds to score them from features)."""
    from tcl.compiler.metaschedule.cost_models import TensetMlp, XgbRanker

    model = XgbRanker(seed) if name == "XGBModel" else TensetMlp(seed)
    started = time.process_time()
    model.fit(stores.of(training), relevance(training), training.task)
    trained = time.process_time()
    scores = model.score(stores.of(test))
    return scores, trained - started, time.process_time() - trained
