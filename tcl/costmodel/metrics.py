"""How well scores pick fast candidates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tcl.errors import BadInput

if TYPE_CHECKING:
    from tcl.features.dataset import LabelledDataset


def task_ratios(dataset: LabelledDataset, scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Best latency of each task, and the best among the k candidates of highest score, both float64[tasks] in seconds.

    A failed candidate counts as infinitely slow; where all k failed, the task's slowest successful candidate stands in,
    so that one bad pick does not make the whole metric zero.

    Raises
    ------
    BadInput
        When a task has no successful candidate, or scores do not fit the dataset.
    """
    if k < 1:
        raise BadInput(f"top-k needs k of at least 1, got {k}")
    if scores.shape != dataset.seconds.shape:
        raise BadInput(f"{scores.shape} scores for {dataset.seconds.shape} candidates")
    if not np.isfinite(scores).all():
        raise BadInput("a score is not a finite number; the model has diverged")
    if not dataset.keys:
        raise BadInput("no task to evaluate")
    best, chosen = np.empty(len(dataset.keys)), np.empty(len(dataset.keys))
    # Stable sort by task, then by falling score: the first k rows of each task are its picks.
    order = np.lexsort((-scores, dataset.task))
    bounds = np.searchsorted(dataset.task[order], np.arange(len(dataset.keys) + 1))
    for task, (start, end) in enumerate(pairwise(bounds)):
        seconds = dataset.seconds[order[start:end]]
        succeeded = seconds[np.isfinite(seconds)]
        if not len(succeeded):
            raise BadInput(
                f"task {dataset.keys[task]} of device {dataset.devices[task]} has no successful measurement; "
                "an evaluation without it would be too good, so measure it or leave it out of the split"
            )
        best[task] = succeeded.min()
        chosen[task] = min(seconds[:k].min(), succeeded.max())
    return best, chosen


def top_k(dataset: LabelledDataset, scores: np.ndarray, k: int) -> float:
    """``sum(weight * best latency) / sum(weight * best latency among the first k by score)``; 1 is perfect.

    The metric of TenSet and TLP: the scores rank the candidates of each task, the k highest are taken as measured.
    Ties are broken by the order of the rows.

    Parameters
    ----------
    dataset
        Measured candidates; its `weights` say how often each task occurs.
    scores : float[n]
        Higher is faster.
    k
        Candidates taken per task.
    """
    best, chosen = task_ratios(dataset, scores, k)
    return float((dataset.weights * best).sum() / (dataset.weights * chosen).sum())


def top_ks(
    dataset: LabelledDataset, scores: np.ndarray, ks: Sequence[int] = (1, 5, 10, 20)
) -> dict[str, float]:
    """`top_k` for several k, by name: ``{"top_1": ..., "top_5": ...}``."""
    return {f"top_{k}": top_k(dataset, scores, k) for k in ks}


def mean_ratio(dataset: LabelledDataset, scores: np.ndarray, k: int) -> float:
    """Mean over the tasks of best latency over the best among the first k by score.

    The share of the best speed that the picks reach. Unlike `top_k`, no single task can dominate it, so early stopping
    and gates on few tasks go by it.
    """
    best, chosen = task_ratios(dataset, scores, k)
    return float((best / chosen).mean())


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's rank correlation of two ``float[n]``; equal values count in the order that they come in."""
    ranks = [np.argsort(np.argsort(values, kind="stable")) for values in (first, second)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
