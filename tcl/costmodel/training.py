"""Training of a cost model: groups of one task each, early stopping on held-out tasks, resumable after each epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tcl.costmodel.checkpoint import TrainingState
from tcl.costmodel.groups import Groups, Shards, epoch_groups, relevance
from tcl.costmodel.losses import ranking_loss, target_score
from tcl.costmodel.metrics import top_ks
from tcl.costmodel.network import Scorer
from tcl.costmodel.splits import split_tasks
from tcl.errors import WorkFailed

if TYPE_CHECKING:
    from tcl.features.dataset import LabelledDataset


@dataclass(frozen=True)
class TrainOptions:
    """How a model is trained.

    Attributes
    ----------
    epochs
        Most epochs.
    seed
        Seed of the batches, the bootstrap of the heads and the split.
    learning_rate, weight_decay
        Of AdamW; the rate rises over the first twentieth and then follows a cosine to zero.
    group, groups
        Candidates in a group (all of one task), and groups in a step.
    bootstrap
        Share of the candidates that each head learns from; the rest differs from head to head.
    held_out
        Share of the workloads that early stopping looks at, where no validation data is given; 0: none, and the
        last weights are kept.
    patience
        Epochs without improvement before training stops; None: it never does, and the last weights are kept.
    seconds
        Wall-clock budget; the learning rate reaches zero there. With it, a run depends on the machine's speed.
    """

    epochs: int = 50
    seed: int = 0
    learning_rate: float = 2e-3
    weight_decay: float = 1e-2
    group: int = 32
    groups: int = 4
    bootstrap: float = 0.8
    held_out: float = 0.15
    patience: int | None = 20
    seconds: float | None = None


@dataclass
class TrainReport:
    """What a training did: an entry for each epoch (epoch, loss, seconds, quality, top_1, ...) and the epoch kept."""

    curve: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = -1
    seconds: float = 0.0


Objective = Callable[[Any, Groups], Tensor]
"""A loss to minimise over one step's groups."""


_BOOTSTRAP_ROWS = 1 << 16  # after so many rows the heads' shares repeat


def ranking_objective(heads: int, options: TrainOptions) -> Objective:
    """The ranking loss of every head, each on its own random share of the rows."""
    generator = torch.Generator().manual_seed(options.seed)
    kept = torch.rand(_BOOTSTRAP_ROWS, heads, generator=generator) < options.bootstrap

    def objective(model: Scorer, groups: Groups) -> Tensor:
        g, m = groups.rows.shape
        scores = model(groups.inputs).view(g, m, heads)
        mask = groups.mask.unsqueeze(-1) & kept.to(groups.mask.device)[groups.rows % _BOOTSTRAP_ROWS]
        by_head = (t.movedim(-1, 0).reshape(heads * g, m) for t in (scores, mask))
        return ranking_loss(next(by_head), groups.relevance.repeat(heads, 1), next(by_head))

    return objective


