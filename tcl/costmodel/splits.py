"""Parts of a dataset. Splits go by workload: rows of one workload never stand on both sides, on no device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tcl.errors import BadInput

if TYPE_CHECKING:
    from tcl.features.dataset import LabelledDataset


def take_rows(dataset: LabelledDataset, rows: np.ndarray) -> LabelledDataset:
    """The rows that int64 `rows` index, with all tasks kept, also those that lose every row."""
    return replace(
        dataset,
        batch=dataset.batch.take(rows),
        task=dataset.task[rows],
        seconds=dataset.seconds[rows],
        origin=[dataset.origin[row] for row in rows],
    )


def take_tasks(dataset: LabelledDataset, tasks: np.ndarray) -> LabelledDataset:
    """The tasks that int64 `tasks` number, renumbered in that order, with their rows in the order of the dataset."""
    number = np.full(len(dataset.keys), -1, np.int32)
    number[tasks] = np.arange(len(tasks), dtype=np.int32)
    part = take_rows(dataset, np.flatnonzero(number[dataset.task] >= 0))
    return replace(
        part,
        task=number[part.task],
        keys=[dataset.keys[task] for task in tasks],
        devices=[dataset.devices[task] for task in tasks],
        weights=dataset.weights[tasks],
    )


def split_tasks(dataset: LabelledDataset, share: float, seed: int) -> tuple[LabelledDataset, LabelledDataset]:
    """Hold out `share` of the workloads, at least one: (training, held out).

    Raises
    ------
    BadInput
        When fewer than two workloads are there.
    """
    keys = sorted(set(dataset.keys))
    if len(keys) < 2:
        raise BadInput(
            f"{len(keys)} workload cannot be split into training and validation; measure more workloads"
        )
    count = min(max(1, round(share * len(keys))), len(keys) - 1)
    held = set(np.random.default_rng(seed).permutation(keys)[:count].tolist())
    return _divide(dataset, held)


def folds(dataset: LabelledDataset, k: int, seed: int) -> Iterator[tuple[LabelledDataset, LabelledDataset]]:
    """K-fold by workload: (training, held out) k times; each workload is held out once."""
    keys = np.random.default_rng(seed).permutation(sorted(set(dataset.keys)))
    for fold in range(k):
        yield _divide(dataset, set(keys[fold::k].tolist()))


def _divide(dataset: LabelledDataset, held: set[str]) -> tuple[LabelledDataset, LabelledDataset]:
    out = np.array([key in held for key in dataset.keys])
    return take_tasks(dataset, np.flatnonzero(~out)), take_tasks(dataset, np.flatnonzero(out))
