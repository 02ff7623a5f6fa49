"""What a GPU schedule asks of a multiprocessor: threads, shared memory, and how well they are filled.

The limits are those that CUDA and ROCm devices have had for years (2,048 resident threads and 96 KiB of shared
memory a multiprocessor, warps of 32); what a device really has is for its descriptor to say.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tcl.features.tracker import EXTENT, NUMBER, SPATIAL, Tile, Tracker, lane_share
from tcl.features.vocabulary import KIND_IDS

_RESIDENT_THREADS = 2048
_SHARED_ELEMENTS = 96 * 1024 / 4


def threads_row(
    tracker: Tracker,
    tiles: list[Tile],
    blocks: Any,
    threads: Any,
    operands: tuple[Any, Any],
    reduce: list[Any],
) -> dict[int, Any]:
    """The values of the step ``summary_threads``.

    Parameters
    ----------
    tracker : Tracker
    tiles : list of Tile
        Of the main block.
    blocks, threads : float32[n]
        log2 of the thread blocks and of the threads in one.
    operands : pair
        log2 of the elements of data and weights that a block keeps, where the trace does not say itself.
    reduce : list
        log2 of the reduction levels, outermost first.
    """
    n = tracker.count
    zero = np.zeros(n, np.float32)
    fetches = [row for kind, _, row in tracker.rows if kind == KIND_IDS["cooperative_fetch"]]
    row: dict[int, Any] = {}
    shared = zero
    count = np.exp2(threads)
    for slot, (fetch, estimate) in enumerate(zip(fetches, operands, strict=False)):
        elements = zero + fetch.get(EXTENT, estimate / 5) * 5
        width = np.exp2(zero + fetch.get(NUMBER, 0.25) * 4) - 1
        loads = np.ceil(np.exp2(np.minimum(elements, 40)) / np.maximum(width, 1))
        row[2 * slot] = elements / 5
        row[2 * slot + 1] = lane_share(loads, np.rint(count))
        shared = shared + np.exp2(np.minimum(elements, 40))
    resident = np.minimum(
        np.floor(_RESIDENT_THREADS / np.maximum(count, 1)), np.floor(_SHARED_ELEMENTS / np.maximum(shared, 1))
    )
    row[4] = np.log2(shared + 1) / 5
    row[5] = (np.log2(shared + 1) - threads) / 5
    row[6] = np.minimum(resident, 32) / 16
    row[7] = np.minimum(resident * count / _RESIDENT_THREADS, 1)
    steps = reduce[0] + zero if reduce else zero
    row[8] = steps / 5
    row[9] = (blocks + steps + np.log2(shared + 1)) / 10
    spatial = [tile.logs for tile in tiles if tile.role == SPATIAL]
    if spatial and len(spatial[-1]) >= 4:
        last = spatial[-1]
        row[10] = sum(last[1:]) / 4 + zero  # contiguous part of a block's output
        row[11] = last[-3] / 4 + zero  # neighbouring threads
        row[12] = sum(last[-2:]) / 4 + zero  # of one thread
        row[13] = lane_share(np.rint(np.exp2(sum(last[1:]) + zero)), 8)
        row[14] = lane_share(np.rint(np.exp2(last[-3] + zero)), 32)
    return row
