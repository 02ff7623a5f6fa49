"""What a schedule makes of a CPU."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcl.features.core import core_rows
from tcl.features.tracker import REDUCE, SPATIAL, Block, Loop, Place, Tracker

Rows = tuple[dict, dict]
NONE = -1.0


def matmul(rows: list[int], columns: list[int], depth: list[int]) -> tuple[Tracker, Block]:
    """A matmul in MetaSchedule's structure for CPUs, SSRSRS."""
    tracker = Tracker(1)
    block = tracker.block("matmul", loops := [Loop(role=role) for role in (SPATIAL, SPATIAL, REDUCE)])
    axes = [
        tracker.split(block, loop, np.array(factors)[:, None], loop.role, tiled=True)
        for loop, factors in zip(list(loops), (rows, columns, depth), strict=True)
    ]
    i, j, k = axes
    tracker.reorder([i[0], j[0], i[1], j[1], k[0], i[2], j[2], k[1], i[3], j[3]])
    return tracker, block


def rows_of(
    schedule: tuple[Tracker, Block], unroll: float = 4, parallel: float = 5, vector: float = 6
) -> Rows:
    limits = (np.array([limit], np.float32) for limit in (unroll, parallel, vector))
    return core_rows(*schedule, *limits)


def log(value: float, scale: float) -> float:
    return round(float(np.asarray(value).reshape(-1)[0]) * scale, 4)


@pytest.mark.parametrize(("columns", "lanes"), [(16, 4), (8, 3), (1, 0), (128, 0)])
def test_tvm_vectorises_the_innermost_loop_when_it_is_within_the_limit(columns: int, lanes: int) -> None:
    core, _ = rows_of(matmul([8, 1, 8, 1], [1, 8, 1, columns], [512, 1]))
    assert log(core[1], 4) == lanes


def test_llvm_vectorises_the_loop_that_stays_when_its_neighbours_are_elements() -> None:
    """The body of four rows and four steps becomes straight-line code, and the loop over columns stays."""
    core, _ = rows_of(matmul([8, 1, 1, 4], [2, 2, 128, 1], [64, 4]))
    assert [log(core[slot], 4) for slot in (0, 1, 2)] == [7, 0, 7]
    assert log(core[4], 1) == 1
    assert log(core[8], 5) == 2  # four steps accumulate in registers


def test_nothing_is_vectorised_when_a_reduction_stays() -> None:
    core, _ = rows_of(matmul([8, 1, 1, 4], [2, 2, 16, 1], [4, 64]))
    assert log(core[0], 4) == 0
    assert log(core[4], 1) == -0.5


def test_straight_line_code_is_vectorised_when_it_covers_neighbours() -> None:
    core, _ = rows_of(matmul([8, 1, 4, 1], [8, 4, 8, 1], [64, 4]), unroll=9)
    assert log(core[3], 4) == 3
    assert log(core[4], 1) == -0.5


def test_accumulators_stay_in_registers_when_their_loops_are_unrolled() -> None:
    kept, _ = rows_of(matmul([8, 1, 2, 8], [4, 2, 2, 16], [16, 32]))
    stored, _ = rows_of(matmul([1, 1, 1, 128], [4, 2, 2, 16], [16, 32]))
    assert [log(kept[slot], scale) for slot, scale in ((6, 4), (8, 5), (9, 1))] == [3, 5, 1]
    assert [log(stored[slot], scale) for slot, scale in ((8, 5), (9, 1))] == [0, 0]
    assert log(stored[12], 2) > log(kept[12], 2)


@pytest.mark.parametrize(("rows", "spilled"), [(16, 0), (32, 4 / 32)])
def test_registers_spill_when_there_are_more_accumulators(rows: int, spilled: float) -> None:
    core, _ = rows_of(matmul([8, 1, 1, rows], [4, 2, 2, 16], [64, 8]))
    assert log(core[15], 4) == np.log2(rows)
    assert log(core[18], 1) == spilled


