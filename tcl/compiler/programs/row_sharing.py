"""Which rows of feature maps each core computes.

A thread gets a contiguous part of a parallel loop, and tuned programs have their loops in the order of the axes:
channels before rows. So each of two cores computes half of the channels, and where the next program reads all of them,
every line ends in the caches of both. Writing over such a line later, when its buffer is used again, waits for the
other core to give it up, several times longer than for a line of one's own. Where all programs share out rows instead,
a core mostly reads what it has written itself.

The parallel loop keeps its iterations and only goes through them in another order, so that a program computes the same.
It is not seen where a program runs alone; therefore this is done to whole networks, after tuning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, s_tir, tirx

from tcl.compiler.programs.indices import evaluate, is_readable
from tcl.compiler.programs.statements import loop_with, realize_with

_MOST_SHARED = 0.5  # of the rows, computed by more than one core, where the cores still share out rows
_MIXING = ("conv", "matmul")  # programs whose every result needs all channels ...
_NOT_MIXING = ("depthwise",)  # ... but not these


def share_rows(mod: tvm.IRModule, target: tvm.target.Target, scheduled: Iterable[str]) -> tvm.IRModule:
    """Let the cores share out rows where that spares lines from wandering between them.

    Programs that mix channels do so if their feature maps are larger than their weights, which each core then reads
    whole; others if their largest input came from programs that did.

    Parameters
    ----------
    mod
        A lowered module.
    target
        Its target; only programs for several cores of a CPU are changed.
    scheduled
        Names of the PrimFuncs that have a schedule, without prefetches.
    """
    cores = int(target.attrs.get("num-cores", 1))
    if target.kind.name != "llvm" or cores < 2:
        return mod
    splits = {name: split for name in scheduled if (split := _find_split(mod[name], cores)) is not None}
    chosen = _choose(mod["main"], splits)
    mod = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for name in chosen:
        mod[mod.get_global_var(name)] = _reorder(mod[name], splits[name])
    return mod


@dataclass(frozen=True)
class _Split:
    """How the iterations of a program's parallel loop lie on the rows of its result.

    Attributes
    ----------
    loop
        The parallel loop.
    stride
        Iterations from one that is to be done to the next, so that cores share out rows; 1: as they are.
    by_rows
        Whether they do.
    mixes
        Whether every result needs all channels.
    """

    loop: Any
    stride: int
    by_rows: bool
    mixes: bool


def _choose(main: relax.Function, splits: dict[str, _Split]) -> list[str]:
    """Names of the programs to reorder, in the order in which the network calls them."""
    by_rows: dict[relax.Var, bool] = {}  # of the maps there are
    decided: dict[str, bool] = {}
    for block in main.body.blocks:
        for binding in block.bindings:
            call = binding.value
            name = _called(call)
            if name is None:  # a view, as a rule
                sources = [v for v in relax.analysis.free_vars(call) if v in by_rows]
                by_rows[binding.var] = bool(sources) and all(by_rows[v] for v in sources)
                continue
            split = splits.get(name)
            if name not in decided and split is not None:
                decided[name] = split.by_rows and (
                    split.stride == 1 or _wants_rows(call, split, by_rows, _bytes(call))
                )
            by_rows[binding.var] = decided.get(name, False)
    return [name for name, rows in decided.items() if rows and splits[name].stride > 1]


def _wants_rows(call: relax.Call, split: _Split, by_rows: dict[relax.Var, bool], result: int) -> bool:
    arguments = list(call.args[1])
    maps = [a for a in arguments if isinstance(a, relax.Var)]
    if split.mixes:
        weights = sum(_bytes(a) for a in arguments if not isinstance(a, relax.Var))
        return sum(map(_bytes, maps)) + result >= weights
    largest = max(maps, key=_bytes, default=None)
    return largest is None or by_rows.get(largest, True)  # an input of the network is nobody's


def _called(call: relax.Expr) -> str | None:
    is_call = isinstance(call, relax.Call) and isinstance(call.op, tvm.ir.Op)
    return call.args[0].name_hint if is_call and call.op.name == "relax.call_tir" else None


def _bytes(expr: relax.Expr) -> int:
    """Size of a tensor or of a tuple of them; 0 of what is none."""
    return _type_bytes(expr.ty)


def _type_bytes(kind: Any) -> int:
    if isinstance(kind, relax.TupleType):
        return sum(map(_type_bytes, kind.fields))
    if getattr(kind, "shape", None) is None or not hasattr(kind, "dtype"):
        return 0
    width = (tvm.DataType(str(kind.dtype)).bits + 7) // 8
    return math.prod(int(extent) for extent in kind.shape) * width


def _find_split(function: tirx.PrimFunc, cores: int) -> _Split | None:
    """The parallel loop that computes a program's result; None where its rows are not known."""
    found: list[_Write] = []
    names: list[str] = []

    def visit(stmt: Any, parallel: Any, loops: list[Any]) -> None:
        if isinstance(stmt, tirx.For):
            if int(stmt.kind) == tirx.ForKind.PARALLEL:
                visit(stmt.body, stmt, loops)
            else:
                visit(stmt.body, parallel, [*loops, stmt.loop_var])
        elif isinstance(stmt, tirx.SeqStmt):
            for part in stmt.seq:
                visit(part, parallel, loops)
        elif isinstance(stmt, s_tir.SBlockRealize):
            names.append(stmt.block.name_hint)
            for region in stmt.block.writes:
                if parallel is not None and any(region.source.same_as(p) for p in function.params):
                    found.append(_Write(parallel, stmt, region, loops))
            visit(stmt.block.body, parallel, loops)

    visit(function.body, None, [])
    rows = found[-1].rows() if found else None
    if rows is None:
        return None
    mixes = any(word in name for name in names for word in _MIXING) and not any(
        word in name for name in names for word in _NOT_MIXING
    )
    count = len(rows)
    strides = [stride for stride in range(1, count + 1) if count % stride == 0]
    shared = {stride: _shared(rows[_order(np.arange(count), stride, count)], cores) for stride in strides}
    best = min(strides, key=lambda stride: (shared[stride], stride))
    if shared[1] <= _MOST_SHARED:
        best = 1
    return _Split(found[-1].loop, best, shared[best] <= _MOST_SHARED, mixes)


