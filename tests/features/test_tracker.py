"""The tracker of loops and steps."""

import numpy as np
import pytest

from tcl.features.batch import MAX_STEPS
from tcl.features.tracker import (
    COUNT,
    INNER_REDUCE,
    INNER_SPATIAL,
    OUTER_SPATIAL,
    REDUCE,
    SPATIAL,
    Loop,
    Tracker,
    lane_share,
    log2,
)
from tcl.features.vocabulary import KIND_IDS


def test_split_reorder_and_fuse_keep_the_volume() -> None:
    tracker = Tracker(2)
    rows, columns = Loop(5.0, SPATIAL), Loop(6.0, SPATIAL)
    block = tracker.block("matmul", [rows, columns])
    outer, inner = tracker.split(block, rows, [np.array([2, 8]), np.array([16, 4])], SPATIAL)
    assert block.loops == [outer, inner, columns]
    tracker.reorder([columns, inner])
    assert block.loops == [outer, columns, inner]
    fused = tracker.fuse([outer, columns])
    assert block.loops == [fused, inner]
    assert fused.log == pytest.approx([1 + 6, 3 + 6])
    assert sum(loop.log for loop in block.loops) == pytest.approx([11, 11])


def test_location_measures_the_volume_inside_and_outside() -> None:
    tracker = Tracker(3)
    block = tracker.block("b", [Loop(2.0, SPATIAL), Loop(3.0, REDUCE), Loop(4.0, SPATIAL)])
    slots = tracker.location(block, np.array([-1, 0, 1]))
    assert slots[INNER_SPATIAL] * 5 == pytest.approx([6, 4, 4])
    assert slots[INNER_REDUCE] * 5 == pytest.approx([3, 3, 0])
    assert slots[OUTER_SPATIAL] * 5 == pytest.approx([0, 2, 2])


def test_repeated_inlining_is_one_step() -> None:
    tracker = Tracker(1)
    for _ in range(3):
        tracker.row("compute_inline", tracker.block())
    kinds, values = tracker.finish()
    assert kinds.tolist() == [[KIND_IDS["compute_inline"]]]
    assert values[0, 0, COUNT] == pytest.approx(0.75)


def test_longest_sequence_is_cut_from_its_expendable_steps() -> None:
    tracker = Tracker(1)
    for _ in range(MAX_STEPS):
        tracker.row("annotate")
        tracker.row("bind_thread")
    kinds, _ = tracker.finish()
    assert kinds.shape == (1, MAX_STEPS)
    assert (kinds == KIND_IDS["bind_thread"]).all()


def test_lane_share_is_one_when_lanes_divide_the_extent() -> None:
    assert lane_share(np.array([16, 32, 8, 17]), 16) == pytest.approx([1, 1, 0.5, 17 / 32])
    assert lane_share(0, 4) == pytest.approx(0.25)


def test_log2_counts_nonsense_as_one() -> None:
    assert log2(0) == 0 and log2(-3) == 0
    assert log2(np.array([8, 0])).tolist() == [3, 0]
