"""Numbers of a whole schedule that no single step shows: parallelism, register tile, footprints, reuse.

The sources of these estimates are the roofline model (operations per byte moved at each memory level) and the
tile structures of Ansor and MetaSchedule: ``SSRSRS`` on CPUs, ``SSSRRSRS`` on GPUs, where the two innermost
spatial levels and the innermost reduction level are the work of one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tcl.features.core import core_rows
from tcl.features.operands import operand_sides
from tcl.features.resources import resource_rows
from tcl.features.tracker import (
    AXIS,
    COUNT,
    EXTENT,
    LANES,
    LAST_FACTORS,
    LEVELS,
    NUMBER,
    REDUCE,
    ROLE,
    SPATIAL,
    Block,
    Loop,
    Tracker,
    lane_share,
)
from tcl.features.vocabulary import KIND_IDS

_UNBOUNDED = 30.0  # log2 of "no limit"


def add_summary(tracker: Tracker, *, unroll: Any = None, parallel: Any = None, vector: Any = None) -> None:
    """Puts the summary rows in front of a tracker's steps.

    Parameters
    ----------
    tracker : Tracker
        After the last step.
    unroll, parallel, vector : int, int64[n] or None
        Limits that MetaSchedule's post-processing or Ansor's pragma turns into unrolled, parallel and vector
        loops.
    """
    main = tracker.main()
    if main is None:
        return
    rows: list[tuple[int, Block | None, dict[int, Any]]] = []
    spatial = _levels(main, SPATIAL)
    reduce = _levels(main, REDUCE)
    for kind, levels, role in (("summary_spatial", spatial, SPATIAL), ("summary_reduce", reduce, REDUCE)):
        if levels:
            rows.append((KIND_IDS[kind], main, _level_row(levels, role, main)))
    schedule = _schedule_row(tracker, main, spatial, reduce, unroll, parallel, vector)
    rows.append((KIND_IDS["summary_schedule"], main, schedule))
    limits = [_limit(number, tracker.count) for number in (unroll, parallel, vector)]
    if any(kind == KIND_IDS["bind_thread"] for kind, _, _ in tracker.rows):
        kinds = ("summary_resources", "summary_memory")
        found = resource_rows(main, limits[0], _fetch(tracker))
    else:
        kinds = ("summary_core", "summary_cache")
        found = core_rows(tracker, main, *limits)
    for kind, row in zip(kinds, found or (), strict=False):
        rows.append((KIND_IDS[kind], None, row))
    tracker.rows[:0] = rows


def _levels(block: Block, role: int) -> list[Any]:
    """log2 of each tile level's volume over all axes of a role, outermost first."""
    tiles = [tile.logs for tile in block.tiles if tile.role == role]
    depth = max(map(len, tiles), default=0)
    return [sum(logs[level] for logs in tiles if len(logs) == depth) for level in range(depth)]


def _level_row(levels: list[Any], role: int, main: Block) -> dict[int, Any]:
    row = {EXTENT: sum(levels) / 5, ROLE: role, COUNT: len(levels) / 5, LAST_FACTORS: sum(levels[-2:]) / 5}
    for slot, log in zip(range(LEVELS - 1, -1, -1), reversed(levels), strict=False):
        row[slot] = log / 4
    volume = np.rint(np.exp2(np.minimum(levels[-1], 40))).astype(np.int64)
    for slot, lanes in zip(LANES, (16, 8, 4), strict=False):
        row[slot] = lane_share(volume, lanes)
    row[AXIS] = sum(tile.role == role for tile in main.tiles) / 4
    return row


