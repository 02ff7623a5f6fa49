"""Splits by workload."""

from dataclasses import replace

import numpy as np
import pytest

from tcl.costmodel.splits import folds, split_tasks, take_tasks
from tcl.errors import BadInput
from tcl.features.dataset import LabelledDataset


def two_devices(dataset: LabelledDataset) -> LabelledDataset:
    other = replace(dataset, devices=["gpu"] * len(dataset.keys))
    return LabelledDataset.concat([dataset, other])


def test_split_keeps_a_workload_on_one_side_when_several_devices_have_it(dataset: LabelledDataset) -> None:
    training, held = split_tasks(two_devices(dataset), 0.25, seed=0)
    assert len(held.keys) == 4 and len(training.keys) == 12
    assert not set(training.keys) & set(held.keys)
    assert len(training) + len(held) == 2 * len(dataset)


def test_folds_hold_each_workload_out_once(dataset: LabelledDataset) -> None:
    held = [key for _, part in folds(dataset, 3, seed=0) for key in part.keys]
    assert sorted(held) == sorted(dataset.keys)


def test_take_tasks_renumbers_and_keeps_rows_with_their_task(dataset: LabelledDataset) -> None:
    part = take_tasks(dataset, np.array([5, 2]))
    assert part.keys == ["workload-5", "workload-2"]
    for number, task in enumerate((5, 2)):
        np.testing.assert_array_equal(
            part.seconds[part.task == number], dataset.seconds[dataset.task == task]
        )


def test_split_refuses_a_single_workload(dataset: LabelledDataset) -> None:
    with pytest.raises(BadInput, match="measure more workloads"):
        split_tasks(take_tasks(dataset, np.array([0])), 0.5, seed=0)
