"""Continual distillation of one device: progress (an active column), the gates, compress (into the knowledge base).

Progress & Compress is by Schwarz et al. 2018 (arXiv 1805.06370), its use for cost models by TCL (arXiv 2604.12891).
Ours are the start of the active column (the knowledge base's weights, lateral connections at zero), the two gates, and
the choice of EWC's strength by the forgetting that it leaves.
"""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tcl.costmodel.metrics import top_ks
from tcl.costmodel.network import CostModel, CostModelConfig, build_model, parameter_count
from tcl.costmodel.splits import split_tasks, take_tasks
from tcl.costmodel.training import TrainOptions, TrainReport, relevance, train
from tcl.distillation.consolidation import compress, fisher_information, online_fisher
from tcl.distillation.knowledge import KnowledgeBase, top_1, validation_sample
from tcl.distillation.stages import Notify, Progress, Stages
from tcl.errors import BadInput
from tcl.features.dataset import LabelledDataset, load_dataset

if TYPE_CHECKING:
    from tcl.devices.device import Device
    from tcl.records.store import RecordStore


@dataclass(frozen=True)
class DistillOptions:
    """How a device is learned.

    Attributes
    ----------
    config
        Shape of the models; with a knowledge base, its shape is taken.
    train
        How each stage is trained; its `seconds` are the budget of the whole distillation.
    held_out
        Share of the workloads for early stopping, and as much again for the gates and the reported metrics.
    ewc_strengths
        Weights of EWC's penalty, tried one after another until the knowledge base forgets little enough.
    fisher_decay
        How much of the earlier devices' importance remains with each new device.
    forgetting_bound
        Top-1 that the knowledge base may lose on an earlier device.
    """

    config: CostModelConfig = field(default_factory=CostModelConfig)
    train: TrainOptions = field(default_factory=TrainOptions)
    held_out: float = 0.15
    ewc_strengths: tuple[float, ...] = (100.0, 1000.0, 10000.0)
    fisher_decay: float = 0.95
    forgetting_bound: float = 0.02


