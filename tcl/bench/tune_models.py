"""The two pre-trained cost models of the tuning benchmark, made of the same records."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tcl.bench.learn_baselines import numbered
from tcl.bench.learn_data import each_task
from tcl.bench.tune_study import TuneParams
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
from tcl.sampling.rdu import select
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
        Distilled: the teachers into a knowledge base one after another, then the device with it.
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


def prepare(settings: Settings, params: TuneParams, folder: Path) -> Pretrained:
    """Train both models, or read them where `folder` has them already of the same records and params."""
    from tcl.compiler.bootstrap import import_tvm

    devices = DeviceStore(settings.devices_dir)
    device = devices.get(params.device)
    import_tvm(device.target)
    from tcl.compiler.metaschedule.cost_models import TensetMlp

    store = RecordStore(settings.data_dir)
    wanted = _describe(store, params)
    about_file = folder / "about.json"
    if not about_file.exists() or json.loads(about_file.read_text())["of"] != wanted:
        about_file.unlink(missing_ok=True)
        teachers = [devices.get(name) for name in params.teachers]
        about = {"of": wanted} | _train(store, device, teachers, params, folder)
        atomic_json(about_file, about)
    known = {key for name in (*params.teachers, params.device) for key in store.workloads(name)}
    return Pretrained(
        load_model(folder / "tcl")[0],
        lambda seed: TensetMlp.load(folder / "tenset-mlp.safetensors", seed),
        json.loads(about_file.read_text()),
        frozenset(known),
    )


def _describe(store: RecordStore, params: TuneParams) -> dict[str, Any]:
    from tcl.features.batch import FEATURE_VERSION

    return {
        "records": {name: store.status(name).records for name in (*params.teachers, params.device)},
        "fraction": params.fraction,
        "epochs": params.epochs,
        "feature_version": FEATURE_VERSION,
    }


def _train(
    store: RecordStore, device: Device, teachers: list[Device], params: TuneParams, folder: Path
) -> dict[str, Any]:
    from tcl.compiler.metaschedule.cost_models import TensetMlp

    options = DistillOptions(train=TrainOptions(epochs=params.epochs))
    base: KnowledgeBase | None = None
    started = time.monotonic()
    datasets = []
    for teacher in teachers:
        note(f"learning {teacher.name}")
        datasets.append(numbered(load_dataset(store, [teacher])))
        base = distill_dataset(
            datasets[-1], teacher.name, base, options, folder / teacher.name
        ).knowledge_base
    datasets.append(_label(numbered(load_dataset(store, [device])), base, params.fraction))
    note(f"learning {device.name}")
    result = distill_dataset(datasets[-1], device.name, base, options, folder / device.name)
    save_model(result.model, folder / "tcl", {"device": device.name})
    seconds = time.monotonic() - started

    note("extracting the features of Tenset-MLP")
    started = time.monotonic()
    features: list[np.ndarray] = []
    for owner, dataset in zip([*teachers, device], datasets, strict=True):
        features += _features(store, owner, dataset)
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


def _label(dataset: LabelledDataset, base: KnowledgeBase | None, fraction: float) -> LabelledDataset:
    """What RDU chooses of the device's records with the knowledge base."""
    if fraction == 1 or base is None:
        return dataset
    embeddings, (_, spread) = base.model.embed(dataset.batch), base.model.score(dataset.batch)

    def choose(rows: np.ndarray, count: int) -> np.ndarray:
        return rows[select(embeddings[rows], spread[rows], count, seed=0)]

    return each_task(dataset, fraction, choose)


def _features(store: RecordStore, device: Device, dataset: LabelledDataset) -> list[np.ndarray]:
    """Per-store features of the rows that remain of a numbered dataset."""
    from tcl.compiler.metaschedule.cost_models import store_features

    workloads = store.workloads(device.name)
    traces: dict[str, list[str]] = {}
    for record in store.records(device.name):
        traces.setdefault(record.workload, []).append(record.trace)
    everything = [(key, trace) for key in traces for trace in traces[key]]
    wanted: dict[str, list[str]] = {}
    for task, origin in zip(dataset.task, dataset.origin, strict=True):
        key, trace = everything[int(origin)]
        assert key == dataset.keys[task], "the dataset's rows are in the order of the store"
        wanted.setdefault(key, []).append(trace)
    found: list[np.ndarray] = []
    with progress(f"features of {device.name}", len(wanted)) as advance:
        for key, chosen in wanted.items():
            found += store_features(workloads[key].program, chosen, device.target)
            advance()
    return found
