"""Derived numbers of whole schedules."""

import numpy as np
import pytest

from tcl.features.summary import add_summary
from tcl.features.tracker import REDUCE, SPATIAL, Loop, Tracker
from tcl.features.vocabulary import KIND_IDS


def matmul_schedule(rows: list[int], columns: list[int], depth: list[int], **limits: int) -> np.ndarray:
    tracker = Tracker(1)
    axes = [Loop(0.0), Loop(0.0), Loop(0.0)]
    block = tracker.block("T_matmul_NN", axes)
    parts = [
        tracker.split(block, loop, factors, role, tiled=True)
        for loop, factors, role in zip(axes, (rows, columns, depth), (SPATIAL, SPATIAL, REDUCE), strict=True)
    ]
    (r, c, d) = parts
    tracker.reorder([r[0], c[0], r[1], c[1], d[0], r[2], c[2], d[1], r[3], c[3]])
    add_summary(tracker, **limits)
    kinds, values = tracker.finish()
    return values[0, kinds[0].tolist().index(KIND_IDS["summary_schedule"])]


def test_register_tile_and_its_operands_are_estimated() -> None:
    row = matmul_schedule([1, 2, 4, 8], [4, 1, 2, 16], [64, 4])
    assert row[8] * 5 == pytest.approx(3 + 4)
    assert row[9] * 5 == pytest.approx(3 + 4 + 2)
    assert row[10] * 5 == pytest.approx(3 + 2)  # data: 8 rows x 4 steps
    assert row[11] * 5 == pytest.approx(4 + 2)  # weights: 16 columns x 4 steps
    moved = np.log2(8 * 4 + 16 * 4 + 8 * 16)
    assert row[12] * 5 == pytest.approx(moved, abs=1e-4)
    assert row[13] * 4 == pytest.approx(9 - moved, abs=1e-4)


def test_limits_reach_as_far_as_postprocessing_would() -> None:
    row = matmul_schedule([4, 2, 4, 8], [4, 1, 2, 16], [64, 4], parallel=40, vector=64, unroll=16)
    assert 2 ** (row[0] * 5) == pytest.approx(32)  # 4 x 4 x 2; the next outer loops are 1 and a reduction
    assert 2 ** (row[3] * 4) == pytest.approx(16)  # 16 columns; 8 rows more exceed 64
    assert 2 ** (row[7] * 5) == pytest.approx(16)


def test_more_reuse_shows_as_more_work_per_element() -> None:
    small = matmul_schedule([8, 4, 2, 2], [8, 4, 2, 2], [64, 4])
    large = matmul_schedule([4, 2, 2, 8], [4, 2, 2, 8], [64, 4])
    assert large[13] > small[13]
