"""Prefetching of what reductions stream from memory.

The weights of a network do not fit the nearer caches, so a convolution or matrix product meets them in memory or in the
last cache at each run. The hardware follows a stream only to the end of a page of 4 KB, and the multiply-adds wait at
the beginning of the next one. Here each reduction asks for the lines of its large operands that it will need
`_CYCLES_AHEAD` later.

The prefetches are inserted into the scheduled program, after post-processing, so that traces and design spaces know
nothing of them, and candidates are measured as they are built into a package.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import s_tir, tirx

_LINE_BYTES = 64
_CYCLES_AHEAD = 2000.0  # a line comes from memory in a few hundred, and others are in front of it
_LEAST_CYCLES_AHEAD = 200.0  # what the last cache takes
_LEAST_BYTES = 64 << 10  # smaller operands stay in the nearer caches
_MOST_LINES = 16  # at once: about as many as a core can wait for
_LEAST_WORK = 4  # multiply-adds of whole lines for each prefetch: it takes an instruction itself
_MOST_POINTS = 1 << 12  # of a tile: more would be more lines than allowed anyway
_OP = "tirx.prefetch"
_UNROLL = "pragma_auto_unroll_max_step"
_REDUCTION = 2  # IterVar.CommReduce

Var = Any
Expr = Any
Stmt = Any


def register() -> None:
    """Have TVM lower prefetches for CPUs; once in a process."""
    tirx.op.register_intrin_lowering(_OP, target="llvm", f=_lower, level=11)


def _lower(call: Any) -> Any:
    """LLVM's prefetch of an address that is computed from the null pointer.

    LLVM takes a prefetch for a read. One through a buffer's own pointer might read the accumulators, for all it knows,
    and would keep them from being held in registers; nothing lies behind the null pointer.
    """
    null = tirx.reinterpret("handle", tirx.const(0, "int64"))
    address = tirx.handle_add_byte_offset(null, tirx.reinterpret("int64", call.args[0]))
    read, keep_near, data = (tirx.const(flag, "int32") for flag in (0, 3, 1))
    return tirx.call_llvm_intrin("void", "llvm.prefetch", address, read, keep_near, data)


def insert_prefetches(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Let the reductions of scheduled programs prefetch their large operands.

    Parameters
    ----------
    mod
        PrimFuncs, scheduled and post-processed.
    target
        Only programs of CPUs prefetch; those of others come back as they are.
    """
    if target.kind.name != "llvm":
        return mod
    return tvm.IRModule(
        {name: _insert(function) for name, function in mod.functions_items()}, attrs=mod.attrs
    )


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
        if any(axis.iter_type == _REDUCTION for axis in block.iter_vars):
            found, more = _plan(stmt, loops, operands) if block.init is None else ([], 1.0)
            return stmt, found, more
        body, found, more = _visit(block.body, loops, operands)
        if not body.same_as(block.body):
            stmt = s_tir.SBlockRealize(stmt.iter_values, stmt.predicate, _with_body(block, body))
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
    rebuilt = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, notes)
    return rebuilt, left, more


def _with_body(block: Any, body: Stmt) -> Any:
    return s_tir.SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        body,
        block.init,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )


def _plan(realize: Any, loops: list[Any], operands: list[Var]) -> tuple[list[_Prefetch], float]:
    """Prefetches for one block of multiply-adds, and by which factor they multiply its statements."""
    nest = _Nest(realize, loops)
    found, more = [], 1.0
    for region in realize.block.reads:
        if not any(region.source.same_as(operand) for operand in operands):
            continue
        operand = _Operand(region, nest)
        if operand.bytes >= _LEAST_BYTES and operand.is_readable and (place := operand.place()) is not None:
            level, lines = place
            if (target := operand.target(level, lines)) is not None:
                calls = tuple(operand.call(target, line) for line in lines)
                found.append(_Prefetch(nest.variables[level], calls))
                more *= 1 + len(lines) / nest.statements(level)
    return found, more


class _Nest:
    """The loops around a block, without those whose iterations other threads do.

    Attributes
    ----------
    variables, extents
        Of the loops, outermost first.
    reduces
        Whether a loop is one of the reduction's.
    """

    def __init__(self, realize: Any, loops: list[Any]) -> None:
        self.loops = [loop for loop in loops if int(loop.kind) != tirx.ForKind.PARALLEL]
        self.variables = [loop.loop_var for loop in self.loops]
        self.extents = [int(loop.extent) for loop in self.loops]
        self.shared = [loop.loop_var for loop in loops if int(loop.kind) == tirx.ForKind.PARALLEL]
        self.axes = [axis.var for axis in realize.block.iter_vars]
        self.bindings = list(realize.iter_values)
        reducing = [
            binding
            for axis, binding in zip(realize.block.iter_vars, self.bindings, strict=True)
            if axis.iter_type == _REDUCTION
        ]
        self.reduces = [any(_has(binding, variable) for binding in reducing) for variable in self.variables]
        self.analyzer = tvm.sym.Analyzer()
        for loop in loops:
            self.analyzer.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))

    def work(self, level: int, bytes_each: int) -> float:
        """Multiply-adds of whole lines in one iteration of a loop; a core does about one in a cycle."""
        return max(math.prod(self.extents[level + 1 :]) * bytes_each / _LINE_BYTES, 1.0)

    def statements(self, level: int) -> int:
        """Statements of the block in one iteration of a loop."""
        return math.prod(
            extent
            for extent, loop in zip(self.extents[level + 1 :], self.loops[level + 1 :], strict=True)
            if int(loop.kind) != tirx.ForKind.VECTORIZED
        )


