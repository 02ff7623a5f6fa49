"""Compress: distil a device's model into the knowledge base without forgetting the earlier devices.

Two things hold the knowledge base back; neither reads data of earlier devices:

* Online elastic weight consolidation as in Progress & Compress (Schwarz et al. 2018, arXiv 1805.06370): one running
  Fisher information for all earlier devices, normalised for each device so that the scale of its scores does not
  matter, and one anchor, the latest knowledge base.
* Rehearsal on the new device's candidates as if they ran on an earlier device (ours, after learning without forgetting,
  Li & Hoiem 2016, arXiv 1606.09282): the device is an input of the model, so the anchor itself says what it knew of
  them there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tcl.costmodel.groups import Groups, Shards, epoch_groups
from tcl.costmodel.network import CostModel
from tcl.costmodel.training import Objective, TrainOptions, TrainReport, train
from tcl.features.dataset import LabelledDataset

_FISHER_STEPS = 64
_REHEARSAL = (
    3.0  # weight beside the new device's loss: what was known of earlier devices cannot be measured again
)


def compress(
    knowledge: CostModel,
    fisher: dict[str, Tensor],
    earlier: np.ndarray,
    teacher: CostModel,
    dataset: LabelledDataset,
    validation: LabelledDataset,
    options: TrainOptions,
    strength: float,
    *,
    state_dir: Path | None = None,
    progress: Callable[[dict[str, float]], None] | None = None,
) -> tuple[CostModel, TrainReport]:
    """Train a copy of `knowledge` to score the new device's candidates like `teacher`, held back by EWC.

    Parameters
    ----------
    knowledge, fisher
        The knowledge base's model and the importance of its parameters.
    earlier : float32[k, D]
        Descriptors of the earlier devices; without one nothing is rehearsed.
    teacher
        The new device's model.
    dataset, validation
        Candidates of the new device to distil on, and held-out tasks for the learning curve.
    options
        How to train.
    strength
        Weight of EWC's penalty, ``strength / 2 * mean(fisher * change**2)``.
    """
    student = copy.deepcopy(knowledge).requires_grad_(True)
    scores = torch.from_numpy(teacher.head_scores(dataset.batch))
    objective = _distillation(scores, knowledge, fisher, torch.from_numpy(earlier), strength, options.seed)
    report = train(
        student, dataset, options, progress, validation=validation, objective=objective, state_dir=state_dir
    )
    return student, report


def _distillation(
    teacher: Tensor,
    knowledge: CostModel,
    fisher: dict[str, Tensor],
    earlier: Tensor,
    strength: float,
    seed: int,
) -> Objective:
    """Regression to each head of the teacher, so that the ensemble's spread is distilled too; rehearsal; EWC."""
    anchor = {name: parameter.detach().clone() for name, parameter in knowledge.named_parameters()}
    size = sum(value.numel() for value in anchor.values())

    def objective(model: CostModel, groups: Groups) -> Tensor:
        valid = groups.mask.flatten()
        scores = model(groups.inputs)[valid]
        loss = F.huber_loss(scores, teacher[groups.rows.flatten()[valid]].to(scores))
        if len(earlier):
            # A function of the step, so that a resumed training rehearses the same.
            generator = torch.Generator().manual_seed(seed + int(groups.rows.sum()))
            devices = earlier[torch.randint(len(earlier), valid.shape, generator=generator)].to(scores)
            before = replace(groups.inputs, device=devices)
            with torch.no_grad():
                known = knowledge(before)
            loss = loss + _REHEARSAL * F.huber_loss(model(before)[valid], known[valid])
        change = torch.zeros_like(loss)
        for name, parameter in model.named_parameters():
            change = change + (fisher[name] * (parameter - anchor[name]) ** 2).sum()
        return loss + strength / 2 * change / size

    return objective


def fisher_information(
    model: CostModel, dataset: LabelledDataset, options: TrainOptions
) -> dict[str, Tensor]:
    """Fisher information of the scores under unit Gaussian noise, scaled to a mean of 1, by parameter name.

    ``E[sum over candidates and heads of (d score / d parameter)**2]``, estimated without a backward pass for each: the
    square of the gradient of a sum of scores with independent random signs has this expectation.
    """
    generator = torch.Generator().manual_seed(options.seed)
    total = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    student = copy.deepcopy(model).requires_grad_(True)
    steps = epoch_groups(
        Shards(lambda: [dataset], len(dataset)), options.group, options.groups, (options.seed,)
    )
    for _, (_, groups) in zip(range(_FISHER_STEPS), steps, strict=False):
        scores = student(groups.inputs)[groups.mask.flatten()]
        signs = torch.randint(0, 2, scores.shape, generator=generator) * 2.0 - 1
        student.zero_grad()
        (scores * signs).sum().backward()
        for name, parameter in student.named_parameters():
            if parameter.grad is not None:
                total[name] += parameter.grad**2
    mean = sum(float(value.sum()) for value in total.values()) / sum(
        value.numel() for value in total.values()
    )
    return {name: value / max(mean, 1e-30) for name, value in total.items()}


def online_fisher(old: dict[str, Tensor], new: dict[str, Tensor], decay: float) -> dict[str, Tensor]:
    """Running importance: what earlier devices need, faded by `decay`, plus what the new one needs."""
    return {name: decay * old[name] + value for name, value in new.items()}
