"""MetaSchedule as it comes: its own builder, runner and cost model. For the record only."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from tcl.compiler.metaschedule.search import MetaScheduleOptions, tune_contexts
from tcl.compiler.programs.traces import plain_json

_BUILD_SECONDS = (
    300.0  # with the default of 30 s every build fails where torch is installed: each imports it anew
)

Found = tuple[float, int, float | None, str]
"""When (seconds since the epoch), number of the task, median seconds or None for a failure, trace."""


def search(
    programs: Sequence[tvm.IRModule],
    weights: Sequence[float],
    target: tvm.target.Target,
    options: MetaScheduleOptions,
) -> list[Found]:
    """Tune programs; returns every measured candidate in order."""
    found: list[Found] = []
    ms.tune.tune_tasks(
        tasks=tune_contexts(programs, target, options),
        task_weights=list(weights),
        work_dir="",
        max_trials_global=options.trials,
        num_trials_per_iter=options.per_round,
        builder=ms.builder.LocalBuilder(max_workers=options.threads, timeout_sec=_BUILD_SECONDS),
        database="memory",
        measure_callbacks=[_Log(found), *ms.measure_callback.MeasureCallback.create("default")],
    )
    return found


@derived_object
class _Log(ms.measure_callback.PyMeasureCallback):
    def __init__(self, found: list[Found]) -> None:
        super().__init__()
        self.found = found

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Any,
        builder_results: Any,
        runner_results: Any,
    ) -> None:
        for candidate, result in zip(measure_candidates, runner_results, strict=True):
            trace = json.dumps(plain_json(candidate.sch.trace.as_json()), separators=(",", ":"))
            seconds = statistics.median(map(float, result.run_secs)) if result.run_secs else None
            self.found.append((time.time(), int(task_id), seconds, trace))
