"""Prefetching of what reductions stream from memory.

The weights of a network do not fit the nearer caches, so a convolution or matrix product meets them in memory or in the
last cache at each run. The hardware follows a stream only to the end of a page of 4 KB, and the multiply-adds wait at
the beginning of the next one. Here each reduction asks for the lines of its large operands before it needs them:

- Where a loop reads the same lines again in each of its iterations (a panel of weights, for one tile of rows after the
  other), its iterations share in asking for the next panel. Memory gives a core a line in some ten cycles, and the
  first pass over a panel takes less than that for each.
- Elsewhere the reduction asks for what it will read some 2000 cycles later.

The prefetches are inserted into the scheduled program, after post-processing, so that traces and design spaces know
nothing of them, and candidates are measured with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, tirx

from tcl.compiler.programs.prefetch_operands import PREFETCH, REDUCTION, Nest, Operand
from tcl.compiler.programs.statements import loop_with, realize_with

_LEAST_BYTES = 64 << 10  # smaller operands stay in the nearer caches
_UNROLL = "pragma_auto_unroll_max_step"

Var = Any
Stmt = Any


def register() -> None:
    """Have TVM lower prefetches for CPUs; once in a process."""
    tirx.op.register_intrin_lowering(PREFETCH, target="llvm", f=_lower, level=11)


def _lower(call: Any) -> Any:
    """LLVM's prefetch of an address that is computed from the null pointer.

    LLVM takes a prefetch for a read. One through a buffer's own pointer might read the accumulators, for all it knows,
    and would keep them from being held in registers; nothing lies behind the null pointer.
    """
    null = tirx.reinterpret("handle", tirx.const(0, "int64"))
    address = tirx.handle_add_byte_offset(null, tirx.reinterpret("int64", call.args[0]))
    read, data = tirx.const(0, "int32"), tirx.const(1, "int32")
    return tirx.call_llvm_intrin("void", "llvm.prefetch", address, read, call.args[1], data)


def insert_prefetches(mod: tvm.IRModule, target: tvm.target.Target, scheduled: Iterable[str]) -> tvm.IRModule:
    """Let the reductions of scheduled programs prefetch their large operands.

    Parameters
    ----------
    mod
        A module.
    target
        Only programs of CPUs prefetch; those of others come back as they are.
    scheduled
        Names of the PrimFuncs that are scheduled and post-processed.
    """
    if target.kind.name != "llvm":
        return mod
    mod = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for name in scheduled:
        mod[mod.get_global_var(name)] = _insert(mod[name])
    return mod


@dataclass(frozen=True)
class _Prefetch:
    """What to insert at the beginning of the body of a loop.

    Attributes
    ----------
    loop
        The loop's variable.
    calls
        A statement for each line.
    """

    loop: Var
    calls: tuple[Stmt, ...]


def _insert(function: tirx.PrimFunc) -> tirx.PrimFunc:
    body, _, _ = _visit(function.body, [], list(function.params))
    return function if body.same_as(function.body) else function.with_body(body)


def _visit(stmt: Stmt, loops: list[Any], operands: list[Var]) -> tuple[Stmt, list[_Prefetch], float]:
    """Rebuild a statement with its prefetches.

    Returns
    -------
    tuple
        The statement, the prefetches that belong into a loop around it, and by which factor it has more statements than
        before.
    """
    if isinstance(stmt, tirx.For):
        return _visit_loop(stmt, loops, operands)
    if isinstance(stmt, tirx.SeqStmt):
        visited = [_visit(part, loops, operands) for part in stmt.seq]
        if not all(new.same_as(old) for (new, _, _), old in zip(visited, stmt.seq, strict=True)):
            stmt = tirx.SeqStmt([new for new, _, _ in visited])
        return stmt, [one for _, found, _ in visited for one in found], max(more for _, _, more in visited)
    if isinstance(stmt, s_tir.SBlockRealize):
        block = stmt.block
        if any(axis.iter_type == REDUCTION for axis in block.iter_vars):
            found, more = _plan(stmt, loops, operands) if block.init is None else ([], 1.0)
            return stmt, found, more
        body, found, more = _visit(block.body, loops, operands)
        if not body.same_as(block.body):
            stmt = realize_with(stmt, body)
        return stmt, found, more
    return stmt, [], 1.0


def _visit_loop(loop: Any, loops: list[Any], operands: list[Var]) -> tuple[Stmt, list[_Prefetch], float]:
    body, found, more = _visit(loop.body, [*loops, loop], operands)
    calls = [call for one in found if one.loop.same_as(loop.loop_var) for call in one.calls]
    left = [one for one in found if not one.loop.same_as(loop.loop_var)]
    notes = dict(loop.annotations)
    if calls:
        body = tirx.SeqStmt([*calls, body])
    if body.same_as(loop.body):
        return loop, left, more
    if _UNROLL in notes:  # TVM counts statements: the same loops shall be unrolled as without the prefetches
        notes[_UNROLL] = tirx.const(math.ceil(int(notes[_UNROLL]) * more), "int64")
        more = 1.0
    return loop_with(loop, body, notes), left, more


def _plan(realize: Any, loops: list[Any], operands: list[Var]) -> tuple[list[_Prefetch], float]:
    """Prefetches for one block of multiply-adds, and by which factor they multiply its statements."""
    nest = Nest(realize, loops)
    found, more = [], 1.0
    for region in realize.block.reads:
        if not any(region.source.same_as(operand) for operand in operands):
            continue
        operand = Operand(region, nest)
        if operand.bytes >= _LEAST_BYTES and operand.is_readable:
            placed = operand.panel() or operand.stream()
            if placed is not None:
                level, calls = placed
                found.append(_Prefetch(nest.variables[level], calls))
                more *= 1 + len(calls) / nest.statements(level)
    return found, more
