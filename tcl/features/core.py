"""What a schedule makes of a CPU: vector lanes, accumulators in registers, unrolling, threads, caches.

TVM vectorises, unrolls and spreads over threads within the limits that a schedule sets; what it leaves is LLVM's: that
unrolls short loops and then vectorises the innermost loop that still stands, when its iterations touch neighbouring
elements. The rules of TVM are those of its pass RewriteParallelVectorizeUnroll, the cycles those of a core that issues
two vector operations and two loads at a time with a latency of four (as in optimisation manuals of x86 CPUs); what
differs from it is left to the cost model, which sees the device's descriptor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tcl.features.operands import Operands, log_of, operand_sides, power_of
from tcl.features.tracker import REDUCE, SPATIAL, Block, Loop, Tracker

_LLVM_UNROLLS = 6.0  # log2 of the operations in a body up to which LLVM unrolls by itself
_ACCUMULATORS = {16: 28, 8: 12, 4: 12}  # vector registers left for them, by float32 lanes
_IN_FLIGHT = 8  # operations that a core has to overlap
_LEVEL_BYTES = (15, 20)  # log2 of a core's first and second cache
_UNIT = 1e-3  # log2 below which a loop has one iteration
_TILES = (([3], [1]), ([2, 3], [1]), ([2, 3], [0, 1]), ([1, 2, 3], [0, 1]))
"""Levels of SSRSRS, spatial and reduction, whose data may stay in a cache."""


@dataclass
class _Body:
    """log2 of extents, float32[n], of what becomes of the innermost loops.

    Attributes
    ----------
    lanes, by_loop, by_block
        Neighbouring elements in one operation: by TVM's vectorisation, by LLVM's of a loop, by LLVM's of unrolled code.
    unrolled
        Operations in straight-line code, vector ones counting once.
    tile
        Accumulators in registers besides the lanes.
    whole
        bool[n]; whether all loops of the tile are unrolled, so that it stays in registers over a reduction.
    steps, unrolled_steps
        The reduction around the tile, and what of it is straight-line code.
    beyond
        Unrolled loops around that reduction.
    front
        The first loop that stays: 1 over neighbouring elements, 0.5 over others, -0.5 a reduction.
    axes
        What the tile holds of each spatial axis.
    """

    lanes: np.ndarray
    by_loop: np.ndarray
    by_block: np.ndarray
    unrolled: np.ndarray
    tile: np.ndarray
    whole: np.ndarray
    steps: np.ndarray
    unrolled_steps: np.ndarray
    beyond: np.ndarray
    front: np.ndarray
    axes: list[np.ndarray]


def core_rows(
    tracker: Tracker, main: Block, unroll: np.ndarray, parallel: np.ndarray, vector: np.ndarray
) -> tuple[dict[int, Any], dict[int, Any]]:
    """The slots of "summary_core" and of "summary_cache" for a schedule without GPU threads.

    Parameters
    ----------
    tracker : Tracker
        After the last step.
    main : Block
        The main block of its schedule.
    unroll, parallel, vector : float32[n]
        log2 of the limits within which TVM unrolls, spreads over threads and vectorises; -1 where there is none.
    """
    last = max((loop.axis for loop in main.loops if loop.role == SPATIAL), default=-1)
    sides = operand_sides(main.name, last + 1)
    explicit = tracker.bound("vectorize")
    vector = np.maximum(vector, np.where(np.asarray(explicit) > 0, explicit, -1))
    body = _body(main.loops, last, vector, np.maximum(unroll, _LLVM_UNROLLS))
    alone = body.lanes < _UNIT
    lanes = np.where(alone, np.maximum(body.by_loop, body.by_block), body.lanes)
    kept = np.where(body.by_loop < _UNIT, np.where(body.whole, body.steps, 0), body.unrolled_steps)
    core: dict[int, Any] = {
        0: lanes / 4,
        1: body.lanes / 4,
        2: body.by_loop / 4,
        3: body.by_block / 4,
        4: body.front,
        5: body.unrolled / 5,
        6: body.tile / 4,
        7: body.steps / 5,
        8: kept / 5,
        9: body.whole,
        10: body.unrolled_steps / 5,
        11: body.beyond / 4,
    }
    if sides:
        body.axes[-1] = body.axes[-1] + np.where(alone, lanes, 0)
    for at, width in enumerate(_ACCUMULATORS):
        registers, use, loads, spilled, cycles = _cycles(body, sides, lanes, kept, width)
        core[12 + at] = log_of(cycles) / 2
        if at < 2:
            core |= {
                15 + 4 * at: log_of(registers) / 4,
                16 + 4 * at: use,
                17 + 4 * at: loads,
                18 + 4 * at: spilled,
            }
    return core, _cache_row(tracker, main, parallel)


def _body(loops: list[Loop], last: int, vector: np.ndarray, limit: np.ndarray) -> _Body:
    """Walks the loops from the innermost; `last` is the axis along which elements are neighbours, -1 unknown."""
    zero = np.zeros(len(vector), np.float32)
    lanes, by_loop, by_block, front = zero, zero, zero, zero
    unrolled, tile, steps, unrolled_steps, beyond = zero, zero, zero, zero, zero
    axes = [zero] * (last + 1)
    straight = whole = np.ones(len(vector), bool)  # all loops so far are unrolled; all of the tile are
    found = np.zeros(len(vector), bool)
    phase = np.zeros(len(vector), np.int8)  # 0 in the tile, 1 in the reduction around it, 2 outside of both
    neighbours = next((loop for loop in reversed(loops) if loop.role == SPATIAL), None) if last < 0 else None
    for loop in reversed(loops):
        log = zero + loop.log
        wide = (log <= vector + _UNIT) & (loop is loops[-1]) & (loop.role == SPATIAL) & (log >= _UNIT)
        lanes = np.where(wide, log, lanes)
        unit = (log < _UNIT) | wide
        fits = straight & ~unit & (unrolled + log <= limit + _UNIT)
        straight = straight & (fits | unit)
        unrolled = np.where(fits, unrolled + log, unrolled)
        stays = ~found & ~unit & ~fits
        found = found | stays
        contiguous = loop is neighbours or (loop.role == SPATIAL and loop.axis == last >= 0)
        if contiguous:
            by_loop = np.where(stays & (lanes < _UNIT), log, by_loop)
            by_block = np.where(fits & (lanes < _UNIT), by_block + log, by_block)
        front = np.where(stays, (1.0 if contiguous else 0.5) if loop.role == SPATIAL else -0.5, front)
        if loop.role == SPATIAL:
            inside = (phase == 0) & whole
            tile = np.where(inside & fits, tile + log, tile)
            if 0 <= loop.axis <= last:
                axes[loop.axis] = np.where(inside & (fits | wide), axes[loop.axis] + log, axes[loop.axis])
            whole = whole & ~((phase == 0) & ~unit & ~fits)
            phase = np.where((phase == 1) & ~unit, 2, phase)
            beyond = np.where((phase == 2) & fits, beyond + log, beyond)
        else:
            steps = np.where((phase < 2) & ~unit, steps + log, steps)
            unrolled_steps = np.where((phase < 2) & fits, unrolled_steps + log, unrolled_steps)
            phase = np.where((phase == 0) & ~unit, 1, phase)
    return _Body(lanes, by_loop, by_block, unrolled, tile, whole, steps, unrolled_steps, beyond, front, axes)


def _cycles(
    body: _Body, sides: list[str], lanes: Any, kept: Any, width: int
) -> tuple[Any, Any, Any, Any, Any]:
    """For vectors of `width`: registers of the tile, share of their lanes used, loads and spills per operation, and the
    time of an operation in that of sixteen lanes at their best, times two."""
    elements = np.rint(power_of(lanes))
    vectors = np.ceil(elements / width)
    use = elements / (vectors * width)
    registers = power_of(body.tile) * vectors
    loads: Any = 0.0
    for operand in ("d", "w"):
        if any(operand in side for side in sides):
            touched = sum(axis for axis, side in zip(body.axes, sides, strict=True) if operand in side)
            together = np.minimum(elements, width) if operand in sides[-1] else 1
            loads = loads + power_of(touched) / together / registers
    spilled = np.maximum(registers - _ACCUMULATORS[width], 0) / registers
    waiting = _IN_FLIGHT / np.minimum(registers * power_of(np.minimum(body.beyond, 3)), _IN_FLIGHT)
    ports = loads + 2 / power_of(kept) + 2 * spilled
    return registers, use, loads, spilled, np.maximum(np.maximum(waiting, ports), 1) / 2 / use * (16 / width)


def _cache_row(tracker: Tracker, main: Block, parallel: np.ndarray) -> dict[int, Any]:
    """Footprints and traffic of the tile's levels, threads and their balance, and what is computed inside the loops."""
    row: dict[int, Any] = {}
    spatial = [tile for tile in main.tiles if tile.role == SPATIAL]
    reduce = [tile for tile in main.tiles if tile.role == REDUCE]
    if (
        spatial
        and all(len(tile.logs) == 4 for tile in spatial)
        and all(len(tile.logs) == 2 for tile in reduce)
    ):
        operands = Operands(main.name, spatial, reduce)
        for at, (levels, depths) in enumerate(_TILES):
            data, weights = operands.elements(levels, depths)
            out = sum(tile.logs[level] for tile in spatial for level in levels)
            work = out + sum(tile.logs[depth] for tile in reduce for depth in depths)
            size = power_of(data) + np.where(np.asarray(weights) > 0, power_of(weights), 0) + power_of(out)
            held = log_of(4 * size)
            first, second = _LEVEL_BYTES
            row[4 * at] = (held - first) / 4
            row[4 * at + 1] = np.maximum(held - first, 0) / 3
            row[4 * at + 2] = np.maximum(held - second, 0) / 3
            row[4 * at + 3] = (log_of(size) - work) / 4
    threads = np.maximum(_threads(tracker, main, parallel), tracker.bound("parallel"))
    row[16] = threads / 5
    for slot, cores in ((17, 2), (18, 4)):
        share = power_of(threads) / cores
        row[slot] = share / np.ceil(share)
    producer, consumer = _moved(tracker, main, consumer=False), _moved(tracker, main, consumer=True)
    if producer is not None and spatial:
        outside, inside = _producer(main, producer)
        points = sum((loop.log for loop in main.loops), np.zeros(tracker.count, np.float32))
        row[19] = (np.where(producer >= -1, outside + inside, 0) - points) / 4
        row[20] = inside / 5
    row[21] = -0.4 if consumer is None else np.where(consumer >= 0, _around(main, consumer), -1) / 5
    return row


