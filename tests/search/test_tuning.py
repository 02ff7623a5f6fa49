"""Tuning of several tasks with measurements made up by a known rule."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from tcl.records.record import Workload
from tcl.search.evolution import Featuriser
from tcl.search.space import DesignSpace
from tcl.search.task import Observation
from tcl.search.tuning import SearchTask, TaskOutcome, TuneOptions, tune, usual_gain

from .conftest import DEVICE, SUMMARY, Oracle


class Bench:
    """Answers measurements by the oracle's score plus a fixed quirk per trace, and counts them."""

    def __init__(self, space: DesignSpace, fail: bool = False) -> None:
        self.featuriser = Featuriser(space, SUMMARY, DEVICE)
        self.space, self.fail, self.asked = space, fail, []

    def seconds(self, trace: str) -> float:
        found = self.space.locate(trace)
        assert found is not None
        score = float(Oracle().score(self.featuriser.batch([found]))[0][0])
        quirk = int(hashlib.sha256(trace.encode()).hexdigest()[:4], 16) / 65536
        return float(np.exp(-0.5 * score + 0.2 * quirk)) * 1e-3

    def __call__(
        self, requests: Iterable[tuple[SearchTask, str]]
    ) -> Iterator[tuple[SearchTask, Observation]]:
        for task, trace in requests:
            self.asked.append((task.workload.key, trace))
            yield task, Observation(trace, None if self.fail else self.seconds(trace))


def make_task(space: DesignSpace, key: str, *, worth_tuning: bool = True) -> SearchTask:
    return SearchTask(Workload(key, "metaschedule", "matmul", "[]", SUMMARY), 1, lambda: space, worth_tuning)


def run(tasks: list[SearchTask], trials: int, **kwargs: object) -> list[TaskOutcome]:
    options = TuneOptions(trials, population=64, seed=3)
    return tune(tasks, Oracle(), DEVICE, options, **kwargs)  # type: ignore[arg-type]


def test_tune_takes_the_models_word_when_there_are_no_trials(space: DesignSpace) -> None:
    outcome, copy = run([make_task(space, "a" * 16), make_task(space, "b" * 16, worth_tuning=False)], 0)
    assert (outcome.status, outcome.trials, outcome.seconds) == ("predicted", 0, None)
    assert outcome.trace is not None and outcome.score is not None
    assert (copy.status, copy.trials) == ("default", 0)


def test_tune_spends_no_more_than_its_trials_and_returns_the_fastest_measured(space: DesignSpace) -> None:
    bench = Bench(space)
    outcomes = run([make_task(space, "a" * 16), make_task(space, "b" * 16)], 40, measure=bench)
    assert sum(o.trials for o in outcomes) == len(bench.asked) <= 40
    assert len(set(bench.asked)) == len(bench.asked)
    for outcome in outcomes:
        mine = [bench.seconds(trace) for key, trace in bench.asked if key == outcome.task.workload.key]
        assert outcome.seconds == min(mine)
        assert outcome.status == "tuned"
        assert outcome.score is not None


def test_tune_measures_every_task_once_before_any_a_second_time(space: DesignSpace) -> None:
    bench = Bench(space)
    tasks = [make_task(space, letter * 16) for letter in "abcde"]
    assert [outcome.trials for outcome in run(tasks, 5, measure=bench)] == [1] * 5


def test_tune_shares_its_trials_when_the_model_expects_nothing_of_a_task(space: DesignSpace) -> None:
    """The task of weight 2 is worth twice the other, whatever the model makes of their candidates."""
    bench = Bench(space)
    heavy, light = make_task(space, "a" * 16), make_task(space, "b" * 16)
    first, second = run([replace(heavy, weight=2), light], 24, measure=bench)
    assert first.trials >= second.trials >= 6


def test_usual_gain_falls_with_each_candidate() -> None:
    gains = [usual_gain(tried) for tried in range(1, 20)]
    assert gains == sorted(gains, reverse=True) and 0 < gains[-1] < gains[0] < 0.2


def test_tune_is_better_with_trials_than_without(space: DesignSpace) -> None:
    bench = Bench(space)
    (word,) = run([make_task(space, "a" * 16)], 0)
    (tuned,) = run([make_task(space, "a" * 16)], 48, measure=bench)
    assert word.trace is not None and tuned.seconds is not None
    assert tuned.seconds <= bench.seconds(word.trace)


def test_tune_leaves_the_default_when_every_candidate_fails(space: DesignSpace) -> None:
    bench = Bench(space, fail=True)
    (outcome,) = run([make_task(space, "a" * 16)], 16, measure=bench)
    assert outcome.seconds is None
    assert outcome.failures == outcome.trials == len(bench.asked) > 0


def test_tune_measures_nothing_when_earlier_trials_used_up_the_budget(space: DesignSpace) -> None:
    bench = Bench(space)
    trace = space.trace(space.sample(1, np.random.default_rng(4))[0], 0)
    known = {"a" * 16: [Observation(trace, 1e-6)]}
    (outcome,) = run([make_task(space, "a" * 16)], 8, measure=bench, known=known, spent=8)
    assert (outcome.status, outcome.trace, bench.asked) == ("known", trace, [])


def test_tune_goes_on_when_what_is_known_was_not_chosen_by_a_search(space: DesignSpace) -> None:
    """Random measurements of a dataset say nothing of how much a search still finds."""
    populations = space.sample(200, np.random.default_rng(4))
    traces = [space.trace(drawn, row) for drawn in populations for row in range(len(drawn))]
    asked = []
    for is_searched in (True, False):
        bench = Bench(space)
        known = {"a" * 16: [Observation(trace, bench.seconds(trace), is_searched) for trace in traces]}
        run([make_task(space, "a" * 16)], 24, measure=bench, known=known)
        asked.append(len(bench.asked))
    assert asked[0] == 0 and asked[1] > 8


def test_tune_never_returns_a_known_failure(space: DesignSpace) -> None:
    trace = run([make_task(space, "a" * 16)], 0)[0].trace
    assert trace is not None
    (outcome,) = run([make_task(space, "a" * 16)], 0, known={"a" * 16: [Observation(trace, None)]})
    assert outcome.trace != trace


def test_tune_is_the_same_when_the_seed_is(space: DesignSpace) -> None:
    first, second = (run([make_task(space, "a" * 16)], 0)[0].trace for _ in range(2))
    assert first == second
