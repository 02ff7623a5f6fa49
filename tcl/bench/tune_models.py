"""The two pre-trained cost models of the tuning benchmark, made of the same records."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tcl.console import note, progress
from tcl.costmodel.checkpoint import load_model, save_model
from tcl.costmodel.groups import relevance
from tcl.costmodel.network import CostModel
from tcl.costmodel.training import TrainOptions
from tcl.devices.store import DeviceStore
from tcl.distillation.distill import distill_dataset
from tcl.distillation.knowledge import KnowledgeBase
from tcl.distillation.options import DistillOptions
from tcl.features.dataset import LabelledDataset, load_dataset
from tcl.files import atomic_json
from tcl.records.store import RecordStore
from tcl.settings import Settings

if TYPE_CHECKING:
    from tcl.compiler.metaschedule.cost_models import TensetMlp
    from tcl.devices.device import Device


@dataclass(frozen=True)
class Pretrained:
    """The cost models, and how they were made.

    Attributes
    ----------
    tcl
        Distilled: the other devices into a knowledge base one after another, then the device with it.
    tenset_mlp
        Makes a fresh copy for a search's seed, since the search trains it on.
    about
        Records and seconds of each, for the report.
    known
        Workload keys of the records.
    """

    tcl: CostModel
    tenset_mlp: Callable[[int], TensetMlp]
    about: dict[str, Any]
    known: frozenset[str]


def prepare(settings: Settings, device: Device, epochs: int, folder: Path) -> Pretrained:
    """Train both models on all records, `device`'s last, or read them where `folder` has them already of the same.

    Tenset-MLP has its own number of epochs.
    """
    from tcl.compiler.bootstrap import import_tvm

    import_tvm(device.target)
    from tcl.compiler.metaschedule.cost_models import TensetMlp
    from tcl.features.batch import FEATURE_VERSION

    store = RecordStore(settings.data_dir)
    devices = _teachers(settings, device)
    wanted = {
        "records": learned_records(settings, device),
        "epochs": epochs,
        "feature_version": FEATURE_VERSION,
    }
    about_file = folder / "about.json"
    if not about_file.exists() or json.loads(about_file.read_text())["of"] != wanted:
        about_file.unlink(missing_ok=True)
        about = {"of": wanted} | _train(store, devices, epochs, folder)
        atomic_json(about_file, about)
    return Pretrained(
        load_model(folder / "tcl")[0],
        lambda seed: TensetMlp.load(folder / "tenset-mlp.safetensors", seed),
        json.loads(about_file.read_text()),
        frozenset(key for one in devices for key in store.workloads(one.name)),
    )


def learned_records(settings: Settings, device: Device) -> dict[str, int]:
    """How many records the models learn from, by device in the order in which they learn them."""
    store = RecordStore(settings.data_dir)
    return {one.name: store.status(one.name).records for one in _teachers(settings, device)}


def _teachers(settings: Settings, device: Device) -> list[Device]:
    """All devices with records, `device` last."""
    known = DeviceStore(settings.devices_dir)
    names = RecordStore(settings.data_dir).devices()
    return [*(known.get(name) for name in names if name != device.name and known.has(name)), device]


def _train(store: RecordStore, devices: list[Device], epochs: int, folder: Path) -> dict[str, Any]:
    from tcl.compiler.metaschedule.cost_models import TensetMlp

    options = DistillOptions(train=TrainOptions(epochs=epochs))
    base: KnowledgeBase | None = None
    started = time.monotonic()
    datasets = [load_dataset(store, [device]) for device in devices]
    for device, dataset in zip(devices, datasets, strict=True):
        note(f"learning {device.name}")
        result = distill_dataset(dataset, device.name, base, options, folder / device.name)
        base = result.knowledge_base
    save_model(result.model, folder / "tcl", {"device": device.name})
    seconds = time.monotonic() - started

    note("extracting the features of Tenset-MLP")
    started = time.monotonic()
    features: list[np.ndarray] = []
    for device, dataset in zip(devices, datasets, strict=True):
        features += _features(store, device, dataset)
    extracted = time.monotonic()
    data = LabelledDataset.concat(datasets)
    mlp = TensetMlp(seed=0)
    mlp.fit(features, relevance(data), data.task)
    mlp.save(folder / "tenset-mlp.safetensors")
    return {
        "labels": {dataset.devices[0]: len(dataset) for dataset in datasets},
        "chosen": result.chosen,
        "tcl_seconds": seconds,
        "tenset_mlp_feature_seconds": extracted - started,
        "tenset_mlp_seconds": time.monotonic() - extracted,
    }


def _features(store: RecordStore, device: Device, dataset: LabelledDataset) -> list[np.ndarray]:
    """Per-store features of a device's dataset, whose rows are in the order of the store, a workload after another."""
    from tcl.compiler.metaschedule.cost_models import store_features

    workloads = store.workloads(device.name)
    traces: dict[str, list[str]] = {}
    for record in store.records(device.name):
        traces.setdefault(record.workload, []).append(record.trace)
    rows = [key for key, of_key in traces.items() for _ in of_key]
    assert rows == [dataset.keys[task] for task in dataset.task]
    found: list[np.ndarray] = []
    with progress(f"features of {device.name}", len(traces)) as advance:
        for key, of_key in traces.items():
            found += store_features(workloads[key].program, of_key, device.target)
            advance()
    return found