class _Operand:
    """A buffer that a block reads, and where.

    Attributes
    ----------
    bytes
        Its size.
    is_readable
        Whether the place where it is read is known arithmetic of loop variables, not for instance an index from memory.
    """

    def __init__(self, region: Any, nest: _Nest) -> None:
        self._buffer, self._nest = region.source, nest
        shape = [int(extent) for extent in self._buffer.shape]
        self._each = (tvm.DataType(str(self._buffer.dtype)).bits + 7) // 8
        self.bytes = math.prod(shape) * self._each
        offset: Expr = 0
        for part, extent in zip(region.region, shape, strict=True):
            offset = offset * extent + part.min
        bound = tirx.IndexMap(nest.axes, [offset], None).map_indices(nest.bindings)[0]
        self._offset = nest.analyzer.simplify(bound)
        self.is_readable = _is_readable(self._offset)
        self._moves = [
            extent > 1 and _has(self._offset, variable)
            for variable, extent in zip(nest.variables, nest.extents, strict=True)
        ]

    def place(self) -> tuple[int, list[int]] | None:
        """The innermost loop of the reduction in which a prefetch costs little, and the lines that an iteration reads.

        Returns
        -------
        tuple or None
            The loop's number and the lines, counted from the first; None where there is no such loop.
        """
        for level in reversed(self._streams()):
            lines = self._lines(level)
            if lines and self._nest.work(level, self._each) >= _LEAST_WORK * len(lines):
                return level, lines
        return None

    def target(self, level: int, lines: Sequence[int]) -> Expr | None:
        """Offset of what will be read `_CYCLES_AHEAD` later, or a quarter of the reduction later if that is less.

        It is some iterations ahead in the innermost loop that has at least twice as many; None where even the last
        cache takes longer than a quarter of the reduction.
        """
        nest, streams = self._nest, self._streams()
        cycles = nest.work(level, self._each)
        ahead = min(_CYCLES_AHEAD, cycles * math.prod(nest.extents[streams[0] : level + 1]) / 4)
        if ahead < _LEAST_CYCLES_AHEAD:
            return None
        for outer in range(level, streams[0] - 1, -1):
            iterations = math.ceil(ahead / cycles)
            if outer in streams and (iterations == 1 or 2 * iterations <= nest.extents[outer]):
                return self._shifted(level, outer, iterations)
            cycles *= nest.extents[outer]
        return None

    def call(self, target: Expr, line: int) -> Stmt:
        """Prefetch one line."""
        pointer = self._buffer.access_ptr("r", offset=target + line * (_LINE_BYTES // self._each))
        return tirx.Evaluate(tirx.call_intrin("void", _OP, pointer))

    def _streams(self) -> list[int]:
        """Numbers of the loops of the reduction that move on in the operand."""
        return [
            number
            for number, (moves, reduces) in enumerate(zip(self._moves, self._nest.reduces, strict=True))
            if moves and reduces
        ]

    def _lines(self, level: int) -> list[int]:
        """Lines that one iteration of a loop reads, from its first; empty if they are too many."""
        nest = self._nest
        inner = [number for number in range(level + 1, len(nest.extents)) if self._moves[number]]
        extents = [nest.extents[number] for number in inner]
        if math.prod(extents) > _MOST_POINTS:
            return []
        values = [(variable, np.int64(0)) for variable in (*nest.shared, *nest.variables)]
        for number, points in zip(inner, np.indices(extents), strict=True):
            values[len(nest.shared) + number] = (nest.variables[number], points)
        offsets = np.asarray(_evaluate(self._offset, values))
        lines = np.unique((offsets - offsets.min()) * self._each // _LINE_BYTES)
        return lines.tolist() if len(lines) <= _MOST_LINES else []

    def _shifted(self, level: int, outer: int, iterations: int) -> Expr:
        """The offset at the beginning of an iteration of loop `level`, `iterations` of loop `outer` later."""
        nest = self._nest
        values = [
            variable if number <= level else tirx.const(0, str(variable.ty.dtype))
            for number, variable in enumerate(nest.variables)
        ]
        values[outer] = values[outer] + iterations
        moved = tirx.IndexMap(nest.variables, [self._offset], None).map_indices(values)[0]
        return nest.analyzer.simplify(moved)


_BINARY = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
}


def _has(expr: Expr, variable: Var) -> bool:
    """Whether a variable occurs in an index."""
    if isinstance(expr, tirx.Var):
        return bool(expr.same_as(variable))
    return type(expr) in _BINARY and (_has(expr.a, variable) or _has(expr.b, variable))


def _is_readable(expr: Expr) -> bool:
    """Whether `_evaluate` can."""
    if type(expr) in _BINARY:
        return _is_readable(expr.a) and _is_readable(expr.b)
    return isinstance(expr, tirx.Var | tirx.IntImm)


def _evaluate(expr: Expr, values: Sequence[tuple[Var, Any]]) -> Any:
    """Value of an index; variables may have arrays of values."""
    if isinstance(expr, tirx.Var):
        return next(value for variable, value in values if expr.same_as(variable))
    if isinstance(expr, tirx.IntImm):
        return np.int64(expr.value)
    return _BINARY[type(expr)](_evaluate(expr.a, values), _evaluate(expr.b, values))
