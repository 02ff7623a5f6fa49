"""Choosing over tasks."""

import numpy as np
from costmodel.synthetic import random_batch

from tcl.costmodel.network import CostModelConfig, build_model
from tcl.sampling.tasks import most_share, select_tasks

MODEL = build_model(CostModelConfig(width=16), 0)


def test_budget_is_spent_whole_and_follows_the_size_of_the_pools() -> None:
    batches = [random_batch(300, 6, 0), random_batch(100, 6, 1), random_batch(5, 6, 2).take([])]
    picks = select_tasks(batches, MODEL, 40, terms=frozenset("rd"), seed=0)
    assert [len(rows) for rows in picks] == [30, 10, 0]
    assert all(len(set(rows.tolist())) == len(rows) for rows in picks)


def test_task_gets_more_when_the_model_is_less_sure_of_it() -> None:
    batches = [random_batch(100, 6, seed) for seed in range(2)]
    batches[1].values *= 20
    unsure, sure = sorted(range(2), key=lambda task: MODEL.score(batches[task])[1].mean(), reverse=True)
    picks = select_tasks(batches, MODEL, 50, seed=0)
    assert len(picks[sure]) < len(picks[unsure]) <= most_share(25)


def test_what_was_chosen_before_is_not_chosen_again() -> None:
    batches = [random_batch(20, 6, 0), random_batch(20, 6, 1)]
    first = select_tasks(batches, MODEL, 30, seed=0)
    second = select_tasks(batches, MODEL, 30, chosen=first, seed=0)
    assert sum(map(len, second)) == 10
    for before, after in zip(first, second, strict=True):
        assert np.array_equal(np.sort(np.append(before, after)), np.arange(20))
