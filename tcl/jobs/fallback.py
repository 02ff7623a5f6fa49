"""Schedules that turn out wrong: found program by program, remembered, and replaced by the next best."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from tcl.console import note
from tcl.devices.device import Device
from tcl.devices.patience import patiently
from tcl.features.batch import FEATURE_VERSION
from tcl.jobs.dataset import WRONG_RESULTS, tuning_store
from tcl.settings import Settings

if TYPE_CHECKING:
    from tcl.compiler.packaging.manifest import TaskRow
    from tcl.compiler.programs.tasks import TuningTask


def right_schedule(
    task: "TuningTask", traces: Sequence[str], device: Device, settings: Settings
) -> tuple[str | None, list[str]]:
    """Find the first schedule that computes what the program does.

    Parameters
    ----------
    task
        The program.
    traces
        Its schedules, the best first.
    device
        What they are for.
    settings
        Give the tolerances, and the place where wrong schedules are recorded so that none is chosen again.

    Returns
    -------
    (str or None, list of str)
        The schedule, None when all are wrong; and what was wrong with those before it.
    """
    from tcl.compiler.measuring.schedule_check import fault_of

    faults: list[str] = []
    for trace in traces:
        check = partial(fault_of, task.mod, device, trace, asdict(settings.verify))
        fault = patiently(device.name, settings.measure.device_wait, check)
        if fault is None:
            return trace, faults
        note(f"{task.workload.name}: a schedule {fault}")
        _remember(task, trace, device, settings)
        faults.append(fault)
    return None, faults


def replace_wrong(
    tasks: "Sequence[TuningTask]",
    traces: Mapping[str, str],
    rows: "Sequence[TaskRow]",
    runners_up: Mapping[str, Sequence[str]],
    device: Device,
    settings: Settings,
) -> "tuple[dict[str, str], tuple[TaskRow, ...]] | None":
    """Replace the wrong ones among a network's schedules by the next best, or by none where no other is right.

    Parameters
    ----------
    tasks, rows
        The network's programs, and their rows of the report.
    traces
        The schedules, by PrimFunc.
    runners_up
        The next best ones, by workload key.

    Returns
    -------
    (dict, tuple of TaskRow) or None
        Schedules and rows to use instead; None when no schedule is wrong.
    """
    chosen, reported, faulty = dict(traces), list(rows), False
    for index, task in enumerate(tasks):
        best = traces.get(task.functions[0])
        if best is None:
            continue
        key = task.workload.key
        right, faults = right_schedule(task, [best, *runners_up.get(key, ())], device, settings)
        if not faults:
            continue
        faulty = True
        for function in task.functions:
            chosen.pop(function)
        if right is not None:
            chosen.update(dict.fromkeys(task.functions, right))
        reported[index] = replace(
            reported[index],
            schedule="default" if right is None else reported[index].schedule,
            predicted=None,
            measured_seconds=None,
            note=f"{len(faults)} schedule{'s' if len(faults) > 1 else ''} discarded: the best {faults[0]};"
            f" {'no other is right' if right is None else 'the next best that is right is used'}",
        )
    return (chosen, tuple(reported)) if faulty else None


def _remember(task: "TuningTask", trace: str, device: Device, settings: Settings) -> None:
    from tcl.records.record import MeasureRecord

    record = MeasureRecord(
        device=device.name,
        workload=task.workload.key,
        trace=trace,
        run_seconds=(),
        reference_seconds=None,
        error=WRONG_RESULTS,
        timestamp=time.time(),
        tvm_version=version("apache-tvm"),
        feature_version=FEATURE_VERSION,
        origin="search",
    )
    tuning_store(settings).append([task.workload], [record])
