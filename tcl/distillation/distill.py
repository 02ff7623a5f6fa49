"""Continual distillation of one device: progress (an active column), the gates, compress (into the knowledge base).

Progress & Compress is by Schwarz et al. 2018 (arXiv 1805.06370), its use for cost models by TCL (arXiv 2604.12891).
Ours are the start of the active column (the knowledge base's weights, lateral connections at zero), the two gates, and
the choice of EWC's strength by the forgetting that it leaves.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tcl.costmodel.groups import Shards, relevance
from tcl.costmodel.metrics import top_ks
from tcl.costmodel.network import CostModel, build_model, parameter_count
from tcl.costmodel.splits import split_tasks, take_tasks
from tcl.costmodel.training import TrainReport, train
from tcl.distillation.gates import choose, consolidate
from tcl.distillation.knowledge import KnowledgeBase
from tcl.distillation.options import DistillOptions, stage_options
from tcl.distillation.stages import Notify, Progress, Stages
from tcl.errors import BadInput
from tcl.features.dataset import LabelledDataset, load_dataset, stream_dataset

if TYPE_CHECKING:
    from tcl.devices.device import Device
    from tcl.records.store import RecordStore


HELD_ROWS = 200_000
"""Records of a device above which only the first of each task are held in memory, and training streams all."""


class TooFewWorkloads(BadInput):
    """A device has too little to learn a model of its own from."""


@dataclass
class DistillResult:
    """What a distillation made.

    Attributes
    ----------
    model
        The device's cost model, which has learned all workloads.
    evaluated
        The same before it learned the held-out ones: what the metrics, scores and gates are of.
    chosen
        ``"transfer"`` or ``"scratch"``.
    reason
        Why that one, in a sentence.
    knowledge_base
        The new knowledge base; the old one where the new one forgot too much.
    knowledge_base_replaced, knowledge_base_reason
        Whether it was replaced, and why or why not.
    metrics
        ``top_1`` ... ``top_20`` of `evaluated` on held-out workloads, ``top_1_transfer`` and ``top_1_scratch`` by which
        the gate decided, ``forgetting_DEVICE``, ``parameters``, ``train_seconds``, ``tasks``, ``records``.
    curves
        Values by epoch of the chosen model's training: loss, quality, top_1, ...
    predicted, measured
        Scores and relative speeds (best of the task = 1, failed = 0) of the held-out candidates.
    held_out
        Those candidates; None where nothing was held out.
    excluded
        Workloads with a single candidate or without a success, which could neither be learned nor evaluated.
    """

    model: CostModel
    evaluated: CostModel
    chosen: str
    reason: str
    knowledge_base: KnowledgeBase
    knowledge_base_replaced: bool
    knowledge_base_reason: str
    metrics: dict[str, float]
    curves: dict[str, list[float]]
    predicted: np.ndarray
    measured: np.ndarray
    excluded: list[str] = field(default_factory=list)
    held_out: LabelledDataset | None = None


def distill(
    store: RecordStore,
    device: Device,
    knowledge_base: KnowledgeBase | None,
    options: DistillOptions,
    state_dir: Path,
    progress: Progress | None = None,
) -> DistillResult:
    """Learn a device from its records; see `distill_dataset`.

    Raises
    ------
    BadInput
        When the device has no records.
    TooFewWorkloads
        When fewer than three workloads have candidates to compare.
    """
    records, tasks = store.status(device.name).records, len(store.workloads(device.name))
    if records <= HELD_ROWS:
        dataset = load_dataset(store, [device])
        return distill_dataset(dataset, device.name, knowledge_base, options, state_dir, progress)
    dataset = load_dataset(store, [device], limit_per_task=max(8, HELD_ROWS // tasks))

    def stream(keys: Collection[str]) -> Shards:
        return Shards(partial(stream_dataset, store, [device], keys), records * len(keys) // tasks)

    return distill_dataset(dataset, device.name, knowledge_base, options, state_dir, progress, stream)


def distill_dataset(
    dataset: LabelledDataset,
    device: str,
    knowledge_base: KnowledgeBase | None,
    options: DistillOptions,
    state_dir: Path,
    progress: Progress | None = None,
    stream: Callable[[Collection[str]], Shards] | None = None,
) -> DistillResult:
    """Learn a device from a dataset.

    A model is trained from scratch. With a knowledge base an active column is trained as well, and is chosen only when
    it is better on held-out workloads. The chosen model is distilled into the knowledge base, which is replaced only
    when no earlier device loses more than the bound. At last a model of the chosen kind learns all workloads, in as
    many epochs as early stopping found best, so that no measurement is lost to it.

    Where the dataset is only a part of what was measured, `stream` gives all records of some workloads: the models are
    trained on those, everything else is done with the dataset.
    """
    dataset, excluded = learnable(dataset)
    if len(set(dataset.keys)) < 3:
        raise TooFewWorkloads(
            f"device {device} has {len(dataset.keys)} workloads with candidates to compare; distilling needs at least "
            "3 (training, early stopping, evaluation), so measure more candidates or another model"
        )
    if knowledge_base:
        options = replace(options, config=knowledge_base.model.config)
    seed, share = options.train.seed, options.held_out
    rest, test = split_tasks(dataset, share, seed)
    training, validation = split_tasks(rest, share / (1 - share), seed + 1)
    source, everything = (stream(set(part.keys)) if stream else part for part in (training, dataset))
    stages = Stages(state_dir, _fingerprint(dataset, knowledge_base, options), progress)

    def learn(stage: str, model: CostModel) -> tuple[CostModel, TrainReport]:
        timed = stage_options(options.train, stage if knowledge_base else "only")

        def fit(notify: Notify, folder: Path) -> tuple[CostModel, TrainReport]:
            return model, train(model, source, timed, notify, validation=validation, state_dir=folder)

        return stages.run(stage, fit)

    fresh = {"scratch": lambda: build_model(options.config, seed)}
    if knowledge_base:
        fresh["transfer"] = lambda: active_column(knowledge_base, seed)
    candidates = {name: learn(name, make()) for name, make in fresh.items()}
    chosen, reason, metrics = choose({name: model for name, (model, _) in candidates.items()}, test)
    evaluated, report = candidates[chosen]

    new_base, verdict, forgetting = consolidate(
        knowledge_base, evaluated, device, training, validation, test, options, stages
    )

    def learn_all(notify: Notify, folder: Path) -> tuple[CostModel, TrainReport]:
        model = fresh[chosen]()
        timed = stage_options(options.train, "all" if knowledge_base else "only, all")
        whole = replace(timed, epochs=report.best_epoch + 1, held_out=0.0)
        found = train(model, everything, whole, notify, state_dir=folder)
        model.uncertainty_scale.copy_(evaluated.uncertainty_scale)
        return model, found

    model, last = stages.run("all", learn_all)
    metrics["train_seconds"] = last.seconds + sum(past.seconds for _, past in candidates.values())
    scores = evaluated.score(test.batch)[0]
    metrics |= {**top_ks(test, scores), **{f"forgetting_{name}": value for name, value in forgetting.items()}}
    metrics |= {"parameters": parameter_count(model), "tasks": len(dataset.keys), "records": len(dataset)}
    return DistillResult(
        model=model,
        evaluated=evaluated,
        chosen=chosen,
        reason=reason,
        knowledge_base=new_base,
        knowledge_base_replaced=new_base is not knowledge_base,
        knowledge_base_reason=verdict,
        metrics=metrics,
        curves={name: [entry[name] for entry in report.curve] for name in report.curve[0]},
        predicted=scores,
        measured=relevance(test),
        excluded=excluded,
        held_out=test,
    )


def active_column(knowledge_base: KnowledgeBase, seed: int) -> CostModel:
    """A column that reads the frozen knowledge base through lateral connections and starts from its weights."""
    frozen = copy.deepcopy(knowledge_base.model)
    column = build_model(frozen.config, seed, frozen)
    column.load_state_dict(frozen.state_dict(), strict=False)
    return column


def learnable(dataset: LabelledDataset) -> tuple[LabelledDataset, list[str]]:
    """The tasks whose candidates can be compared, two or more with a success, and the other tasks' workload keys."""
    candidates = np.bincount(dataset.task, minlength=len(dataset.keys))
    successes = np.bincount(dataset.task, np.isfinite(dataset.seconds), minlength=len(dataset.keys))
    usable = (candidates > 1) & (successes > 0)
    return take_tasks(dataset, np.flatnonzero(usable)), [
        dataset.keys[task] for task in np.flatnonzero(~usable)
    ]


def _fingerprint(
    dataset: LabelledDataset, knowledge_base: KnowledgeBase | None, options: DistillOptions
) -> str:
    """Hash of everything that the stages depend on."""
    digest = hashlib.sha256(json.dumps(asdict(options), sort_keys=True).encode())
    for array in (*vars(dataset.batch).values(), dataset.task, dataset.seconds):
        digest.update(np.ascontiguousarray(array).tobytes())
    if knowledge_base:
        for value in knowledge_base.model.state_dict().values():
            digest.update(value.numpy().tobytes())
    return digest.hexdigest()
