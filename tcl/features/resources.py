"""What a schedule takes of a GPU: registers, shared memory, occupancy, traffic, coalescing.

Rankings of one workload carry over to another through these numbers rather than through its extents: whether registers
spill, whether a warp's stores fall together, how many bytes an operation moves. The estimates are those of the CUDA
C++ programming guide (occupancy, coalescing into 32-byte sectors, 32 banks of shared memory) and of the roofline model,
for a GPU of `_CORES` cores; what differs from it is left to the cost model, which sees the device's descriptor.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tcl.features.operands import Operands, log_of, part_of, power_of
from tcl.features.tracker import REDUCE, SPATIAL, Block

_CORES = 64
_REGISTERS = 65_536  # of a core
_THREADS = 2048
_SHARED_BYTES = 98_304
_MOST_REGISTERS = 255  # of a thread; what is more spills
_OVERHEAD = 20  # registers for addresses and counters
_SECTOR = 8  # float32 that one memory transaction brings
_WARP = 32
_FAR = 5.0  # log2 of the cost of an element from global memory over that of an operation
_NEAR = 1.0  # of one from shared memory


class _Nest(NamedTuple):
    """log2 of extents, float32[n] or numbers: what a multi-level tiling (SSSRRSRS) amounts to."""

    blocks: Any
    threads: Any
    own: Any  # accumulators of one thread
    rounds: Any  # times that a tile is loaded
    reduce: Any  # reduction steps on a loaded tile
    tile: tuple[Any, Any]  # elements of data and weights that are loaded together
    fragment: tuple[Any, Any]  # that a thread reads for one step of its innermost reduction
    body: tuple[Any, Any]  # operations in the innermost loops, without and with the reduction around them
    last: list[
        tuple[Any, Any]
    ]  # of the last three axes, the last first: extent of a thread's own part, threads
    rows: tuple[Any, Any]  # elements of data and weights that lie together


def resource_rows(
    main: Block, unroll: np.ndarray, fetch: Any
) -> tuple[dict[int, Any], dict[int, Any]] | None:
    """The slots of "summary_resources" and of "summary_memory"; None for a block without multi-level tiles.

    Parameters
    ----------
    main : Block
        The main block of a schedule that is bound to the threads of a GPU.
    unroll : float32[n]
        log2 of the unroll limit, -1 where there is none.
    fetch : float32[n] or float
        log2 of the vector width of cooperative loads.
    """
    nest = _nest(main)
    if nest is None:
        return None
    registers = power_of(nest.own) + np.minimum(_sum(nest.fragment), 128) + _OVERHEAD
    shared = 4 * _sum(nest.tile)
    threads = power_of(nest.threads)
    warps = np.ceil(threads / _WARP)
    blocks = power_of(nest.blocks)
    resident = _resident(registers, shared, threads, warps)
    active = np.minimum(resident, np.maximum(blocks / _CORES, 0.05)) * warps
    waves = blocks / (_CORES * resident)
    share = blocks / _CORES
    balance = share / np.ceil(share)
    busy = log_of(np.minimum(share, 1))
    fill = threads / (warps * _WARP)
    resources = {
        0: nest.own / 4,
        1: log_of(registers) / 4,
        2: np.maximum(log_of(registers / _MOST_REGISTERS), 0),
        3: np.maximum(nest.own - 6, 0) / 2,
        4: (log_of(shared) - 10) / 4,
        5: log_of(resident) / 3,
        6: log_of(active) / 3,
        7: log_of(waves) / 4,
        8: waves / np.ceil(waves),
        9: balance,
        10: busy / 3,
        11: fill,
        12: np.minimum(nest.threads - 6, 0) / 3,
        13: (unroll - nest.body[0]) / 5,
        14: (unroll - nest.body[1]) / 5,
        15: unroll >= nest.body[0],
        16: unroll >= nest.body[1],
        17: unroll <= 0,
        18: (nest.tile[0] - nest.tile[1]) / 5,
        19: (nest.fragment[0] - nest.fragment[1]) / 4,
        20: (nest.own - log_of(_sum(nest.fragment))) / 4,
    }
    return resources, _memory_row(nest, active, warps, share, fill * balance, fetch)


def _memory_row(nest: _Nest, active: Any, warps: Any, share: Any, use: Any, fetch: Any) -> dict[int, Any]:
    """Coalescing, conflicts, and elements moved and estimated times, each for one operation."""
    points = nest.blocks + nest.threads + nest.own
    work = points + nest.rounds + nest.reduce
    inner, across = nest.last[0]
    together = np.minimum(power_of(across), _WARP)
    stored = together / np.maximum(np.ceil(together * power_of(inner) / _SECTOR) * _SECTOR, together)
    conflicts = np.minimum(_even(inner), np.minimum(across, 5))
    loads = nest.blocks + nest.rounds
    moved = loads + log_of(_sum(nest.tile)) - work
    runs = [np.minimum(power_of(row) / _SECTOR, 1) for row in nest.rows]
    effective = loads + log_of(power_of(nest.tile[0]) / runs[0] + _weights(nest.tile[1]) / runs[1]) - work
    near = nest.blocks + nest.threads + nest.rounds + nest.body[1] - nest.body[0]
    near = near + log_of(_sum(nest.fragment)) - work
    busy = log_of(np.minimum(share, 1))
    times = (
        -log_of(np.minimum(active / 8, 1)) - busy - log_of(use),
        effective + _FAR - log_of(np.minimum(active / 16, 1)),
        near + _NEAR + conflicts / 2 - busy,
        points - work + _FAR - log_of(stored),
    )
    row = {
        0: stored,
        1: conflicts / 3,
        2: nest.rows[0] / 5,
        3: nest.rows[1] / 5,
        4: np.minimum(nest.rows[0], 3) / 3,
        5: np.minimum(nest.rows[1], 3) / 3,
        6: fetch / 2,
        7: moved / 4,
        8: effective / 4,
        9: near / 3,
        10: (points - work) / 4,
        11: log_of(sum(map(power_of, times))) / 4,
        12: np.maximum.reduce(times) / 4,
    }
    row |= {13 + at: time / 4 for at, time in enumerate(times)}
    for at, (own, threads) in enumerate(nest.last):
        row |= {17 + 2 * at: own / 4, 18 + 2 * at: threads / 4}
    return row


def _nest(main: Block) -> _Nest | None:
    """The tiling of a block; None unless all axes of a role have as many levels as the structure wants."""
    spatial = [tile for tile in main.tiles if tile.role == SPATIAL]
    reduce = [tile for tile in main.tiles if tile.role == REDUCE]
    if not spatial or any(len(tile.logs) != 5 for tile in spatial):
        return None
    if any(len(tile.logs) != 3 for tile in reduce):
        return None
    loaded, own = [1, 2, 3, 4], [1, 3, 4]
    volume = [sum(tile.logs[level] for tile in spatial) for level in range(5)]
    steps = [sum(tile.logs[level] for tile in reduce) for level in range(3)] if reduce else [0.0] * 3
    sides = Operands(main.name, spatial, reduce)
    tail = [(part_of(tile, own), tile.logs[2]) for tile in spatial[:-4:-1]]
    mine = sum(volume[level] for level in own)
    return _Nest(
        blocks=volume[0],
        threads=volume[2],
        own=mine,
        rounds=steps[0],
        reduce=sum(steps[1:]),
        tile=sides.elements(loaded, [1, 2]),
        fragment=sides.elements(own, [2]),
        body=(mine + steps[2], mine + sum(steps[1:])),
        last=[*tail, *[(0.0, 0.0)] * (3 - len(tail))],
        rows=sides.rows(loaded, [1, 2]),
    )


def _resident(registers: Any, shared: Any, threads: Any, warps: Any) -> Any:
    """Blocks that a core holds at a time; a half where one does not fit."""
    by_registers = np.floor(_REGISTERS / (np.clip(registers, 16, _MOST_REGISTERS) * warps * _WARP))
    by_threads = np.floor(_THREADS / threads)
    by_shared = np.floor(_SHARED_BYTES / np.maximum(shared, 1))
    return np.clip(np.minimum(np.minimum(by_registers, by_threads), by_shared), 0.5, 32)


def _even(log: Any) -> Any:
    """How often two divides an extent, at most five times."""
    extent = np.rint(power_of(log)).astype(np.int64)
    return sum((extent % 2**power == 0).astype(np.float32) for power in range(1, 6))


def _weights(log: Any) -> Any:
    return np.where(np.asarray(log) > 0, power_of(log), 0)


def _sum(logs: tuple[Any, Any]) -> Any:
    return power_of(logs[0]) + _weights(logs[1])
