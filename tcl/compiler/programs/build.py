"""From a lowered module and the chosen schedules to an executable."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax
from tvm.relax.backend.cpu_generic.pipeline import dataflow_lower_passes, finalize_passes

from tcl.compiler.programs.prefetch import insert_prefetches
from tcl.compiler.programs.row_sharing import share_rows
from tcl.compiler.programs.traces import replay, tuning_context
from tcl.errors import WorkFailed


def apply_schedules(
    mod: tvm.IRModule,
    target: tvm.target.Target,
    traces: Mapping[str, str],
    *,
    prefetch: bool = True,
    by_rows: bool = True,
) -> tvm.IRModule:
    """Replace PrimFuncs by their scheduled form.

    Parameters
    ----------
    mod
        A lowered module.
    target
        Its target; gives the post-processing of traces that have none yet.
    traces
        PrimFunc name → trace as JSON text. PrimFuncs without one stay as they are.
    prefetch, by_rows
        Whether large operands are prefetched, and whether cores share out rows of feature maps; not to show what that
        is worth.

    Raises
    ------
    WorkFailed
        When a trace does not apply to its program.
    """
    scheduled = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for name, trace in traces.items():
        variable = mod.get_global_var(name)
        program = tvm.IRModule({"main": mod[variable].with_attr("global_symbol", "main")})
        function = _schedule(program, target, trace)["main"]
        scheduled[variable] = function.with_attr({"global_symbol": name, "tirx.is_scheduled": True})
    if by_rows:
        scheduled = share_rows(scheduled, target, traces)
    return insert_prefetches(scheduled, target, traces) if prefetch else scheduled


def schedule_program(program: tvm.IRModule, target: tvm.target.Target, trace: str) -> tvm.IRModule:
    """Apply a trace to a one-function module, and the target's post-processing where the trace has none.

    Raises
    ------
    WorkFailed
        When the trace does not apply to the program.
    """
    return insert_prefetches(_schedule(program, target, trace), target, ["main"])


def _schedule(program: tvm.IRModule, target: tvm.target.Target, trace: str) -> tvm.IRModule:
    try:
        return replay(tuning_context(program, target), trace).mod
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise WorkFailed(
            f"a schedule does not fit its program: {lines[-1] if lines else type(error).__name__}"
        ) from error


def build_executable(mod: tvm.IRModule, target: tvm.target.Target) -> relax.VMExecutable:
    """Compile a lowered module, scheduled or not, to an executable of the Relax virtual machine."""
    pipeline = tvm.transform.Sequential([*dataflow_lower_passes(target), *finalize_passes(target)])
    if target.kind.name == "cuda":
        mod = _bind_threads(mod, target)
    with tvm.transform.PassContext(opt_level=3), target:
        return relax.build(mod, target, relax_pipeline=pipeline)


def _bind_threads(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Give the programs of a GPU that were not tuned a schedule: without threads they cannot be compiled."""
    from tvm.s_tir import dlight

    rules = dlight.gpu
    with target:
        return dlight.ApplyDefaultSchedule(
            rules.Matmul(), rules.GEMV(), rules.Reduction(), rules.GeneralReduction(), rules.Fallback()
        )(mod)
