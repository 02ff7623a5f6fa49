"""Tuning within a compile: what is known of the programs, the search, and what becomes of its result."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tcl.console import progress
from tcl.devices.device import Device
from tcl.errors import WorkFailed
from tcl.jobs.dataset import WRONG_RESULTS, known_records, open_journal, to_record, tuning_store
from tcl.jobs.ledger import note_tuned, thoroughness
from tcl.jobs.measure import measure_options
from tcl.measuring.types import seconds_at_usual_speed
from tcl.settings import Settings

if TYPE_CHECKING:
    from tcl.compiler.packaging.manifest import TaskRow
    from tcl.compiler.programs.tasks import TuningTask
    from tcl.measuring.types import MeasureResult
    from tcl.records.record import MeasureRecord
    from tcl.search.task import Model, Observation
    from tcl.search.tuning import SearchTask, TaskOutcome

KNOWN = "measured before"
"""Note of a program whose schedule an earlier measurement chose."""


@dataclass(frozen=True)
class Known:
    """What one device's records tell of a network's programs; records of other devices never count.

    Attributes
    ----------
    observations
        By workload key.
    reference_seconds
        The reference kernel's usual time beside these records; None without any.
    spent
        Trials that earlier tuning has made, by workload key.
    wrong
        How many of the observations are of schedules whose results were wrong, by workload key.
    """

    observations: "dict[str, list[Observation]]"
    reference_seconds: float | None
    spent: dict[str, int]
    wrong: dict[str, int]


def recall(tasks: "Sequence[TuningTask]", device: Device, settings: Settings) -> Known:
    """Collect what is known of some programs, also from a tuning that was interrupted."""
    from tcl.search.task import Observation

    open_journal(settings, "tune", device.name, tuning_store(settings))
    records = list(known_records(settings, device.name, {task.workload.key for task in tasks}))
    references = [r.reference_seconds for r in records if r.reference_seconds]
    usual = statistics.median(references) if references else None
    observations: dict[str, list[Observation]] = {}
    for record in records:
        observations.setdefault(record.workload, []).append(
            Observation(record.trace, _normalised(record, usual), record.origin == "search")
        )
    searched = {
        record.content_id(): record.workload
        for record in records
        if record.origin == "search" and record.error != WRONG_RESULTS
    }
    wrong = Counter(record.workload for record in records if record.error == WRONG_RESULTS)
    return Known(observations, usual, dict(Counter(searched.values())), dict(wrong))


def search(
    tasks: "Sequence[TuningTask]", model: "Model", device: Device, known: Known, settings: Settings
) -> "list[TaskOutcome]":
    """Tune the programs with a cost model; the outcomes are in the order of `tasks`.

    Programs that have been tuned before, no less thoroughly than now, keep their best schedule and cost nothing.

    Raises
    ------
    WorkFailed
        When candidates were measured, not one succeeded, and nothing was known before.
    """
    from tcl.compiler.programs.tasks import design_space
    from tcl.compiler.targets import target_of
    from tcl.features.device import device_descriptor
    from tcl.search.tuning import SearchTask, TuneOptions, tune

    target = target_of(device.target)

    def search_task(task: "TuningTask") -> "SearchTask":
        return SearchTask(task.workload, task.weight, lambda: design_space(task, target), task.worth_tuning)

    chosen = settings.tuning
    tunable = [task.workload.key for task in tasks if task.worth_tuning]
    trials_per_program = chosen.trials / max(len(tunable), 1)
    before = thoroughness(settings, device.name)
    tuned = {
        key for key in tunable if known.observations.get(key) and before.get(key, -1.0) >= trials_per_program
    }
    found = {
        task.workload.key: _best_known(search_task(task), known)
        for task in tasks
        if task.workload.key in tuned
    }
    left = [search_task(task) for task in tasks if task.workload.key not in tuned]
    options = TuneOptions(chosen.trials, chosen.population, chosen.seed)
    spent = sum(known.spent.get(task.workload.key, 0) for task in left)
    arguments: dict[str, Any] = {"known": known.observations, "spent": spent}
    if chosen.trials <= spent or not any(task.worth_tuning for task in left):
        outcomes = tune(left, model, device_descriptor(device), options, **arguments)
    else:
        outcomes = _search_measured(left, model, device, known, settings, options, arguments)
    if chosen.trials:
        note_tuned(settings, device.name, tunable, trials_per_program)
    found |= {outcome.task.workload.key: outcome for outcome in outcomes}
    return [found[task.workload.key] for task in tasks]


def _best_known(task: "SearchTask", known: Known) -> "TaskOutcome":
    """The fastest schedule measured earlier; none where all failed."""
    from tcl.search.tuning import RUNNERS_UP, TaskOutcome

    succeeded = [o for o in known.observations[task.workload.key] if o.seconds is not None]
    if not succeeded:
        return TaskOutcome(task)
    best, *others = sorted(succeeded, key=lambda o: o.seconds or 0.0)
    runners_up = [other.trace for other in others[:RUNNERS_UP]]
    return TaskOutcome(task, "known", best.trace, seconds=best.seconds, ranking=runners_up)


def _search_measured(
    tasks: "Sequence[SearchTask]",
    model: "Model",
    device: Device,
    known: Known,
    settings: Settings,
    options: Any,
    arguments: dict[str, Any],
) -> "list[TaskOutcome]":
    from tcl.features.device import device_descriptor
    from tcl.measuring.engine import MeasuringEngine
    from tcl.measuring.types import summarise_failures
    from tcl.search.tuning import EngineMeasure, tune

    store = tuning_store(settings)
    journal = open_journal(settings, "tune", device.name, store)
    workloads = {task.workload.key: task.workload for task in tasks}
    results: list[MeasureResult] = []
    with (
        MeasuringEngine(device, measure_options(settings)) as engine,
        progress(f"tuning on {device.name}", options.trials) as advance,
    ):
        advance(arguments["spent"])

        def keep(result: "MeasureResult") -> None:
            journal.append([workloads[result.request.workload]], [to_record(device.name, result)])
            results.append(result)
            advance(detail=workloads[result.request.workload].name)

        measure = EngineMeasure(engine, device.target, known.reference_seconds, keep)
        try:
            outcomes = tune(tasks, model, device_descriptor(device), options, measure=measure, **arguments)
        finally:
            journal.fold(store)
    successes = any(result.error is None for result in results)
    if results and not successes and not any(_succeeded(o) for o in known.observations.values()):
        raise WorkFailed(f"nothing could be measured on {device.name}: {summarise_failures(results)}")
    return outcomes


def settle(outcomes: "Iterable[TaskOutcome]", known: Known) -> "list[tuple[TaskOutcome, str]]":
    """Decide what each program is compiled with, and why where that is not the search's choice.

    A program whose measured candidates all failed gets the default schedule: the model's word counts for nothing there.
    That a schedule's results were wrong says nothing about the others.
    """
    settled = []
    for outcome in outcomes:
        key = outcome.task.workload.key
        earlier = known.observations.get(key, [])
        tried = outcome.trials + len(earlier) - known.wrong.get(key, 0)
        if outcome.seconds is None and tried and not _succeeded(earlier):
            failed = replace(outcome, status="default", trace=None, score=None, ranking=[])
            settled.append((failed, f"all {tried} measured candidates failed"))
        else:
            settled.append((outcome, ""))
    return settled


def task_rows(
    tasks: "Sequence[TuningTask]", settled: "Iterable[tuple[TaskOutcome, str]]"
) -> "tuple[TaskRow, ...]":
    """The per-task table of a package."""
    from tcl.compiler.packaging.manifest import TaskRow

    return tuple(
        TaskRow(
            name=outcome.task.workload.name,
            workload=outcome.task.workload.key,
            weight=outcome.task.weight,
            schedule="default" if outcome.status == "default" else "tuned",
            predicted=outcome.score,
            measured_seconds=outcome.seconds,
            trials=outcome.trials,
            note=reason or {"known": KNOWN, "predicted": "by the model's word"}.get(outcome.status, ""),
            functions=task.functions,
            op=task.workload.summary.op,
            dtype=task.workload.summary.dtype,
            flops=task.workload.summary.flops,
            bytes=task.workload.summary.read_bytes + task.workload.summary.write_bytes,
        )
        for task, (outcome, reason) in zip(tasks, settled, strict=True)
    )


def _normalised(record: "MeasureRecord", usual: float | None) -> float | None:
    """Median seconds at the device's usual speed; None for a failure."""
    if record.error is not None or not record.run_seconds:
        return None
    return seconds_at_usual_speed(record.run_seconds, record.reference_seconds, usual)


def _succeeded(observations: "Iterable[Observation]") -> bool:
    return any(observation.seconds is not None for observation in observations)
