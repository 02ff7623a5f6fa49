"""Training data as steps of groups: the candidates of a group belong to one task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tcl.costmodel.network import Inputs

if TYPE_CHECKING:
    from tcl.features.dataset import LabelledDataset


@dataclass
class Groups:
    """One step's candidates: g groups of up to m candidates, each group of one task.

    `rows` int64[g, m] index the dataset, `mask` bool[g, m] tells candidates from filling, `relevance` float[g, m] is
    the task's best latency over the candidate's (0 for failures), `inputs` hold the g * m candidates row by row.
    """

    rows: Tensor
    mask: Tensor
    relevance: Tensor
    inputs: Inputs


def relevance(dataset: LabelledDataset) -> np.ndarray:
    """Best latency of each candidate's task over the candidate's own: float32[n] in [0, 1], 0 for failures."""
    best = np.full(len(dataset.keys), np.inf)
    np.minimum.at(best, dataset.task, dataset.seconds)
    failed = ~np.isfinite(dataset.seconds)
    return np.where(failed, 0.0, best[dataset.task] / np.where(failed, 1.0, dataset.seconds)).astype(
        np.float32
    )


@dataclass(frozen=True)
class Shards:
    """A dataset that need not fit in memory: `load` streams its parts, whole tasks each; `rows` is the size of all."""

    load: Callable[[], Iterable[LabelledDataset]]
    rows: int


def epoch_groups(
    shards: Shards, group: int, groups: int, seed: tuple[int, ...], where: torch.device | str = "cpu"
) -> Iterator[tuple[float, Groups]]:
    """Each row once, in groups of one task, in an order that the seed fixes: (share of the epoch done, groups).

    Parameters
    ----------
    shards
        What to go through.
    group, groups
        Candidates in a group, about, and groups in a step.
    seed
        Decides which candidates meet, and the order within a shard.
    where
        Device of the tensors.
    """
    seen = 0
    for number, dataset in enumerate(shards.load()):
        for step in _shard_groups(dataset, group, groups, np.random.default_rng((*seed, number)), where):
            yield seen / max(shards.rows, 1), step
            seen += int(step.mask.sum())


def _shard_groups(
    dataset: LabelledDataset, group: int, groups: int, rng: np.random.Generator, where: torch.device | str
) -> Iterator[Groups]:
    labels = relevance(dataset)
    shuffled = rng.permutation(len(dataset.task))
    shuffled = shuffled[np.argsort(dataset.task[shuffled], kind="stable")]
    counts = np.bincount(dataset.task, minlength=len(dataset.keys))
    parts = []
    for task in np.split(shuffled, np.cumsum(counts)[:-1]):
        parts += [p for p in np.array_split(task, max(1, round(len(task) / group))) if len(p) > 1]
    rng.shuffle(parts)
    for start in range(0, len(parts), groups):
        chosen = parts[start : start + groups]
        rows = np.zeros((len(chosen), max(map(len, chosen))), np.int64)
        mask = np.zeros(rows.shape, bool)
        for i, part in enumerate(chosen):
            rows[i, : len(part)], mask[i, : len(part)] = part, True
        index, valid, relevant = (
            torch.from_numpy(array).to(where) for array in (rows, mask, labels[rows] * mask)
        )
        inputs = Inputs.of(dataset.batch.take(rows.ravel()), where)
        yield Groups(index, valid, relevant, inputs)
