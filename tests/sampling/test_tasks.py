"""Choosing over tasks."""

import numpy as np
from costmodel.synthetic import random_batch

from tcl.costmodel.network import CostModelConfig, build_model
from tcl.sampling.tasks import select_tasks

MODEL = build_model(CostModelConfig(width=16), 0)


def test_budget_is_spent_whole_and_follows_the_size_of_the_pools() -> None:
    batches = {
        "large": random_batch(300, 6, 0),
        "small": random_batch(100, 6, 1),
        "empty": random_batch(5, 6, 2).take([]),
    }
    picks = select_tasks(batches, MODEL, 40, terms=frozenset("rd"), seed=0)
    assert {key: len(rows) for key, rows in picks.items()} == {"large": 30, "small": 10, "empty": 0}
    assert all(len(set(rows.tolist())) == len(rows) for rows in picks.values())


def test_task_gets_more_when_the_model_is_less_sure_of_it() -> None:
    batches = {name: random_batch(100, 6, seed) for seed, name in enumerate("ab")}
    batches["b"].values *= 20
    unsure, sure = sorted(batches, key=lambda key: MODEL.score(batches[key])[1].mean(), reverse=True)
    picks = select_tasks(batches, MODEL, 50, seed=0)
    assert len(picks[sure]) < len(picks[unsure]) <= 4 * len(picks[sure])


def test_what_was_chosen_before_is_not_chosen_again() -> None:
    batches = {"a": random_batch(20, 6, 0), "b": random_batch(20, 6, 1)}
    first = select_tasks(batches, MODEL, 30, seed=0)
    second = select_tasks(batches, MODEL, 30, chosen=first, seed=0)
    assert sum(map(len, second.values())) == 10
    assert all(not set(first[key]) & set(second[key]) for key in batches)
    assert all(np.array_equal(np.sort(np.append(first[key], second[key])), np.arange(20)) for key in batches)