def test_an_operation_takes_half_a_cycle_when_tile_and_lanes_fit_the_core() -> None:
    core, _ = rows_of(matmul([8, 1, 1, 8], [4, 2, 2, 32], [64, 8]))
    scalar, _ = rows_of(matmul([8, 1, 8, 1], [4, 16, 2, 1], [4, 128]))
    assert log(core[12], 2) == -1
    assert log(scalar[12], 2) > 3


@pytest.mark.parametrize(
    ("rows", "columns", "threads"),
    [([4, 2, 1, 8], [4, 2, 1, 16], 6), ([64, 1, 1, 1], [4, 1, 4, 16], 6), ([1, 1, 4, 16], [1, 1, 4, 64], 0)],
)
def test_threads_take_outer_loops_until_one_exceeds_the_limit(
    rows: list[int], columns: list[int], threads: int
) -> None:
    _, cache = rows_of(matmul(rows, columns, [64, 8]))
    assert log(cache[16], 5) == threads


def test_threads_stop_at_the_loop_that_also_holds_another_block() -> None:
    tracker, block = matmul([2, 2, 1, 8], [2, 2, 1, 16], [64, 8])
    tracker.block("pad").place = Place(block, np.array([1]), consumer=False)
    _, cache = rows_of((tracker, block))
    assert log(cache[16], 5) == 2
    assert log(cache[17], 1) == 1  # four iterations for two cores
    assert log(cache[18], 1) == 1


@pytest.mark.parametrize(("index", "elements", "times"), [(-1, 5 + 9, 0), (1, 4 + 9, 3), (4, 3 + 3, 11)])
def test_inputs_are_computed_again_when_they_lie_inside_the_loops(
    index: int, elements: float, times: float
) -> None:
    tracker, block = matmul([2, 2, 1, 8], [4, 2, 1, 16], [64, 8])
    tracker.block("pad").place = Place(block, np.array([index]), consumer=False)
    _, cache = rows_of((tracker, block))
    assert log(cache[20], 5) == elements
    assert log(cache[19], 4) == elements + times - (5 + 7 + 9)


def test_place_of_what_reads_the_block_is_told_by_the_loops_around_it() -> None:
    tracker, block = matmul([2, 2, 1, 8], [4, 2, 1, 16], [64, 8])
    alone = log(rows_of((tracker, block))[1][21], 5)
    tracker.block("relu").place = Place(block, 3, consumer=True)
    assert (alone, log(rows_of((tracker, block))[1][21], 5)) == (-2, 5)


def test_a_cache_overflows_when_the_tile_is_larger() -> None:
    small = rows_of(matmul([64, 1, 1, 8], [64, 1, 1, 16], [64, 8]))[1]
    large = rows_of(matmul([1, 1, 64, 8], [1, 1, 64, 16], [64, 8]))[1]
    assert [log(small[slot], 3) for slot in (5, 6)] == [0, 0]
    assert log(large[5], 3) > 4
    assert log(large[6], 3) > 0


@given(
    st.lists(st.integers(1, 70), min_size=10, max_size=10),
    st.lists(st.integers(-1, 10), min_size=3, max_size=3),
    st.integers(-2, 12),
)
def test_numbers_are_finite_when_factors_are_any(factors: list[int], limits: list[int], index: int) -> None:
    tracker, block = matmul(factors[:4], factors[4:8], factors[8:])
    tracker.block("pad").place = Place(block, np.array([index]), consumer=False)
    for row in rows_of((tracker, block), *map(float, limits)):
        assert set(row) <= set(range(23))
        assert all(np.isfinite(np.asarray(value, np.float64)).all() for value in row.values())


def test_a_block_without_tiles_has_numbers_too() -> None:
    tracker = Tracker(2)
    rows = core_rows(tracker, tracker.block("softmax"), *(np.full(2, NONE, np.float32) for _ in range(3)))
    assert [set(row) for row in rows] == [set(range(23)), {16, 17, 18, 21}]