def _threads(tracker: Tracker, main: Block, limit: np.ndarray) -> np.ndarray:
    """log2 of the parallel loop: outer ones up to the first that exceeds the limit or holds more than one loop."""
    extent = np.zeros(tracker.count, np.float32)
    going = limit >= 0
    places = [
        block.place.index for block in tracker.blocks if block.place is not None and block.place.home is main
    ]
    for at, loop in enumerate(main.loops):
        if loop.role != SPATIAL:
            break
        extent = np.where(going, extent + loop.log, extent)
        going = going & (extent <= limit + _UNIT)
        for place in places:
            going = going & (np.asarray(place) != at)
    return extent


def _moved(tracker: Tracker, main: Block, *, consumer: bool) -> np.ndarray | None:
    """Index of the main block's loop, int64[n], inside which what it reads (or what reads it) is computed."""
    for block in reversed(tracker.blocks):
        place = block.place
        if place is not None and place.home is main is not block and place.consumer == consumer:
            return np.broadcast_to(np.asarray(place.index), (tracker.count,))
    return None


def _around(main: Block, index: np.ndarray) -> np.ndarray:
    """log2 of the volume of the loops down to one; 0 for an index below zero."""
    zero = np.zeros(len(index), np.float32)
    volumes = np.cumsum([zero, *(zero + loop.log for loop in main.loops)], axis=0)
    return volumes[np.clip(index, -1, len(main.loops) - 1) + 1, np.arange(len(index))]


def _producer(main: Block, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log2 of how often what the main block reads is computed, and of the elements each time."""
    zero = np.zeros(len(index), np.float32)
    spatial = [tile for tile in main.tiles if tile.role == SPATIAL]
    reduce = [tile for tile in main.tiles if tile.role == REDUCE]
    inner: dict[tuple[int, int], np.ndarray] = {}
    for at, loop in enumerate(main.loops):
        key = (loop.role, loop.axis)
        inner[key] = inner.get(key, zero) + np.where(index < at, loop.log, 0)
    operands = Operands(main.name, spatial, reduce)
    sliding = {
        axis: next(at for at, tile in enumerate(reduce) if tile is window)
        for axis, window in operands.window.items()
    }
    elements = zero
    for axis, side in enumerate(operands.sides):
        if "d" in side:
            extent = inner.get((SPATIAL, axis), zero)
            if axis in sliding:
                extent = log_of(power_of(extent) + power_of(inner.get((REDUCE, sliding[axis]), zero)) - 1)
            elements = elements + extent
    for axis in set(range(len(reduce))) - set(sliding.values()):
        elements = elements + inner.get((REDUCE, axis), zero)
    return _around(main, index), elements
