"""Schedule traces as JSON: replaying them, and turning TVM's objects into plain values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import Schedule, Trace
from tvm.s_tir import meta_schedule as ms


def tuning_context(program: tvm.IRModule, target: tvm.target.Target) -> ms.TuneContext:
    """Return the context whose space generator and post-processors are those of the target."""
    return ms.TuneContext(
        program, target=target, space_generator="post-order-apply", num_threads=1, rand_state=1
    )


def replay(context: ms.TuneContext, trace: str) -> Schedule:
    """Apply a trace to the context's program, and post-processing where the trace has none.

    Parameters
    ----------
    context
        Of `tuning_context`.
    trace
        JSON text ``[instructions, decisions]``.

    Raises
    ------
    ValueError
        When a post-processor rejects the schedule. TVM raises its own errors where an instruction does not apply.
    """
    parsed = json.loads(trace)
    schedule = Schedule(context.mod, debug_mask="none", seed=1)
    Trace.apply_json_to_schedule(parsed, schedule)
    if not any(instruction[0] == "EnterPostproc" for instruction in parsed[0]):
        schedule.enter_postproc()
        for step in context.space_generator.postprocs:
            if not step.apply(schedule):
                raise ValueError(f"post-processing ({type(step).__name__}) rejects the schedule")
    return schedule


def plain_json(value: Any) -> Any:
    """Turn TVM's JSON-like objects (as of ``as_json``) into plain Python values."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, tirx.IntImm | tirx.FloatImm):
        return value.value
    if isinstance(value, tvm.ir.StringImm):
        return str(value.value)
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [plain_json(item) for item in value]
    raise TypeError(f"TVM put a {type(value).__name__} where JSON was expected")