def train(
    model: Scorer,
    dataset: LabelledDataset | Shards,
    options: TrainOptions,
    progress: Callable[[dict[str, float]], None] | None = None,
    *,
    validation: LabelledDataset | None = None,
    objective: Objective | None = None,
    state_dir: Path | None = None,
) -> TrainReport:
    """Train `model` in place and leave it with the weights of its best epoch on the held-out tasks.

    Without held-out tasks the last weights are kept, and `uncertainty_scale` stays as it is.

    Parameters
    ----------
    model
        The model to train; parameters that need no gradient stay as they are.
    dataset
        Measured candidates, or shards of more than fits in memory.
    options
        How to train.
    progress
        Called after each epoch with its entry of the learning curve.
    validation
        Held-out tasks; None: `options.held_out` of the dataset's workloads are taken out of it (not of shards).
    objective
        The loss; None: the ranking loss.
    state_dir
        Where the state is kept after each epoch. A run that finds the state of the same options there goes on from it;
        the folder's state is deleted at the end.

    Raises
    ------
    BadInput
        When the dataset has fewer than two workloads and no validation is given, or a validation task has no success.
    WorkFailed
        When the loss stops being finite.
    """
    if not isinstance(dataset, Shards):
        if validation is None and options.held_out > 0:
            dataset, validation = split_tasks(dataset, options.held_out, options.seed)
        whole = dataset
        dataset = Shards(lambda: [whole], len(whole))
    elif validation is None and options.held_out > 0:
        raise ValueError("nothing can be held out of shards: give validation data")
    objective = objective or ranking_objective(model.heads, options)
    optimizer = _optimizer(model, options)
    report = TrainReport()
    state = TrainingState(state_dir, asdict(options)) if state_dir else None
    best = state.restore(model, optimizer, report) if state else None
    where = next(model.parameters()).device
    before = report.seconds
    started = time.monotonic()
    for epoch in range(len(report.curve), options.epochs):
        model.train()
        losses: list[float] = []
        seed = (options.seed, epoch)
        for done, groups in epoch_groups(dataset, options.group, options.groups, seed, where):
            elapsed = before + time.monotonic() - started
            if losses and options.seconds is not None and elapsed >= options.seconds:
                break
            _set_rate(optimizer, options, (epoch + done) / options.epochs, elapsed)
            loss = objective(model, groups)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        if not losses or not math.isfinite(losses[-1]):
            raise WorkFailed(
                f"training diverged in epoch {epoch + 1}: the loss is {losses[-1:] or 'of no group'}"
            )
        report.seconds = before + time.monotonic() - started
        entry = {"epoch": epoch, "loss": float(np.mean(losses)), "seconds": report.seconds}
        report.curve.append(entry)
        if validation is not None:
            entry |= _judge(model, validation, report.curve[-_SMOOTHING:-1])
        lasting = best is None or validation is None or options.patience is None
        if lasting or entry["smooth_quality"] > report.curve[report.best_epoch]["smooth_quality"]:
            report.best_epoch = epoch
            best = {name: value.detach().clone() for name, value in model.state_dict().items()}
        if progress:
            progress(entry)
        if state:
            state.save(model, optimizer, report, best)
        over = options.seconds is not None and report.seconds >= options.seconds
        if over or (options.patience is not None and epoch - report.best_epoch >= options.patience):
            break
    if best is not None:
        model.load_state_dict(best)
        if validation is not None:
            calibrate(model, validation)
    if state:
        state.clear()
    return report


_SMOOTHING = 5  # epochs; a single lucky epoch on few held-out tasks must not win


def _judge(model: Scorer, validation: LabelledDataset, before: list[dict[str, float]]) -> dict[str, float]:
    """What the learning curve says of an epoch, with its quality averaged over some epochs `before` it."""
    scores = model.score(validation.batch)[0]
    found = quality(validation, scores)
    smooth = float(np.mean([*(past["quality"] for past in before), found]))
    return {**top_ks(validation, scores), "quality": found, "smooth_quality": smooth}


def quality(dataset: LabelledDataset, scores: np.ndarray, first: int = 5) -> float:
    """What early stopping maximises: mean relevance of each task's `first` candidates by score, mean over the tasks.

    Top-1 of a few held-out tasks jumps with single picks; this moves smoothly with it. Of a small task it takes only
    the best quarter, since the mean over nearly all candidates says nothing of their order.
    """
    labels = relevance(dataset)
    order = np.lexsort((-scores, dataset.task))
    groups = np.split(labels[order], np.cumsum(np.bincount(dataset.task, minlength=len(dataset.keys)))[:-1])
    return float(np.mean([group[: max(1, min(first, len(group) // 4))].mean() for group in groups]))


def calibrate(model: Scorer, dataset: LabelledDataset) -> None:
    """Set the model's `uncertainty_scale`: mean squared spread = mean squared error of the scores within a task."""
    scores = model.head_scores(dataset.batch)
    error = scores.mean(1) - target_score(torch.from_numpy(relevance(dataset))).numpy()
    counts = np.bincount(dataset.task, minlength=len(dataset.keys)).clip(min=1)
    error -= (np.bincount(dataset.task, error, minlength=len(counts)) / counts)[dataset.task]
    spread = scores.var(1).mean()
    if spread > 0:
        model.uncertainty_scale.fill_(float(np.sqrt((error**2).mean() / spread)))


def _optimizer(model: Scorer, options: TrainOptions) -> torch.optim.AdamW:
    """AdamW; weight decay for matrices only, and not for ``A_log``, as in ``mamba_ssm``."""
    decayed: list[Tensor] = []
    plain: list[Tensor] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (decayed if parameter.ndim >= 2 and not name.endswith("A_log") else plain).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": options.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=options.learning_rate, foreach=True)


def _set_rate(optimizer: torch.optim.Optimizer, options: TrainOptions, done: float, elapsed: float) -> None:
    if options.seconds is not None:
        done = max(done, elapsed / options.seconds)
    done = min(done, 1.0)
    rate = options.learning_rate * min(1.0, 20 * done + 0.01) * 0.5 * (1 + math.cos(math.pi * done))
    for group in optimizer.param_groups:
        group["lr"] = rate
