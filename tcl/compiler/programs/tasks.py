"""Tuning tasks of a lowered module: its distinct tensor programs, what each computes, and their design spaces."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.s_tir import Schedule, Trace
from tvm.s_tir import meta_schedule as ms

from tcl.compiler.programs.traces import plain_json, tuning_context
from tcl.features.workload import WorkloadSummary
from tcl.records.record import Workload
from tcl.search.space import DesignSpace

_LOCATION_REPLAYS = 6
_REDUCTION = 2  # tirx.IterVar.CommReduce


@dataclass(frozen=True)
class TuningTask:
    """One distinct tensor program of a network.

    Attributes
    ----------
    workload
        The program as it is recorded.
    weight
        How often it occurs in the network.
    mod
        The program as a module with the PrimFunc ``main``.
    functions
        Names of the lowered module's PrimFuncs that are this program.
    """

    workload: Workload
    weight: int
    mod: tvm.IRModule
    functions: tuple[str, ...]

    @property
    def worth_tuning(self) -> bool:
        """Whether it computes: copies, reshapes and concatenations get the generator's own schedule."""
        return self.workload.summary.flops > 0 and self.workload.summary.op != "elementwise"


def extract_tasks(mod: tvm.IRModule) -> list[TuningTask]:
    """Collect the distinct tensor programs that a lowered module calls, heaviest first.

    Parameters
    ----------
    mod
        What `tcl.compiler.lowering.pipeline.lower` returned.
    """
    calls = _count_calls(mod)
    groups: dict[str, list[str]] = {}
    workloads: dict[str, tuple[Workload, tvm.IRModule]] = {}
    for variable, function in mod.functions_items():
        name = variable.name_hint
        if not isinstance(function, tirx.PrimFunc) or name not in calls:
            continue
        program = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        workload = describe(program, name)
        groups.setdefault(workload.key, []).append(name)
        workloads.setdefault(workload.key, (workload, program))
    tasks = [
        TuningTask(workload, sum(calls[n] for n in groups[key]), program, tuple(groups[key]))
        for key, (workload, program) in workloads.items()
    ]
    return sorted(tasks, key=lambda t: (-t.weight * t.workload.summary.flops, t.workload.key))


def describe(program: tvm.IRModule, name: str) -> Workload:
    """Return the workload of a one-function module.

    The key is a hash of TVM's structural hash: variable names do not count, so a program has one key in every network.
    """
    line = plain_json(ms.database.Workload(program).as_json())
    key = hashlib.sha256(f"metaschedule:{line[0]}".encode()).hexdigest()[:16]
    summary = summarise(program["main"])
    return Workload(key, "metaschedule", name, json.dumps(line, separators=(",", ":")), summary)


def program_of(workload: Workload) -> tvm.IRModule:
    """Rebuild the module that `describe` recorded."""
    return ms.database.Workload.from_json(json.loads(workload.program)).mod


def design_space(task: TuningTask, target: tvm.target.Target) -> DesignSpace:
    """Generate a task's sketches with MetaSchedule's rules for the target."""
    with _silent_stderr():
        sketches = tuning_context(task.mod, target).generate_design_space()
    traces = [plain_json(sketch.trace.as_json()) for sketch in sketches]
    locations = [
        _compute_locations(task.mod, sketch.trace, trace)
        for sketch, trace in zip(sketches, traces, strict=True)
    ]
    return DesignSpace(traces, locations)


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    """Keep TVM's C++ warnings (of custom rules that the CPU does not have) off the terminal."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _compute_locations(mod: tvm.IRModule, trace: Trace, parsed: Any) -> dict[int, list[int]]:
    """Replay a sketch with fresh decisions and collect the compute locations that TVM found valid."""
    indices = [i for i, instruction in enumerate(parsed[0]) if instruction[0] == "SampleComputeLocation"]
    found: dict[int, set[int]] = {index: set() for index in indices}
    free = Trace(trace.insts, {})
    for replay in range(_LOCATION_REPLAYS if indices else 0):
        schedule = Schedule(mod, seed=replay + 1, error_render_level="none")
        try:
            free.apply_to_schedule(schedule, remove_postproc=True)
        except Exception:  # TVM raises its own classes; an impossible combination teaches nothing
            continue
        for index, decision in plain_json(schedule.trace.as_json())[1]:
            if index in found:
                found[index].add(int(decision))
    return {index: sorted(values) for index, values in found.items()}


def summarise(function: tirx.PrimFunc) -> WorkloadSummary:
    """Describe what a PrimFunc computes, in the terms of the cost model."""
    schedule = Schedule(tvm.IRModule({"main": function}))
    root = schedule.get_sblock("root", func_name="main")
    blocks = [schedule.get(block) for block in schedule.get_child_blocks(root)]
    anchor = max(blocks, key=_points, default=None)
    outputs = {block.writes[0].source.name for block in blocks if len(block.writes)}
    read = write = 0.0
    dtype = "float32"
    for parameter in function.params:
        tensor = parameter.ty
        if not hasattr(tensor, "shape"):
            continue  # a scalar
        size = float(_product(tensor.shape)) * tvm.DataType(str(tensor.dtype)).itemsize
        if parameter.name in outputs:
            write, dtype = write + size, str(tensor.dtype)
        else:
            read += size
    spatial: tuple[int, ...] = ()
    reduction: tuple[int, ...] = ()
    if anchor is not None:
        extents = [(int(v.dom.extent), int(v.iter_type)) for v in anchor.iter_vars if _is_static(v)]
        spatial = tuple(e for e, kind in extents if kind != _REDUCTION)
        reduction = tuple(e for e, kind in extents if kind == _REDUCTION)
    flops = float(tvm.s_tir.analysis.estimate_tir_flops(tvm.IRModule({"main": function})))
    op = _operator(anchor.name_hint if anchor is not None else "", spatial, reduction, blocks)
    return WorkloadSummary(op, dtype, flops, read, write, spatial, reduction, max(len(blocks), 1))


def _operator(name: str, spatial: Sequence[int], reduction: Sequence[int], blocks: Sequence[Any]) -> str:
    """Kind of the anchor block, from the names that topi and our own lowering give."""
    names = " ".join(block.name_hint for block in blocks)
    if "depthwise" in name:
        return "depthwise_conv2d"
    if "conv" in name:
        return "conv2d"
    if "matmul" in name or "dense" in name or "NN" in name:
        outer = spatial[:-2] if len(spatial) > 2 else ()
        return "batch_matmul" if _product(outer) > 1 else "matmul"
    if "softmax" in names:
        return "softmax"
    if "pool" in names:
        return "pool"
    return "reduce" if _product(reduction) > 1 else "elementwise"


def _points(block: Any) -> int:
    """Iterations of a block; reductions count before copies of the same size."""
    points = _product(v.dom.extent for v in block.iter_vars if _is_static(v))
    return 2 * points + int(any(int(v.iter_type) == _REDUCTION for v in block.iter_vars))


def _is_static(variable: Any) -> bool:
    return isinstance(variable.dom.extent, tirx.IntImm)


def _product(values: Any) -> int:
    result = 1
    for value in values:
        result *= int(value)
    return result


def _count_calls(mod: tvm.IRModule) -> dict[str, int]:
    """Calls of each PrimFunc from the module's Relax functions."""
    counts: dict[str, int] = {}

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call):
            for argument in (node.op, *node.args):
                if isinstance(argument, tvm.ir.GlobalVar):
                    counts[argument.name_hint] = counts.get(argument.name_hint, 0) + 1

    for _, function in mod.functions_items():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return counts
