"""What a schedule takes of a GPU."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcl.features.resources import resource_rows
from tcl.features.tracker import REDUCE, SPATIAL, Block, Tile

NO_UNROLL = np.array([-1.0], np.float32)
factors = st.integers(0, 6)


def matmul(rows: list[int], columns: list[int], depth: list[int]) -> Block:
    def tile(extents: list[int], role: int) -> Tile:
        return Tile([np.log2(np.array([extent], np.float32)) for extent in extents], role, {})

    tiles = [tile(rows, SPATIAL), tile(columns, SPATIAL), tile(depth, REDUCE)]
    return Block("matmul", tiles=tiles)


def rows_of(block: Block, unroll: float = -1.0) -> tuple[dict, dict]:
    found = resource_rows(block, np.array([unroll], np.float32), 0.0)
    assert found is not None
    return found


def test_registers_spill_when_a_thread_keeps_too_many_accumulators() -> None:
    small = rows_of(matmul([8, 1, 8, 4, 1], [8, 1, 8, 4, 1], [16, 4, 1]))[0]
    large = rows_of(matmul([1, 4, 8, 4, 2], [1, 2, 8, 4, 2], [16, 4, 1]))[0]
    assert 2 ** (small[0] * 4) == pytest.approx(16)
    assert small[2] == 0
    assert 2 ** (large[0] * 4) == pytest.approx(512)
    assert large[2] > 1  # 512 accumulators and more in 255 registers


def test_fewer_blocks_are_resident_when_their_tiles_fill_shared_memory() -> None:
    lean = rows_of(matmul([8, 1, 8, 4, 1], [8, 1, 8, 4, 1], [64, 1, 1]))[0]
    heavy = rows_of(matmul([8, 1, 8, 4, 1], [8, 1, 8, 4, 1], [1, 64, 1]))[0]
    assert heavy[4] > lean[4]
    assert heavy[5] < lean[5]


def test_a_store_is_whole_when_neighbouring_threads_write_neighbours() -> None:
    together = rows_of(matmul([8, 1, 8, 1, 1], [8, 1, 32, 1, 1], [16, 4, 1]))[1]
    apart = rows_of(matmul([8, 1, 8, 1, 1], [1, 1, 32, 8, 1], [16, 4, 1]))[1]
    assert together[0] == pytest.approx(1)
    assert apart[0] == pytest.approx(1 / 8)
    assert (together[1], apart[1]) == (0, pytest.approx(1))  # strides of 1 and of 8 = 2**3 banks


def test_less_moves_for_an_operation_when_tiles_are_larger() -> None:
    small = rows_of(matmul([64, 1, 4, 1, 1], [64, 1, 4, 1, 1], [16, 4, 1]))[1]
    large = rows_of(matmul([8, 1, 8, 4, 1], [8, 1, 8, 4, 1], [16, 4, 1]))[1]
    assert large[7] < small[7]
    assert large[11] < small[11]


def test_unrolling_covers_the_body_when_the_limit_is_as_large() -> None:
    block = matmul([8, 1, 8, 4, 1], [8, 1, 8, 4, 1], [16, 4, 1])
    assert [
        float(rows_of(block, unroll=limit)[0][slot][0]) for limit, slot in ((4, 15), (5, 16), (6, 16))
    ] == [
        1,
        0,
        1,
    ]


def test_there_are_no_rows_when_the_tiling_has_another_structure() -> None:
    assert resource_rows(Block("matmul"), NO_UNROLL, 0.0) is None
    odd = Block("matmul", tiles=[Tile([1.0, 2.0, 3.0], SPATIAL, {})])
    assert resource_rows(odd, NO_UNROLL, 0.0) is None


@given(st.lists(factors, min_size=13, max_size=13), st.integers(-1, 10))
def test_numbers_are_finite_when_factors_are_any(logs: list[int], unroll: int) -> None:
    numbers = [2**log for log in logs]
    for row in rows_of(matmul(numbers[:5], numbers[5:10], numbers[10:]), float(unroll)):
        assert set(row) <= set(range(23))
        assert all(np.isfinite(np.asarray(value, np.float64)).all() for value in row.values())
