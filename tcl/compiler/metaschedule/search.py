"""MetaSchedule's own search, with its task scheduler and its defaults, on a measuring function of ours.

Its builder hands the candidates over as traces, all of a round at once; its runner only gives the answers out. So
building, timing and their pipeline are the caller's, and everything that decides what is measured is MetaSchedule's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from tcl.compiler.metaschedule.cost_models import TensetMlp
from tcl.compiler.programs.traces import plain_json

Answer = tuple[float, ...] | str
"""Seconds of each run of a candidate, or why it failed."""

Measure = Callable[[int, list[str]], list[Answer]]
"""(number of the task, traces with post-processing) -> an answer for each, in order."""


@dataclass(frozen=True)
class MetaScheduleOptions:
    """How MetaSchedule searches; everything else is its default.

    Attributes
    ----------
    strategy
        "evolutionary", or "replay-trace" for random draws.
    trials
        Candidates measured in all.
    per_round
        Candidates measured in one visit of a task; MetaSchedule's default of 64 gives a small budget to one task.
    threads
        Threads of the search.
    seed
        Seed of the search.
    """

    strategy: Literal["evolutionary", "replay-trace"]
    trials: int
    per_round: int
    threads: int
    seed: int


def search(
    programs: Sequence[tvm.IRModule],
    weights: Sequence[float],
    target: tvm.target.Target,
    cost_model: Any,
    options: MetaScheduleOptions,
    measure: Measure,
) -> None:
    """Tune programs; the results are what `measure` saw.

    Parameters
    ----------
    programs
        One-function modules with the PrimFunc ``main``.
    weights
        How often the network runs each.
    cost_model
        A MetaSchedule cost model (`cold_xgboost`, `pretrained_mlp`); None for random draws.
    measure
        Its exceptions end the search and come out of here.
    """
    scheduler = ms.task_scheduler.GradientBased(seed=options.seed + 1)
    answers = _Answers(scheduler, measure)
    callbacks = [ms.measure_callback.AddToDatabase()]
    if cost_model is not None:
        callbacks.append(ms.measure_callback.UpdateCostModel())
    try:
        ms.tune.tune_tasks(
            tasks=tune_contexts(programs, target, options),
            task_weights=list(weights),
            work_dir="",
            max_trials_global=options.trials,
            num_trials_per_iter=options.per_round,
            builder=_Builder(answers),
            runner=_Runner(answers),
            database="memory",
            cost_model=cost_model or ms.cost_model.RandomModel(),
            measure_callbacks=callbacks,
            task_scheduler=scheduler,
        )
    except Exception:
        if answers.error is not None:
            raise answers.error from None
        raise


def tune_contexts(
    programs: Sequence[tvm.IRModule], target: tvm.target.Target, options: MetaScheduleOptions
) -> list[ms.TuneContext]:
    """MetaSchedule's contexts of the programs, as its own integration makes them but for the seeds."""
    logging.getLogger("tvm.s_tir.meta_schedule").setLevel(logging.ERROR)  # a table at every round
    rng = np.random.default_rng(options.seed)
    np.random.seed(options.seed)  # XGBModel draws from it until it has seen 100 candidates
    return [
        ms.TuneContext(
            program,
            target=target,
            space_generator="post-order-apply",
            search_strategy=options.strategy,
            task_name=f"task-{number}",
            rand_state=int(rng.integers(1, 2**31 - 1)),
            num_threads=options.threads,
        )
        for number, program in enumerate(programs)
    ]


def cold_xgboost(threads: int, seed: int) -> Any:
    """MetaSchedule's default cost model, which knows nothing at first."""
    from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig

    return ms.cost_model.XGBModel(config=XGBConfig(seed=seed, nthread=threads))


def pretrained_mlp(model: TensetMlp) -> Any:
    """Tenset-MLP as MetaSchedule's cost model; it learns on from what is measured, as MLPModel does."""
    return _Mlp(model)


class _Answers:
    """Measures a round of candidates and keeps the answers until MetaSchedule's runner asks for them."""

    def __init__(self, scheduler: Any, measure: Measure) -> None:
        self._scheduler = scheduler
        self._measure = measure
        self._kept: dict[str, Answer] = {}
        self._count = 0
        self.error: BaseException | None = None

    def build(self, inputs: Sequence[Any]) -> list[Any]:
        try:
            return self._build(inputs)
        except BaseException as error:  # on its way through C++ it would lose its class
            self.error = error
            raise

    def _build(self, inputs: Sequence[Any]) -> list[Any]:
        number, candidates = self._round(inputs)
        traces = [json.dumps(plain_json(c.sch.trace.as_json()), separators=(",", ":")) for c in candidates]
        built = []
        for answer in self._measure(number, traces):
            self._count += 1
            name = f"candidate-{self._count}"  # names an answer, not a file: nothing of ours may be deleted
            self._kept[name] = answer
            failed = isinstance(answer, str)
            built.append(ms.builder.BuilderResult(None if failed else name, answer if failed else None))
        return built

    def take(self, name: str) -> Any:
        answer = self._kept.pop(name)
        if isinstance(answer, str):
            return ms.runner.RunnerResult(None, answer)
        return ms.runner.RunnerResult(list(answer), None)

    def _round(self, inputs: Sequence[Any]) -> tuple[int, list[Any]]:
        """The task whose candidates these are: a builder is told modules only."""
        for number, record in enumerate(self._scheduler.tasks_):
            candidates = record.measure_candidates
            if candidates and len(candidates) == len(inputs) and candidates[0].sch.mod.same_as(inputs[0].mod):
                return number, list(candidates)
        raise RuntimeError("MetaSchedule builds candidates of no task")


@derived_object
class _Builder(ms.builder.PyBuilder):
    def __init__(self, answers: _Answers) -> None:
        super().__init__()
        self.answers = answers

    def build(self, build_inputs: list[Any]) -> list[Any]:
        return self.answers.build(build_inputs)


@derived_object
class _Runner(ms.runner.PyRunner):
    def __init__(self, answers: _Answers) -> None:
        super().__init__()
        self.answers = answers

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        return [_Future(self.answers.take(str(given.artifact_path))) for given in runner_inputs]


@derived_object
class _Future(ms.runner.PyRunnerFuture):
    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return self.answer


@derived_object
class _Mlp(ms.cost_model.PyCostModel):
    """MLPModel itself does not run with this torch, and it scales features by whatever it is asked about."""

    def __init__(self, model: TensetMlp) -> None:
        super().__init__()
        self.model = model
        self.extractor = ms.feature_extractor.PerStoreFeature(extract_workload=True)
        self.measured: dict[str, tuple[list[np.ndarray], list[float]]] = {}

    def update(self, context: Any, candidates: list[Any], results: list[Any]) -> None:
        stores, seconds = self.measured.setdefault(str(context.task_name), ([], []))
        stores += self.features(context, candidates)
        seconds += [
            float(np.median([float(s) for s in r.run_secs])) if r.run_secs else np.inf for r in results
        ]
        if np.isfinite(seconds).any():
            self.model.learn_on(stores, (np.min(seconds) / np.array(seconds)).astype(np.float32))

    def predict(self, context: Any, candidates: list[Any]) -> np.ndarray:
        return self.model.score(self.features(context, candidates)).astype(np.float64)

    def features(self, context: Any, candidates: list[Any]) -> list[np.ndarray]:
        return [
            found.numpy().astype(np.float32) for found in self.extractor.extract_from(context, candidates)
        ]