@dataclass
class DistillResult:
    """What a distillation made.

    Attributes
    ----------
    model
        The device's cost model: the active column, or the one trained from scratch.
    chosen
        ``"transfer"`` or ``"scratch"``.
    reason
        Why that one, in a sentence.
    knowledge_base
        The new knowledge base; the old one where the new one forgot too much.
    knowledge_base_replaced, knowledge_base_reason
        Whether it was replaced, and why or why not.
    metrics
        ``top_1`` ... ``top_20`` of the model on held-out workloads, ``top_1_transfer`` and ``top_1_scratch`` by which
        the gate decided, ``forgetting_DEVICE``, ``parameters``, ``train_seconds``, ``tasks``, ``records``.
    curves
        Values by epoch of the chosen model's training: loss, quality, top_1, ...
    predicted, measured
        Scores and relative speeds (best of the task = 1, failed = 0) of the held-out candidates.
    excluded
        Workloads without a single success, which could neither be learned nor evaluated.
    """

    model: CostModel
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
        When the device has no records, or fewer than three workloads with a success.
    """
    dataset = load_dataset(store, [device])
    return distill_dataset(dataset, device.name, knowledge_base, options, state_dir, progress)


def distill_dataset(
    dataset: LabelledDataset,
    device: str,
    knowledge_base: KnowledgeBase | None,
    options: DistillOptions,
    state_dir: Path,
    progress: Progress | None = None,
) -> DistillResult:
    """Learn a device from a dataset.

    A model is trained from scratch. With a knowledge base an active column is trained as well, and is chosen only when
    it is better on held-out workloads. The chosen model is distilled into the knowledge base, which is replaced only
    when no earlier device loses more than the bound.
    """
    dataset, excluded = with_success(dataset)
    if len(set(dataset.keys)) < 3:
        raise BadInput(
            f"device {device} has {len(dataset.keys)} workloads with a successful measurement; distilling needs at "
            "least 3 (training, early stopping, evaluation), so measure another model"
        )
    if knowledge_base:
        options = replace(options, config=knowledge_base.model.config)
    seed, share = options.train.seed, options.held_out
    rest, test = split_tasks(dataset, share, seed)
    training, validation = split_tasks(rest, share / (1 - share), seed + 1)
    stages = Stages(state_dir, _fingerprint(dataset, knowledge_base, options), progress)

    def learn(stage: str, model: CostModel) -> tuple[CostModel, TrainReport]:
        timed = _share(options.train, stage if knowledge_base else "only")

        def fit(notify: Notify, folder: Path) -> tuple[CostModel, TrainReport]:
            return model, train(model, training, timed, notify, validation=validation, state_dir=folder)

        return stages.run(stage, fit)

    candidates = {"scratch": learn("scratch", build_model(options.config, seed))}
    if knowledge_base:
        candidates["transfer"] = learn("transfer", active_column(knowledge_base, seed))
    chosen, reason, metrics = choose({name: model for name, (model, _) in candidates.items()}, test)
    model, report = candidates[chosen]
    metrics["train_seconds"] = sum(past.seconds for _, past in candidates.values())

    new_base, verdict, forgetting = consolidate(
        knowledge_base, model, device, training, validation, test, options, stages
    )
    scores = model.score(test.batch)[0]
    metrics |= {**top_ks(test, scores), **{f"forgetting_{name}": value for name, value in forgetting.items()}}
    metrics |= {"parameters": parameter_count(model), "tasks": len(dataset.keys), "records": len(dataset)}
    return DistillResult(
        model=model,
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
    )


def choose(models: dict[str, CostModel], test: LabelledDataset) -> tuple[str, str, dict[str, float]]:
    """The negative-transfer gate: (name of the model to use, why, top-1 of each as metrics).

    Transfer must be better than training from scratch on the new device's held-out workloads.
    """
    top = {name: top_1(model, test) for name, model in models.items()}
    metrics = {f"top_1_{name}": value for name, value in top.items()}
    if "transfer" not in top:
        return "scratch", "there is no knowledge base yet", metrics
    better = top["transfer"] > top["scratch"]
    reason = (
        f"transfer {'beats' if better else 'does not beat'} training from scratch on {len(test.keys)} held-out "
        f"workloads: top-1 {top['transfer']:.3f} against {top['scratch']:.3f}"
    )
    return "transfer" if better else "scratch", reason, metrics


def consolidate(
    knowledge_base: KnowledgeBase | None,
    teacher: CostModel,
    device: str,
    training: LabelledDataset,
    validation: LabelledDataset,
    test: LabelledDataset,
    options: DistillOptions,
    stages: Stages,
) -> tuple[KnowledgeBase, str, dict[str, float]]:
    """Compress and the forgetting gate: (the knowledge base to keep, why, top-1 lost on each earlier device)."""
    timed = _share(options.train, "compress")
    if knowledge_base is None:
        student, fisher, verdict = (
            teacher,
            fisher_information(teacher, training, timed),
            "the first device makes it",
        )
        return _remember(KnowledgeBase(student, fisher), device, test, options), verdict, {}
    descriptors = knowledge_base.descriptors(without=device)
    lost: dict[str, float] = {}
    for strength in options.ewc_strengths:

        def fit(notify: Notify, folder: Path, strength: float = strength) -> tuple[CostModel, TrainReport]:
            base = knowledge_base.model, knowledge_base.fisher, descriptors
            return compress(
                *base, teacher, training, validation, timed, strength, state_dir=folder, progress=notify
            )

        student, _ = stages.run(f"compress-{strength:g}", fit)
        lost = knowledge_base.forgetting(student, without=device)
        worst = max(lost.values(), default=0.0)
        if worst <= options.forgetting_bound:
            fisher = online_fisher(
                knowledge_base.fisher, fisher_information(student, training, timed), options.fisher_decay
            )
            verdict = f"top-1 lost on earlier devices is at most {worst:.3f} (EWC strength {strength:g})"
            kept = replace(knowledge_base, model=student, fisher=fisher)
            return _remember(kept, device, test, options), verdict, lost
    device_lost = max(lost, key=lambda name: lost[name])
    verdict = (
        f"kept as it was: learning {device} costs {device_lost} {lost[device_lost]:.3f} of top-1, more than the bound "
        f"{options.forgetting_bound:g}"
    )
    return knowledge_base, verdict, lost


def active_column(knowledge_base: KnowledgeBase, seed: int) -> CostModel:
    """A column that reads the frozen knowledge base through lateral connections and starts from its weights."""
    frozen = copy.deepcopy(knowledge_base.model)
    column = build_model(frozen.config, seed, frozen)
    column.load_state_dict(frozen.state_dict(), strict=False)
    return column


def with_success(dataset: LabelledDataset) -> tuple[LabelledDataset, list[str]]:
    """The tasks that have a successful candidate, and the workload keys of those that have none."""
    successes = np.bincount(dataset.task, np.isfinite(dataset.seconds), minlength=len(dataset.keys))
    excluded = [dataset.keys[task] for task in np.flatnonzero(successes == 0)]
    return take_tasks(dataset, np.flatnonzero(successes > 0)), excluded


def _remember(
    knowledge_base: KnowledgeBase, device: str, test: LabelledDataset, options: DistillOptions
) -> KnowledgeBase:
    sample = validation_sample(test, options.train.seed)
    return replace(
        knowledge_base,
        validation={**knowledge_base.validation, device: sample},
        learned={**knowledge_base.learned, device: top_1(knowledge_base.model, sample)},
    )


_SHARES = {"only": 1.0, "scratch": 0.35, "transfer": 0.45, "compress": 0.2}


def _share(options: TrainOptions, stage: str) -> TrainOptions:
    """The stage's share of the time budget; compressing needs fewer epochs, since its teacher has no noise."""
    epochs = options.epochs if stage != "compress" else max(1, options.epochs // 3)
    return replace(options, epochs=epochs, seconds=options.seconds and options.seconds * _SHARES[stage])


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
