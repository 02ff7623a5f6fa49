"""Follows a schedule step by step, for many candidates at once, so that each step knows the loops it acts on.

All candidates given to one tracker share their steps and differ in numbers only (factors, limits, locations),
so that each number is an array over the candidates and Python runs once a step, not once a candidate. Extents
are kept as log2: the volume of a nest is a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tcl.features.batch import MAX_STEPS, STEP_WIDTH
from tcl.features.vocabulary import KIND_IDS

SPATIAL, REDUCE, UNKNOWN_ROLE = 1, -1, 0
LEVELS = 5
"""Tile levels with a slot of their own, the innermost last."""

# Slots of a step's values. Slots 0-4 hold the factors.
EXTENT = 5  # log2 of the extent that the step acts on
ROLE = 6  # +1 spatial, -1 reduction
AXIS = 7  # distance from the last axis of the same role
MAIN = 8  # acts on the main block
LANES = (9, 10, 11)  # share of 16, 8 and 4 vector lanes that the innermost factor fills
NUMBER = 12  # log2 of an annotation's number
AT_LOOP, AT_INLINE, AT_ROOT = 13, 14, 15  # compute location
INNER_SPATIAL, INNER_REDUCE, OUTER_SPATIAL = 16, 17, 18  # volumes below and above the location
SCOPE = 19  # 1 registers, 0.5 shared memory, 0 global memory
COUNT = 20  # loops or blocks that the step takes
LAST_FACTORS = 21  # log2 of the two innermost factors together
ORDINAL = 22  # which block, in order of appearance
CONSTANT = 23  # 1 in every step: tells a step of zeros from padding

_MERGED = {KIND_IDS[name] for name in ("unroll", "compute_inline")}
_EXPENDABLE = tuple(
    KIND_IDS[name]
    for name in (
        "annotate",
        "storage",
        "unknown",
        "compute_inline",
        "unroll",
        "compute_root",
        "layout",
        "pad",
    )
)
"""What goes first when a sequence is longer than MAX_STEPS."""


@dataclass(eq=False)
class Loop:
    """One loop: log2 of its extent (float32[n], or one number for all candidates) and its role."""

    log: Any = 0.0
    role: int = UNKNOWN_ROLE
    axis: int = -1
    """Which of the main block's axes of this role it stems from; -1 when unknown or of several."""


@dataclass(eq=False)
class Tile:
    """One axis split into levels: log2 of the factors, outermost first."""

    logs: list[Any]
    role: int
    row: dict[int, Any]


class Place(NamedTuple):
    """A location inside the loops of another block.

    Attributes
    ----------
    home
        That block.
    index
        Its loop, integer or int64[n]: -1 outside of all, -2 in its expressions.
    consumer
        Whether the moved block reads what `home` computes, rather than being read.
    """

    home: Block
    index: Any
    consumer: bool


@dataclass(eq=False)
class Block:
    """A computation: its name, its loops from the outermost, and its multi-level tiles."""

    name: str = ""
    loops: list[Loop] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    ordinal: int = 0
    row: dict[int, Any] | None = None
    """The cache step that made this block, which later steps on it refine."""
    place: Place | None = None
    """Where it was moved to."""


