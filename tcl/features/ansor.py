"""Ansor (auto_scheduler) steps as step sequences.

A step is ``[code, stage, ...]``. Stages are numbered at the moment of the step: cache and rfactor steps
insert a stage and move those behind it up. The layouts are those of TVM's ``transform_step.cc``; the iterator
annotations those of its ``loop_state.h``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tcl.features.batch import pad_steps
from tcl.features.summary import add_summary
from tcl.features.tracker import (
    COUNT,
    EXTENT,
    NUMBER,
    REDUCE,
    ROLE,
    SCOPE,
    SPATIAL,
    Block,
    Loop,
    Place,
    Tracker,
    log2,
)
from tcl.records.traces import HOLE, split_trace

_ANNOTATIONS = {
    1: "unroll",
    2: "vectorize",
    3: "parallel",
    4: "bind_vthread",
    5: "bind_block",
    6: "bind_thread",
    7: "bind_block",
    8: "bind_thread",
    9: "bind_block",
    10: "bind_thread",
    11: "tensorize",
}
_SCOPES = {"local": 1.0, "shared": 0.5}


def encode_steps(traces: Sequence[str], op: str = "other") -> tuple[np.ndarray, np.ndarray]:
    """Features of Ansor candidates.

    Parameters
    ----------
    traces : sequence of str
        The steps of each candidate as JSON without blanks; they may be of different sketches.
    op : str
        Kind of the workload (`WorkloadSummary.op`), which says what the axes index.

    Returns
    -------
    kinds : int16[n, L]
    values : float32[n, L, STEP_WIDTH]

    Raises
    ------
    ValueError
        When a trace is not a list of Ansor steps.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    numbers = []
    for row, trace in enumerate(traces):
        parts = split_trace(trace)
        groups[parts.skeleton].append(row)
        numbers.append(parts.decisions)
    return gather(
        len(numbers),
        [
            (np.array(rows), *StepsEncoder(skeleton, op).encode([numbers[row] for row in rows]))
            for skeleton, rows in groups.items()
        ],
    )


