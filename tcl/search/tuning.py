"""Tuning of a network's tasks: which candidates are measured, in what order, and when to stop."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tcl.features.workload import WorkloadSummary
from tcl.measuring.engine import MeasuringEngine
from tcl.measuring.types import MeasureRequest, MeasureResult, seconds_at_usual_speed
from tcl.records.record import Workload
from tcl.search.space import DesignSpace
from tcl.search.task import Candidate, Model, Observation, TaskSearch

RUNNERS_UP = 8
"""Schedules that are kept of a task besides the best one."""
_ATTEMPTS = 8  # candidates of a task that may fail before it keeps its default
_ROUND = 16  # trials between two looks at where the budget gains most
_NEGLIGIBLE = 5e-4  # of the network's time: what no candidate promises any more, ends the search
_TRUST = 3.0  # by how much the model's expectation of a gain may differ from the usual one


@dataclass(frozen=True)
class TuneOptions:
    """How to tune.

    Attributes
    ----------
    trials
        Candidates measured in all, earlier ones included; 0 takes the model's word.
    population
        Candidates scored per generation and task.
    seed
        Seed of the search.
    adapt
        Whether a task's measurements correct the model.
    """

    trials: int
    population: int = 512
    seed: int = 0
    adapt: bool = True


@dataclass(frozen=True)
class SearchTask:
    """A task as the search sees it.

    Attributes
    ----------
    workload, weight
        The program, and how often the network runs it.
    make_space
        Generates its design space.
    worth_tuning
        False for copies and the like: they get the first sketch and no trial.
    """

    workload: Workload
    weight: int
    make_space: Callable[[], DesignSpace]
    worth_tuning: bool

    @property
    def summary(self) -> WorkloadSummary:
        """What the program computes."""
        return self.workload.summary


@dataclass
class TaskOutcome:
    """What tuning found for one task.

    Attributes
    ----------
    status
        ``tuned`` (measured now), ``known`` (an earlier measurement won), ``predicted`` (the model's word) or
        ``default`` (nothing usable).
    trace
        The winning schedule as JSON text; None: leave the program as it is.
    score
        The model's score of the winner; None where there is none, or it is not in the design space.
    seconds
        Its measured time, drift-normalised.
    trials, failures
        Candidates measured in this session, and how many of them failed.
    ranking
        Traces of the runners-up, best first: what to fall back to when the winner turns out wrong.
    """

    task: SearchTask
    status: str = "default"
    trace: str | None = None
    score: float | None = None
    seconds: float | None = None
    trials: int = 0
    failures: int = 0
    ranking: list[str] = field(default_factory=list)


class _State:
    """A task in the middle of tuning."""

    def __init__(self, task: SearchTask, search: TaskSearch, known: Sequence[Observation]) -> None:
        self.outcome = TaskOutcome(task)
        self.search = search
        self.proposals: list[Candidate] = []
        self.results: list[tuple[float, str, bool]] = []  # seconds, trace, measured in this session
        self.searched = 0  # successes that a search chose
        self._take(known, fresh=False)

    @property
    def weight(self) -> int:
        return self.outcome.task.weight

    @property
    def best_seconds(self) -> float:
        return min((seconds for seconds, _, _ in self.results), default=float("inf"))

    def take(self, observation: Observation) -> None:
        """Take in a trial."""
        self.outcome.trials += 1
        self.outcome.failures += observation.seconds is None
        self._take([observation], fresh=True)

    def _take(self, observations: Sequence[Observation], *, fresh: bool) -> None:
        self.search.observe(observations)
        for one in observations:
            if one.seconds is not None:
                self.results.append((one.seconds, one.trace, fresh))
                self.searched += one.is_searched

    def conclude(self) -> TaskOutcome:
        outcome = self.outcome
        if self.results:
            ranking = sorted(self.results, key=lambda r: r[0])
            outcome.seconds, outcome.trace, fresh = ranking[0]
            outcome.status = "tuned" if fresh else "known"
            outcome.score = self.search.score(outcome.trace)
            outcome.ranking = [trace for _, trace, _ in ranking[1 : 1 + RUNNERS_UP]]
        elif self.proposals:
            outcome.trace, outcome.score = self.proposals[0].trace, self.proposals[0].score
            outcome.status = "predicted"
            outcome.ranking = [c.trace for c in self.proposals[1 : 1 + RUNNERS_UP]]
        return outcome


def tune(
    tasks: Sequence[SearchTask],
    model: Model,
    device: np.ndarray,
    options: TuneOptions,
    *,
    measure: Callable[[Iterable[tuple[SearchTask, str]]], Iterable[tuple[SearchTask, Observation]]]
    | None = None,
    known: dict[str, Sequence[Observation]] | None = None,
    spent: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[TaskOutcome]:
    """Find fast schedules for the tasks of a network.

    Every task is searched with the model; the budget goes where weight x expected gain is largest, and the search ends
    when no candidate promises a noticeable gain.

    Parameters
    ----------
    tasks
        The network's tasks.
    model
        The registered cost model.
    device
        ``float32[D]``, the device's descriptor.
    measure
        Measures (task, trace) pairs and yields what became of each; None when there are no trials.
    known
        Per workload key: this device's earlier measurements. Tasks that were measured before start from them.
    spent
        Trials of an interrupted session that count against the budget.
    progress
        Called with (trials done, trials in all).

    Returns
    -------
    list of TaskOutcome
        In the order of `tasks`.
    """
    known = known or {}
    states: list[_State | None] = []
    outcomes: list[TaskOutcome] = []
    for number, task in enumerate(tasks):
        if not task.worth_tuning:
            states.append(None)
            outcomes.append(_default(task))
            continue
        search = TaskSearch(
            task.make_space,
            task.summary,
            device,
            model,
            population=options.population,
            seed=options.seed + number,
            adapt=options.adapt,
        )
        states.append(_State(task, search, known.get(task.workload.key, ())))
        outcomes.append(states[-1].outcome)  # type: ignore[union-attr]
    active = [state for state in states if state is not None]
    left = options.trials - spent
    if left > 0 and measure is not None and active:
        _spend(active, left, options.trials, measure, progress)
    for index, state in enumerate(states):
        if state is not None:
            if not state.results and not state.proposals:
                state.proposals = state.search.propose(_ROUND)
            outcomes[index] = state.conclude()
    return outcomes


def _spend(
    states: list[_State],
    left: int,
    total: int,
    measure: Callable[[Iterable[tuple[SearchTask, str]]], Iterable[tuple[SearchTask, Observation]]],
    progress: Callable[[int, int], None] | None,
) -> None:
    """Measure round after round until the budget is spent or nothing promises a gain."""
    by_key = {state.outcome.task.workload.key: state for state in states}
    stale = set(by_key)
    while left > 0:
        for key in sorted(stale):
            by_key[key].proposals = by_key[key].search.propose(_ROUND)
        batch = _next_batch(states, left)
        if not batch:
            return
        stale = {state.outcome.task.workload.key for state, _ in batch}
        for state, candidate in batch:
            state.proposals.remove(candidate)
            state.search.attempt(candidate)
        requests = [(state.outcome.task, candidate.trace) for state, candidate in batch]
        for task, observation in measure(requests):
            by_key[task.workload.key].take(observation)
            left -= 1
            if progress is not None:
                progress(total - left, total)
        _share_slopes(states)


def _next_batch(states: list[_State], left: int) -> list[tuple[_State, Candidate]]:
    """Choose what to measure: one candidate of each unmeasured task, the heaviest first, then by expected gain."""
    heavy = sorted(states, key=lambda s: -s.weight * s.outcome.task.summary.flops)
    unmeasured = [state for state in heavy if not state.results and state.outcome.trials < _ATTEMPTS]
    if batch := [(state, state.proposals[0]) for state in unmeasured if state.proposals]:
        return batch[:left]
    network = sum(s.weight * s.best_seconds for s in states if s.results)
    promising = [
        (state.weight * gain, index, state, candidate)
        for index, state in enumerate(states)
        if state.results
        for candidate, gain in _gains(state)
        if state.weight * gain > _NEGLIGIBLE * network
    ]
    promising.sort(key=lambda p: (-p[0], p[1]))
    return [(state, candidate) for _, _, state, candidate in promising[: min(left, _ROUND)]]


def _gains(state: _State) -> Iterator[tuple[Candidate, float]]:
    """The proposals with the seconds that each may save: the model's expectation, held near the usual gain.

    The model is sure of itself where it is wrong too. Alone, it would spend a budget on a few tasks whose best
    candidates it overrates, and leave others after two trials. Measurements that no search chose promise no end of it.
    """
    for tried, candidate in enumerate(state.proposals, start=max(state.searched, 1)):
        usual = usual_gain(tried)
        share = min(max(candidate.gain / state.best_seconds, usual / _TRUST), usual * _TRUST)
        yield candidate, share * state.best_seconds


def usual_gain(tried: int) -> float:
    """Share of a program's time that one more candidate may save when so many were measured; set by hand."""
    return 0.09 / tried**1.5


def _share_slopes(states: list[_State]) -> None:
    """Give every task the slope of log seconds over score that all measured tasks show together."""
    slopes = [s.search.adaptation.line()[0] for s in states if len(s.search.adaptation) >= 3]
    if slopes:
        for state in states:
            state.search.adaptation.slope = statistics.median(slopes)


def _default(task: SearchTask) -> TaskOutcome:
    """A task that is not searched takes its generator's first sketch, parallel and vectorised."""
    space = task.make_space()
    populations = space.sample(1, np.random.default_rng(0))
    trace = space.trace(populations[0], 0) if populations else None
    return TaskOutcome(task, "default", trace)


class EngineMeasure:
    """Measures candidates of tasks with a measuring engine, normalised by the reference kernel.

    Parameters
    ----------
    engine
        An open engine.
    target
        TVM target as JSON.
    reference_seconds
        The device's usual time of the reference kernel; None: the first one seen.
    on_result
        Called with every raw result, before it is used.
    """

    def __init__(
        self,
        engine: MeasuringEngine,
        target: dict[str, object],
        reference_seconds: float | None,
        on_result: Callable[[MeasureResult], None],
    ) -> None:
        self._engine = engine
        self._target = target
        self._reference = reference_seconds
        self._on_result = on_result

    def __call__(
        self, requests: Iterable[tuple[SearchTask, str]]
    ) -> Iterable[tuple[SearchTask, Observation]]:
        """Build and time the candidates."""
        tasks = {}
        batch = []
        for task, trace in requests:
            tasks[task.workload.key] = task
            batch.append(
                MeasureRequest(task.workload.key, task.workload.program, self._target, trace, "search")
            )
        for result in self._engine.measure(batch):
            self._on_result(result)
            yield tasks[result.request.workload], Observation(result.trace, self._seconds(result))

    def _seconds(self, result: MeasureResult) -> float | None:
        if result.error is not None or not result.run_seconds:
            return None
        self._reference = self._reference or result.reference_seconds
        return seconds_at_usual_speed(result.run_seconds, result.reference_seconds, self._reference)