def _schedule_row(
    tracker: Tracker,
    main: Block,
    spatial: list[Any],
    reduce: list[Any],
    unroll: Any,
    parallel: Any,
    vector: Any,
) -> dict[int, Any]:
    """The schedule's own slots.

    0-2 parallel, thread and virtual thread extents; 3 vector loop, 4-5 shares of vector lanes and of warps;
    6-7 unroll limit and volume; 8-9 register tile without and with its reduction; 10-21 data, weight, all
    elements moved and operations per element at the register, thread and block level; 22 thread tile.
    """
    n = tracker.count
    zero = np.zeros(n, np.float32)
    bound = {
        kind: zero + tracker.bound(kind) for kind in ("bind_block", "bind_thread", "bind_vthread", "parallel")
    }
    outer = bound["bind_block"] + bound["parallel"]
    outer = outer + _greedy(main.loops, _limit(parallel, n), n)
    vector_log = _greedy(list(reversed(main.loops)), _limit(vector, n), n)
    unroll_limit = _limit(unroll, n)
    threads = bound["bind_thread"]
    row: dict[int, Any] = {
        0: outer / 5,
        1: threads / 5,
        2: bound["bind_vthread"] / 5,
        3: vector_log / 4,
        4: lane_share(_integer(vector_log), 16),
        5: lane_share(_integer(threads), 32),
        6: unroll_limit / 5,
        7: _greedy(list(reversed(main.loops)), unroll_limit, n, any_role=True) / 5,
    }
    if not spatial:
        return row
    register = spatial[-1] + zero
    thread_tile = sum(spatial[-2:]) + zero
    inner_reduce = reduce[-1] + zero if reduce else zero
    row[8] = register / 5
    row[9] = (register + inner_reduce) / 5
    # What shares a cache or shared memory: all but the outermost spatial level, and on GPUs what the
    # outermost reduction loops leave.
    shared = (3, len(reduce)) if len(spatial) <= 4 else (4, max(len(reduce) - 1, 1))
    slot = 10
    for keep_spatial, keep_reduce in ((1, 1), (2, 1), shared):
        rows_side, columns_side = _operands(main, keep_spatial, keep_reduce)
        volume = sum(spatial[-keep_spatial:]) + zero
        work = volume + (sum(reduce[-keep_reduce:]) if reduce else 0)
        moved = np.logaddexp2(np.logaddexp2(rows_side + zero, columns_side + zero), volume)
        row[slot] = rows_side / 5
        row[slot + 1] = columns_side / 5
        row[slot + 2] = moved / 5
        row[slot + 3] = (work - moved) / 4
        slot += 4
    row[22] = thread_tile / 5
    return row


def _operands(main: Block, keep_spatial: int, keep_reduce: int) -> tuple[Any, Any]:
    """log2 of the elements of the data operand and of the weight operand that the innermost levels touch."""
    tiles = [tile for tile in main.tiles if tile.role == SPATIAL]
    sides = operand_sides(main.name, len(tiles))
    data: Any = 0.0
    weight: Any = 0.0
    for tile, side in zip(tiles, sides, strict=False):
        inner = sum(tile.logs[-keep_spatial:])
        data = data + inner if "d" in side else data
        weight = weight + inner if "w" in side else weight
    window = main.name.lower().startswith(("conv", "depthwise", "pool", "group"))
    for order, tile in enumerate(tile for tile in main.tiles if tile.role == REDUCE):
        inner = sum(tile.logs[-keep_reduce:])
        weight = weight + inner
        if not window or (order == 0 and "conv2d" in main.name.lower() and "depth" not in main.name.lower()):
            data = data + inner  # a window slides: its extent adds hardly anything to the data that it reads
    return data, weight


def _fetch(tracker: Tracker) -> Any:
    """log2 of one more than the widest vector that threads load together; 0 without such loads."""
    wide: Any = 0.0
    for kind, _, row in tracker.rows:
        if kind == KIND_IDS["cooperative_fetch"]:
            wide = np.maximum(wide, row.get(NUMBER, 0.0) * 4)
    return wide


def _limit(number: Any, n: int) -> np.ndarray:
    """log2 of a limit; -1 where there is none."""
    if number is None:
        return np.full(n, -1, np.float32)
    number = np.broadcast_to(np.asarray(number, np.float32), (n,))
    return np.where(number >= 1, np.log2(np.maximum(number, 1)), -1).astype(np.float32)


def _greedy(loops: Sequence[Loop], limit: np.ndarray, n: int, any_role: bool = False) -> np.ndarray:
    """log2 of the volume of the leading loops that fit a limit, as post-processing fuses them."""
    volume = np.zeros(n, np.float32)
    going = limit >= 0
    for loop in loops:
        if loop.role == REDUCE and not any_role:
            break
        going = going & (volume + loop.log <= limit + 1e-3)
        volume = np.where(going, volume + loop.log, volume)
    return volume


def _integer(log: np.ndarray) -> np.ndarray:
    return np.rint(np.exp2(np.minimum(log, _UNBOUNDED))).astype(np.int64)
