"""The contenders of the tuning benchmark: each searches a network's programs and says what it measured when."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tcl.bench.tune_models import Pretrained
from tcl.bench.tune_study import Cell, TuneParams
from tcl.devices.device import Device
from tcl.jobs import compile
from tcl.jobs.dataset import tuning_store
from tcl.jobs.measure import measure_options
from tcl.jobs.programs import Network
from tcl.measuring.engine import MeasuringEngine
from tcl.measuring.types import MeasureRequest, MeasureResult, seconds_at_usual_speed
from tcl.settings import Settings, load_settings

if TYPE_CHECKING:
    from tcl.compiler.programs.tasks import TuningTask

_DEFAULT_DRAWS = 8


@dataclass(frozen=True)
class Trial:
    """One measured candidate.

    Attributes
    ----------
    seconds
        Since the search began.
    task
        Workload key.
    latency
        Median of its runs at the network's usual machine speed; None for a failure.
    trace
        Its schedule.
    """

    seconds: float
    task: str
    latency: float | None
    trace: str


@dataclass(frozen=True)
class Outcome:
    """What a contender found.

    Attributes
    ----------
    seconds
        Of the whole search, start of the engine included.
    trials
        In the order of measurement.
    traces
        By workload key: the schedules to build.
    stopped
        Why it ended: "trials", "time" or "by itself".
    """

    seconds: float
    trials: list[Trial]
    traces: dict[str, str]
    stopped: str


class Arena:
    """One network on one device, for all contenders.

    Parameters
    ----------
    network
        As `tcl.jobs.programs.read_network` gave it.
    params, pretrained
        Of the study.
    scratch
        A project folder for `tcl`'s own state; emptied before each search.
    """

    def __init__(
        self, network: Network, device: Device, params: TuneParams, pretrained: Pretrained, scratch: Path
    ) -> None:
        self.network, self.device, self.params, self.pretrained = network, device, params, pretrained
        self.scratch = scratch
        self.tasks: list[TuningTask] = [task for task in network.tasks if task.worth_tuning]
        self.reference: float | None = None
        self.defaults: dict[str, str] = {}

    def settings(self, trials: int = 0, seed: int = 0) -> Settings:
        """Of `tcl compile`, as everybody has them, but for trials, seed and build workers."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        chosen = {
            "tuning.trials": trials,
            "tuning.seed": seed,
            "measure.build_workers": self.params.build_workers,
        }
        return load_settings(self.scratch, chosen, environ={})

    def start(self) -> dict[str, Any]:
        """Measure a schedule of each task that nobody chose: what a contender has where it measured nothing.

        Sets the reference kernel's usual time, at which all latencies of this network are stated.
        """
        from tcl.compiler.programs.tasks import design_space
        from tcl.compiler.targets import target_of

        drawn: dict[str, list[str]] = {}
        for task in self.tasks:
            space = design_space(task, target_of(self.device.target))
            populations = space.sample(_DEFAULT_DRAWS, np.random.default_rng(0))
            drawn[task.workload.key] = [space.trace(p, row) for p in populations for row in range(len(p))]
        results: dict[str, MeasureResult] = {}
        with self.engine() as engine:
            while left := [key for key in drawn if key not in results and drawn[key]]:
                for result in engine.measure([self.request(key, drawn[key].pop(0)) for key in left]):
                    if result.error is None:
                        results[result.request.workload] = result
        self.resume(
            {
                "reference_seconds": statistics.median(
                    r.reference_seconds for r in results.values() if r.reference_seconds
                ),
                "defaults": {key: result.trace for key, result in results.items()},
            }
        )
        return {
            "reference_seconds": self.reference,
            "defaults": self.defaults,
            "default_seconds": {key: self.latency(result) for key, result in results.items()},
        }

    def resume(self, kept: dict[str, Any]) -> None:
        """Go on from what `start` returned."""
        self.reference, self.defaults = kept["reference_seconds"], kept["defaults"]

    def run(self, cell: Cell) -> Outcome:
        """Let one contender search."""
        if cell.contender in ("tcl", "tcl-0"):
            return self._tcl(cell)
        return self._stock(cell) if cell.contender == "stock" else self._metaschedule(cell)

    def time(self, traces: dict[str, str]) -> dict[str, float | None]:
        """Measure one schedule of each task: by workload key, seconds or None for a failure."""
        with self.engine() as engine:
            requests = [self.request(key, trace) for key, trace in traces.items()]
            return {result.request.workload: self.latency(result) for result in engine.measure(requests)}

    def engine(self) -> MeasuringEngine:
        """The measuring engine, with the same options for everybody."""
        return MeasuringEngine(self.device, measure_options(self.settings()))

    def request(self, key: str, trace: str) -> MeasureRequest:
        """What the engine shall measure."""
        program = next(task.workload.program for task in self.tasks if task.workload.key == key)
        return MeasureRequest(key, program, self.device.target, trace, "search")

    def latency(self, result: Any) -> float | None:
        """Seconds of a result or record at the network's usual machine speed."""
        if result.error is not None or not result.run_seconds:
            return None
        return seconds_at_usual_speed(result.run_seconds, result.reference_seconds, self.reference)

    def _tcl(self, cell: Cell) -> Outcome:
        """What `tcl compile` does between reading the network and building it."""
        settings = self.settings(cell.trials, cell.seed)
        shutil.rmtree(settings.state_dir, ignore_errors=True)  # nothing is known of an earlier search
        started = time.time()
        tuned = compile.tune_with(self.pretrained.tcl, self.network, self.device, settings)
        seconds = time.time() - started
        store = tuning_store(settings)
        records = list(store.records(self.device.name)) if self.device.name in store.devices() else []
        trials = [
            Trial(record.timestamp - started, record.workload, self.latency(record), record.trace)
            for record in sorted(records, key=lambda record: record.timestamp)
        ]
        by_function = {name: task.workload.key for task in self.network.tasks for name in task.functions}
        traces = {by_function[name]: trace for name, trace in tuned.traces.items()}
        return Outcome(seconds, trials, traces, "trials" if len(trials) >= cell.trials else "by itself")

    def _metaschedule(self, cell: Cell) -> Outcome:
        from tcl.compiler.metaschedule import search as metaschedule
        from tcl.compiler.targets import target_of

        trials: list[Trial] = []
        started = time.time()
        deadline = started + 60 * self.params.cell_minutes
        with self.engine() as engine:

            def measure(number: int, traces: list[str]) -> list[Any]:
                if time.time() > deadline:
                    raise _Stop("time")
                key = self.tasks[number].workload.key
                requests = [self.request(key, trace) for trace in traces[: cell.trials - len(trials)]]
                answers: dict[int, Any] = {}
                for result in engine.measure(requests):
                    latency = self.latency(result)
                    trials.append(Trial(result.timestamp - started, key, latency, result.trace))
                    answers[id(result.request)] = (latency,) if latency is not None else result.error
                if len(trials) >= cell.trials:
                    raise _Stop("trials")
                return [answers[id(request)] for request in requests]

            stopped = "by itself"
            try:
                metaschedule.search(
                    [task.mod for task in self.tasks],
                    [task.weight for task in self.tasks],
                    target_of(self.device.target),
                    self._cost_model(cell),
                    self._options(cell),
                    measure,
                )
            except _Stop as stop:
                stopped = str(stop)
        return Outcome(time.time() - started, trials, self._best(trials), stopped)

    def _stock(self, cell: Cell) -> Outcome:
        from tcl.compiler.metaschedule import stock as metaschedule_stock
        from tcl.compiler.targets import target_of

        started = time.time()
        found = metaschedule_stock.search(
            [task.mod for task in self.tasks],
            [task.weight for task in self.tasks],
            target_of(self.device.target),
            self._options(cell),
        )
        keys = [task.workload.key for task in self.tasks]
        trials = [Trial(t - started, keys[number], latency, trace) for t, number, latency, trace in found]
        return Outcome(time.time() - started, trials, self._best(trials), "trials")

    def _options(self, cell: Cell) -> Any:
        from tcl.compiler.metaschedule.search import MetaScheduleOptions

        per_round = cell.trials // (self.params.visits * len(self.tasks))
        strategy = "replay-trace" if cell.contender == "random" else "evolutionary"
        threads = self.device.num_cores
        return MetaScheduleOptions(strategy, cell.trials, min(64, max(1, per_round)), threads, cell.seed)  # type: ignore[arg-type]

    def _cost_model(self, cell: Cell) -> Any:
        from tcl.compiler.metaschedule import search as metaschedule

        if cell.contender == "xgb":
            return metaschedule.cold_xgboost(self.device.num_cores, cell.seed)
        if cell.contender == "tenset-mlp":
            return metaschedule.pretrained_mlp(self.pretrained.tenset_mlp(cell.seed))
        return None

    def _best(self, trials: Sequence[Trial]) -> dict[str, str]:
        """The fastest schedule of each task; the one that nobody chose where there is none."""
        best = dict(self.defaults)
        seconds: dict[str, float] = {}
        for trial in trials:
            if trial.latency is not None and trial.latency < seconds.get(trial.task, float("inf")):
                seconds[trial.task], best[trial.task] = trial.latency, trial.trace
        return best


class _Stop(Exception):
    """Ends MetaSchedule's search."""