class Tracker:
    """Collects the rows of n candidates that share their steps."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.blocks: list[Block] = []
        self.rows: list[tuple[int, Block | None, dict[int, Any]]] = []

    def block(self, name: str = "", loops: Sequence[Loop] = ()) -> Block:
        """A new block."""
        block = Block(name, list(loops), ordinal=len(self.blocks))
        self.blocks.append(block)
        return block

    def row(
        self, kind: str, block: Block | None = None, values: dict[int, Any] | None = None
    ) -> dict[int, Any]:
        """Appends a step; neighbours that only repeat (inlining, plain unrolling) are counted in one row."""
        kind_id = KIND_IDS[kind]
        if kind_id in _MERGED and self.rows and self.rows[-1][0] == kind_id:
            merged = self.rows[-1][2]
            merged[COUNT] = merged.get(COUNT, 0.0) + 0.25
            return merged
        row = dict(values or {})
        if kind_id in _MERGED:
            row[COUNT] = 0.25
        self.rows.append((kind_id, block, row))
        return row

    def split(
        self, block: Block, loop: Loop, factors: Sequence[Any], role: int, tiled: bool = False
    ) -> list[Loop]:
        """Replaces a loop by its parts and appends the step.

        `factors` are the extents of the parts, outermost first: integers, or int64[n]. `tiled` marks the
        multi-level tiling of the block, from which the summary rows are made.
        """
        logs = [log2(factor) for factor in factors]
        row: dict[int, Any] = {EXTENT: sum(logs) / 5, ROLE: role, COUNT: len(logs) / 5}
        for slot, log in zip(range(LEVELS - 1, -1, -1), reversed(logs), strict=False):
            row[slot] = log / 4
        for slot, lanes in zip(LANES, (16, 8, 4), strict=False):
            row[slot] = lane_share(factors[-1], lanes)
        row[LAST_FACTORS] = sum(logs[-2:]) / 5
        row = self.row("split", block, row)
        axis = -1
        if tiled:
            axis = sum(tile.role == role for tile in block.tiles)
            block.tiles.append(Tile(logs, role, row))
        parts = [Loop(log, role, axis) for log in logs]
        self.replace([loop], parts)
        return parts

    def fuse(self, loops: Sequence[Loop]) -> Loop:
        """Replaces neighbouring loops by one."""
        roles = {loop.role for loop in loops}
        fused = Loop(sum(loop.log for loop in loops), roles.pop() if len(roles) == 1 else UNKNOWN_ROLE)
        self.replace(loops, [fused])
        return fused

    def replace(self, old: Sequence[Loop], new: Sequence[Loop]) -> None:
        """Puts loops in the place of others in every block under them."""
        gone = set(map(id, old))
        for block in self.blocks:
            at = next((i for i, loop in enumerate(block.loops) if id(loop) in gone), None)
            if at is not None:
                kept = [loop for loop in block.loops[at:] if id(loop) not in gone]
                block.loops[at:] = [*new, *kept]

    def reorder(self, order: Sequence[Loop]) -> None:
        """Brings loops into an order, in the places that they hold together."""
        moved = set(map(id, order))
        for block in self.blocks:
            places = [i for i, loop in enumerate(block.loops) if id(loop) in moved]
            if len(places) == len(order):
                for place, loop in zip(places, order, strict=False):
                    block.loops[place] = loop

    def location(self, block: Block, index: Any) -> dict[int, Any]:
        """Slots of a compute location: loop `index` of `block` (integer or int64[n]; -1 root, -2 inline)."""
        index = np.asarray(index)
        last = len(block.loops) - 1
        at = np.clip(index, -1, last) + 1
        slots: dict[int, Any] = {
            AT_LOOP: np.maximum(index + 1, 0) / 8,
            AT_INLINE: (index == -2).astype(np.float32),
            AT_ROOT: (index == -1).astype(np.float32),
        }
        for role, inner, outer in ((SPATIAL, INNER_SPATIAL, OUTER_SPATIAL), (REDUCE, INNER_REDUCE, None)):
            zero = np.zeros(self.count, np.float32)
            logs = [zero] + [zero + loop.log if loop.role == role else zero for loop in block.loops]
            above = np.cumsum(logs, axis=0)
            here = above[at, np.arange(self.count)] if at.ndim else above[int(at)]
            slots[inner] = (above[-1] - here) / 5
            if outer is not None:
                slots[outer] = here / 5
        return slots

    def bound(self, kind: str) -> Any:
        """log2 of the extent that the steps of a kind bind, over one block (the one with the most)."""
        extents: dict[int, Any] = {}
        for kind_id, block, row in self.rows:
            if kind_id == KIND_IDS[kind]:
                extents[id(block)] = extents.get(id(block), 0.0) + row.get(EXTENT, 0.0) * 5
        result: Any = 0.0
        for extent in extents.values():
            result = np.maximum(result, extent)
        return result

    def main(self) -> Block | None:
        """What the schedule is about: the block with the most tiles, else the one with the most loops."""
        if not self.blocks:
            return None
        return max(self.blocks, key=lambda block: (len(block.tiles), len(block.loops), -block.ordinal))

    def finish(self) -> tuple[np.ndarray, np.ndarray]:
        """The sequences: kinds int16[n, L] and values float32[n, L, STEP_WIDTH], L at most MAX_STEPS.

        When there are more steps, those of the most expendable kinds are left out from the end, then whatever
        is last.
        """
        main = self.main()
        rows = self._cut()
        for tile in main.tiles if main else ():
            alike = [other for other in main.tiles if other.role == tile.role] if main else []
            tile.row[AXIS] = (len(alike) - 1 - alike.index(tile)) / 4
        kinds = np.empty((self.count, len(rows)), np.int16)
        values = np.zeros((self.count, len(rows), STEP_WIDTH), np.float32)
        for step, (kind, block, row) in enumerate(rows):
            kinds[:, step] = kind
            values[:, step, CONSTANT] = 1
            if block is not None:
                values[:, step, MAIN] = block is main
                values[:, step, ORDINAL] = min(block.ordinal, 16) / 8
            for slot, value in row.items():
                values[:, step, slot] = value
        return kinds, np.clip(values, -8, 8, out=values)

    def _cut(self) -> list[tuple[int, Block | None, dict[int, Any]]]:
        rows = list(self.rows)
        for kind in _EXPENDABLE:
            for at in range(len(rows) - 1, -1, -1):
                if len(rows) <= MAX_STEPS:
                    return rows
                if rows[at][0] == kind:
                    del rows[at]
        return rows[:MAX_STEPS]


def log2(factor: Any) -> Any:
    """log2 of a positive integer or array of them; anything below one counts as one."""
    if isinstance(factor, np.ndarray):
        return np.log2(np.maximum(factor, 1)).astype(np.float32)
    return float(np.log2(max(factor, 1)))


def lane_share(extent: Any, lanes: int) -> Any:
    """Share of the vector lanes that a loop of this extent keeps busy, in (0, 1]."""
    extent = np.maximum(extent, 1)
    return extent / (-(-extent // lanes) * lanes)
