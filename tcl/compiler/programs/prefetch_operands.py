"""The operands of a block of multiply-adds, and which of their lines to prefetch where."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from tcl.compiler.programs.indices import Expr, evaluate, has, is_readable

PREFETCH = "tirx.prefetch"
"""TVM's operator: a pointer, and how near to keep the line (LLVM's locality)."""
REDUCTION = 2  # IterVar.CommReduce
_LINE_BYTES = 64
_CYCLES_AHEAD = 2000.0  # a line comes from memory in a few hundred, and others are in front of it
_LEAST_CYCLES_AHEAD = 200.0  # what the last cache takes
_MOST_LINES = 16  # at once: about as many as a core can wait for
_LEAST_WORK = 4  # multiply-adds of whole lines for each prefetch: it takes an instruction itself
_LEAST_PANEL_WORK = 16  # the same for a panel: lines then come no faster than memory gives them
_LEAST_PANEL_CYCLES = 1000.0  # of all passes over a panel
_MOST_PANEL_BYTES = (
    512 << 10
)  # half of the second cache of a server's core, which keeps it until it is needed
_MOST_PANEL_LINES = 64  # of the loop's body that asks for a share of them
_MOST_POINTS = 1 << 12  # of a tile, to count its lines
_FIRST_CACHE, _SECOND_CACHE = 3, 2  # LLVM's locality

Stmt = Any
Placed = tuple[int, tuple[Stmt, ...]] | None
"""Number of a loop, and what to put at the beginning of its body."""


class Nest:
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
            if axis.iter_type == REDUCTION
        ]
        self.reduces = [any(has(binding, variable) for binding in reducing) for variable in self.variables]
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


class Operand:
    """A buffer that a block reads, and where.

    Attributes
    ----------
    bytes
        Its size.
    is_readable
        Whether the place where it is read is known arithmetic of loop variables, not for instance an index from memory.
    """

    def __init__(self, region: Any, nest: Nest) -> None:
        self._buffer, self._nest = region.source, nest
        shape = [int(extent) for extent in self._buffer.shape]
        self._each = (tvm.DataType(str(self._buffer.dtype)).bits + 7) // 8
        self.bytes = math.prod(shape) * self._each
        offset: Expr = 0
        for part, extent in zip(region.region, shape, strict=True):
            offset = offset * extent + part.min
        bound = tirx.IndexMap(nest.axes, [offset], None).map_indices(nest.bindings)[0]
        self._offset = nest.analyzer.simplify(bound)
        self.is_readable = is_readable(self._offset, [*nest.shared, *nest.variables])
        self._moves = [
            extent > 1 and has(self._offset, variable)
            for variable, extent in zip(nest.variables, nest.extents, strict=True)
        ]

    def panel(self) -> Placed:
        """Ask for the panel that comes next, in each pass over a panel for a share of it.

        A panel is what the loops inside a loop read that does not move on in the operand; the next one is what they
        read in the next iteration around it.

        Returns
        -------
        tuple or None
            The number of the loop in whose iterations to prefetch, and a statement for each line; None where no loop
            repeats its lines.
        """
        found = min(self._panels(), default=None)
        if found is None:
            return None
        _, _, outer, level, (share, parts, step, lines) = found
        nest = self._nest
        turn: Expr = 0  # which pass it is; there may be more than parts
        for number in range(outer, level + 1):
            if not self._moves[number]:
                turn = turn * nest.extents[number] + nest.variables[number]
        base, first = self._next(outer, level), tirx.min(turn * share, parts - share)
        elements = _LINE_BYTES // self._each
        offsets = [
            nest.analyzer.simplify(base + ((first + part) * step + line) * elements)
            for part in range(share)
            for line in lines
        ]
        return level, tuple(self._call(offset, _SECOND_CACHE) for offset in offsets)

    def stream(self) -> Placed:
        """Ask for what the reduction reads `_CYCLES_AHEAD` later.

        Returns
        -------
        tuple or None
            As of `panel`: the innermost loop of the reduction in which the prefetches cost little; None where there is
            no such loop, or the reduction is too short.
        """
        for level in reversed(self._streams()):
            lines = self._lines(level)
            if lines and self._nest.work(level, self._each) >= _LEAST_WORK * len(lines):
                target = self._target(level)
                if target is None:
                    return None
                offsets = [target + line * (_LINE_BYTES // self._each) for line in lines]
                return level, tuple(self._call(offset, _FIRST_CACHE) for offset in offsets)
        return None

    def _panels(self) -> Iterator[tuple[float, int, int, int, tuple[int, int, int, tuple[int, ...]]]]:
        """Panels and the places to ask for them.

        Yields
        ------
        tuple
            The best are the smallest: lines for each cycle of the passes, passes, number of the loop that repeats the
            panel, number of the loop in whose iterations to ask, and for what: parts at once, of how many, how many
            lines they lie apart, and the lines of the first.
        """
        nest = self._nest
        for level in reversed(range(len(nest.extents))):
            lines = self._lines(level, _MOST_PANEL_LINES)
            if not lines:
                return
            part, step = _period(lines)
            passes, panel, work = 1, len(lines) * _LINE_BYTES, nest.work(level, self._each)
            for outer in range(level, -1, -1):
                if self._moves[outer]:
                    panel *= nest.extents[outer]
                    continue
                passes *= nest.extents[outer]
                if panel > _MOST_PANEL_BYTES or not self._moves_around(outer):
                    break
                parts = len(lines) // len(part)
                share = math.ceil(parts / passes)
                asked = share * len(part)
                cycles = nest.work(outer, self._each) * nest.extents[outer]
                if (
                    nest.extents[outer] > 1
                    and asked <= _MOST_LINES
                    and work >= _LEAST_PANEL_WORK * asked
                    and cycles >= _LEAST_PANEL_CYCLES
                ):
                    yield asked / work, passes, outer, level, (share, parts, step, part)

    def _moves_around(self, outer: int) -> bool:
        """Whether a loop around another moves on in the operand."""
        return any(self._moves[:outer]) or any(has(self._offset, variable) for variable in self._nest.shared)

    def _next(self, outer: int, level: int) -> Expr:
        """The offset at the beginning of an iteration of loop `level`, in the next iteration around loop `outer`.

        Of the loops around it that move on in the operand, up to one that repeats what they read, the innermost goes
        on, and the next where that one begins anew, at last the loop that threads share.
        """
        nest = self._nest
        values, shared = list(nest.variables), list(nest.shared)
        step: Expr = 1
        for number in range(outer - 1, -1, -1):
            if self._moves[number]:
                advanced = nest.variables[number] + step
                values[number] = tirx.floormod(advanced, nest.extents[number])
                step = tirx.floordiv(advanced, nest.extents[number])
            elif nest.extents[number] > 1 and not isinstance(step, int):
                break
        else:
            shared[-1:] = [variable + step for variable in shared[-1:]]
        values[level + 1 :] = [tirx.const(0, str(v.ty.dtype)) for v in nest.variables[level + 1 :]]
        variables = [*nest.shared, *nest.variables]
        return tirx.IndexMap(variables, [self._offset], None).map_indices([*shared, *values])[0]

    def _target(self, level: int) -> Expr | None:
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

    def _call(self, offset: Expr, cache: int) -> Stmt:
        """Prefetch one line."""
        pointer = self._buffer.access_ptr("r", offset=offset)
        return tirx.Evaluate(tirx.call_intrin("void", PREFETCH, pointer, tirx.const(cache, "int32")))

    def _streams(self) -> list[int]:
        """Numbers of the loops of the reduction that move on in the operand."""
        return [
            number
            for number, (moves, reduces) in enumerate(zip(self._moves, self._nest.reduces, strict=True))
            if moves and reduces
        ]

    def _lines(self, level: int, most: int = _MOST_LINES) -> list[int]:
        """Lines that one iteration of a loop reads, from its first; empty if they are too many."""
        nest = self._nest
        inner = [number for number in range(level + 1, len(nest.extents)) if self._moves[number]]
        extents = [nest.extents[number] for number in inner]
        if math.prod(extents) > _MOST_POINTS:
            return []
        values = [(variable, np.int64(0)) for variable in (*nest.shared, *nest.variables)]
        for number, points in zip(inner, np.indices(extents), strict=True):
            values[len(nest.shared) + number] = (nest.variables[number], points)
        offsets = np.asarray(evaluate(self._offset, values))
        lines = np.unique((offsets - offsets.min()) * self._each // _LINE_BYTES)
        return lines.tolist() if len(lines) <= most else []

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


def _period(lines: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """The shortest part of a list of lines whose repetition is the list, and how many lines the parts lie apart."""
    for count in range(1, len(lines)):
        step = lines[count] - lines[0]
        if len(lines) % count == 0 and all(
            later - line == step for line, later in zip(lines, lines[count:], strict=False)
        ):
            return tuple(lines[:count]), step
    return tuple(lines), 0
