"""The two gates: no model that transfer made worse, no knowledge base that forgets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tcl.costmodel.network import CostModel
from tcl.costmodel.training import TrainReport
from tcl.distillation.consolidation import compress, fisher_information, online_fisher
from tcl.distillation.knowledge import KnowledgeBase, top_1, validation_sample
from tcl.distillation.options import DistillOptions, stage_options
from tcl.distillation.stages import Notify, Stages
from tcl.features.dataset import LabelledDataset


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
    timed = stage_options(options.train, "compress")
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


def _remember(
    knowledge_base: KnowledgeBase, device: str, test: LabelledDataset, options: DistillOptions
) -> KnowledgeBase:
    sample = validation_sample(test, options.train.seed)
    return replace(
        knowledge_base,
        validation={**knowledge_base.validation, device: sample},
        learned={**knowledge_base.learned, device: top_1(knowledge_base.model, sample)},
    )