@dataclass(frozen=True)
class _Write:
    """Where a program writes its result.

    Attributes
    ----------
    loop
        The parallel loop around it.
    realize, region
        The block, and what it writes.
    others
        Variables of the other loops around it.
    """

    loop: Any
    realize: Any
    region: Any
    others: list[Any]

    def rows(self) -> np.ndarray | None:
        """The first row that each iteration of the parallel loop writes, counted through the batch.

        None where there are no rows (only blocked maps and matrices have them), or they are not known.
        """
        loop, shape = self.loop, [int(extent) for extent in self.region.source.shape]
        if len(shape) == 5:  # NCHW[b]c
            axes = [0, 2]
        elif len(shape) in (2, 3):
            axes = list(range(len(shape) - 1))
        else:
            return None
        whole = isinstance(loop.extent, tirx.IntImm) and int(loop.extent) > 0 and loop.step is None
        if not whole or not isinstance(loop.min, tirx.IntImm) or int(loop.min) != 0:
            return None
        row: Any = 0
        for axis in axes:
            row = row * shape[axis] + self.region.region[axis].min
        variables = [variable.var for variable in self.realize.block.iter_vars]
        index = tirx.IndexMap(variables, [row], None).map_indices(list(self.realize.iter_values))[0]
        if not is_readable(index, [loop.loop_var, *self.others]):
            return None
        count = int(loop.extent)
        values = [(loop.loop_var, np.arange(count)), *((variable, np.int64(0)) for variable in self.others)]
        return np.broadcast_to(np.asarray(evaluate(index, values)), (count,))


def _order(position: Any, stride: int, count: int) -> Any:
    """Which iteration of the loop is done at a position; a permutation, of numbers or of an expression."""
    return position % stride * (count // stride) + position // stride


def _shared(rows: np.ndarray, cores: int) -> float:
    """Of the rows, in the order of iterations, how many more than one core computes."""
    core = np.arange(len(rows)) // math.ceil(len(rows) / cores)
    pairs = np.unique(rows * cores + core)
    _, owners = np.unique(pairs // cores, return_counts=True)
    return float((owners > 1).mean())


def _reorder(function: tirx.PrimFunc, split: _Split) -> tirx.PrimFunc:
    """Let a parallel loop go through its iterations in another order."""
    loop, count = split.loop, int(split.loop.extent)
    place = tirx.Var(f"{loop.loop_var.name}_by_rows", loop.loop_var.ty)
    iteration = _order(place, split.stride, count)
    inner = tirx.PrimFunc([loop.loop_var, *function.params], loop.body)
    body = inner.specialize({loop.loop_var: iteration}).body
    reordered = tirx.For(place, loop.min, loop.extent, loop.kind, body, loop.thread_binding, loop.annotations)

    def rebuild(stmt: Any) -> Any:
        if stmt.same_as(loop):
            return reordered
        if isinstance(stmt, tirx.For):
            return loop_with(stmt, rebuild(stmt.body))
        if isinstance(stmt, tirx.SeqStmt):
            return tirx.SeqStmt([rebuild(part) for part in stmt.seq])
        if isinstance(stmt, s_tir.SBlockRealize):
            return realize_with(stmt, rebuild(stmt.block.body))
        return stmt

    return function.with_body(rebuild(function.body))