def gather(
    count: int, groups: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    """Puts groups of (rows, kinds, values) back into one pair of arrays of `count` rows."""
    steps = max((kinds.shape[1] for _, kinds, _ in groups), default=0)
    width = max((values.shape[2] for _, _, values in groups), default=0)
    kinds = np.zeros((count, steps), np.int16)
    values = np.zeros((count, steps, width), np.float32)
    for rows, group_kinds, group_values in groups:
        kinds[rows] = pad_steps(group_kinds, steps)
        values[rows] = pad_steps(group_values, steps)
    return kinds, values


class StepsEncoder:
    """Encodes candidates that share all but the numbers of their steps.

    Parameters
    ----------
    skeleton : str
        `TraceParts.skeleton` of their traces.
    op : str
        Kind of the workload.

    Raises
    ------
    ValueError
        When the skeleton is not a list of Ansor steps.
    """

    def __init__(self, skeleton: str, op: str = "other") -> None:
        self.steps = _parse(skeleton)
        self.op = op
        self.numbers = skeleton.count(HOLE)

    def encode(self, decisions: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Features from `TraceParts.decisions` of each candidate; see `encode_arrays`."""
        try:
            flat = np.array(json.loads(f"[{','.join(decisions)}]" if self.numbers else "[]"), np.float64)
            columns = flat.reshape(len(decisions), self.numbers)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"the decisions do not fit the steps: {error}") from None
        return self.encode_arrays(np.clip(columns, 0, 2.0**40).astype(np.int64))

    def encode_arrays(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Features from int64[n, holes], the numbers in the order of the skeleton's holes."""
        return _Run(len(columns), self.op).run(self.steps, columns)


@lru_cache(maxsize=4096)
def _parse(skeleton: str) -> list[list[Any]]:
    try:
        steps = json.loads(skeleton.replace(f"${HOLE}", "$").replace(HOLE, "null"))
    except ValueError as error:
        raise ValueError(f"the steps are not JSON: {error}") from None
    if not isinstance(steps, list):
        raise ValueError("a trace of Ansor is a list of steps")
    for position, step in enumerate(steps):
        if not (isinstance(step, list) and len(step) > 1 and isinstance(step[0], str)):
            raise ValueError(f"step {position} is not [code, stage, ...]")
        if not isinstance(step[1], int) or not 0 <= step[1] < 1000:
            raise ValueError(f"step {position} ({step[0]}) has no stage number")
    return steps


class _Run:
    """One pass through the steps of a number of candidates."""

    def __init__(self, count: int, op: str) -> None:
        self.tracker = Tracker(count)
        self.op = op
        self.stages: dict[int, Block] = {}
        self.lengths: list[list[Any]] = []
        """Lengths of each split step, outermost first, by step number."""
        self.extents: list[Any] = []
        """log2 of the extent that each split step splits."""
        self.limits: dict[str, Any] = {}

    def run(self, steps: list[list[Any]], columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        holes = iter(columns.T)
        for position, step in enumerate(steps):
            self.lengths.append([])
            self.extents.append(0.0)
            handler = _HANDLERS.get(step[0])
            try:
                if step[0] == "SP":
                    self.split(step, holes)
                elif step[0] == "PR":
                    self.pragma(step, holes)
                elif handler is not None:
                    handler(self, step)
                else:
                    self.tracker.row("unknown", self.stage(step[1]))
            except (IndexError, TypeError, KeyError, StopIteration):
                raise ValueError(f"step {position} ({step[0]}) is not laid out as Ansor's") from None
        add_summary(self.tracker, **self.limits)
        return self.tracker.finish()

    def stage(self, number: int) -> Block:
        if number not in self.stages:
            self.stages[number] = self.tracker.block(self.op)
        return self.stages[number]

    def insert_stage(self, number: int) -> Block:
        self.stages = {old + (old >= number): block for old, block in self.stages.items()}
        return self.stage(number)

    def loop(self, block: Block, index: int) -> Loop:
        """Loop `index` of a stage; the log does not say how many a stage has at first."""
        if not 0 <= index < 1000:
            raise IndexError(index)
        while len(block.loops) <= index:
            block.loops.append(Loop())
        return block.loops[index]

    def split(self, step: list[Any], holes: Any) -> None:
        block = self.stage(step[1])
        loop = self.loop(block, step[2])
        extent = next(holes) if step[3] is None else step[3]
        lengths = [next(holes) if length is None else length for length in step[4]]
        self.lengths[-1] = lengths
        self.extents[-1] = log2(extent)
        rest = extent
        for length in lengths:
            rest = -(-rest // np.maximum(length, 1))
        factors = [rest, *lengths] if step[5] else [*lengths, rest]
        if block.row is not None and not block.tiles and len(lengths) == 1:  # threads load a tile together
            number = log2(np.asarray(factors[-1]) + 1) / 4
            self.tracker.row("cooperative_fetch", block, {EXTENT: log2(extent) / 5, NUMBER: number})
            self.tracker.replace([loop], [Loop(log2(factor)) for factor in factors])
            return
        has_spatial = any(tile.role == SPATIAL for tile in block.tiles)
        role = SPATIAL if len(lengths) >= 3 else REDUCE if has_spatial else loop.role
        self.tracker.split(block, loop, factors, role, tiled=len(lengths) >= 3 or has_spatial)

    def follow_split(self, step: list[Any]) -> None:
        source = self.lengths[step[3]]
        inner = [log2(length) for length in source]
        logs = [*inner[: step[4] - 1], sum(inner[step[4] - 1 :])]
        loop = self.loop(self.stage(step[1]), step[2])
        loop.log = self.extents[step[3]]  # an axis that follows another has its extent
        self.part(step, logs)

    def follow_fused_split(self, step: list[Any]) -> None:
        factor = sum(log2(self.lengths[source][step[4]]) for source in step[3])
        self.part(step, [factor])

    def part(self, step: list[Any], inner: list[Any]) -> None:
        loop = self.loop(self.stage(step[1]), step[2])
        rest = np.maximum(loop.log - sum(inner), 0)
        self.tracker.replace([loop], [Loop(log, SPATIAL) for log in (rest, *inner)])

    def fuse(self, step: list[Any]) -> None:
        block = self.stage(step[1])
        self.tracker.fuse([self.loop(block, index) for index in step[2]])

    def reorder(self, step: list[Any]) -> None:
        block = self.stage(step[1])
        block.loops = [self.loop(block, index) for index in step[2]]

    def annotate(self, step: list[Any]) -> None:
        block = self.stage(step[1])
        loop = self.loop(block, step[2])
        if block.row is None or block.tiles:  # how a cached tile is loaded is in its own step
            kind = _ANNOTATIONS.get(step[3], "annotate")
            self.tracker.row(kind, block, {EXTENT: loop.log / 5, ROLE: loop.role})

    def pragma(self, step: list[Any], holes: Any) -> None:
        limit = next(holes) if str(step[3]).endswith("_max_step$") else 0
        self.limits["unroll"] = limit
        self.tracker.row("auto_unroll", self.stage(step[1]), {NUMBER: log2(np.asarray(limit)) / 4})

    def compute_at(self, step: list[Any]) -> None:
        block, target = self.stage(step[1]), self.stage(step[2])
        self.loop(target, step[3])
        block.place = Place(target, step[3], consumer=False)
        slots = self.tracker.location(target, step[3])
        if block.row is not None:
            block.row.update(slots)
        else:
            self.tracker.row("compute_at", block, slots)

    def cache_write(self, step: list[Any]) -> None:
        block = self.insert_stage(step[1])
        block.row = self.tracker.row("cache_write", block, {SCOPE: _SCOPES.get(step[2], 0.0)})

    def cache_read(self, step: list[Any]) -> None:
        block = self.insert_stage(step[1] + 1)
        operand = min(abs(step[1]), 8) / 4
        block.row = self.tracker.row("cache_read", block, {SCOPE: _SCOPES.get(step[2], 0.0), COUNT: operand})

    def rfactor(self, step: list[Any]) -> None:
        source = self.stage(step[1])
        loop = self.loop(source, step[2])
        self.insert_stage(step[1]).loops = list(source.loops)
        source.loops = []
        self.tracker.row("rfactor", source, {EXTENT: loop.log / 5, ROLE: REDUCE})

    def plain(self, step: list[Any]) -> None:
        self.tracker.row(_PLAIN[step[0]], self.stage(step[1]))


_PLAIN = {"CI": "compute_inline", "CR": "compute_root", "SA": "storage", "TS": "tensorize"}

_HANDLERS: dict[str, Callable[[_Run, list[Any]], None]] = {
    "FSP": _Run.follow_split,
    "FFSP": _Run.follow_fused_split,
    "FU": _Run.fuse,
    "RE": _Run.reorder,
    "AN": _Run.annotate,
    "CA": _Run.compute_at,
    "CHW": _Run.cache_write,
    "CHR": _Run.cache_read,
    "RF": _Run.rfactor,
    **dict.fromkeys(_PLAIN, _Run.plain),
}
