"""Which operands the axes of a block index, and how much of them a tile touches."""

import numpy as np
import pytest

from tcl.features.operands import Operands, operand_sides
from tcl.features.tracker import REDUCE, SPATIAL, Tile


def tiles(role: int, *axes: tuple[int, ...]) -> list[Tile]:
    return [Tile([float(np.log2(factor)) for factor in axis], role, {}) for axis in axes]


@pytest.mark.parametrize(
    ("name", "axes", "sides"),
    [
        ("conv2d_NCHWc", 5, ["d", "w", "d", "d", "w"]),
        ("conv2d_nhwc", 4, ["d", "d", "d", "w"]),
        ("DepthwiseConv2d", 4, ["d", "dw", "d", "d"]),
        ("T_batch_matmul_NN", 3, ["dw", "d", "w"]),
        ("T_matmul_NN", 2, ["d", "w"]),
        ("anything", 0, []),
    ],
)
def test_axes_index_data_or_weights_when_an_operator_is_known(name: str, axes: int, sides: list[str]) -> None:
    assert operand_sides(name, axes) == sides


def test_window_reads_a_halo_when_it_slides_over_the_data() -> None:
    spatial = tiles(SPATIAL, (1, 1), (2, 8), (7, 2), (1, 14))  # n, channels, height, width
    reduce = tiles(REDUCE, (4, 16), (1, 3), (1, 3))  # channels, kernel
    operands = Operands("conv2d", spatial, reduce)
    data, weights = operands.elements([1], [1])
    assert 2**data == pytest.approx(16 * (2 + 2) * (14 + 2))
    assert 2**weights == pytest.approx(8 * 16 * 3 * 3)
    rows = operands.rows([1], [1])
    assert 2 ** rows[0] == pytest.approx(16)
    assert 2 ** rows[1] == pytest.approx(16 * 3 * 3)


def test_channels_lie_together_when_the_layout_ends_with_them() -> None:
    spatial = tiles(SPATIAL, (1, 1), (7, 2), (1, 14), (4, 32))
    reduce = tiles(REDUCE, (1, 3), (1, 3), (4, 16))
    operands = Operands("conv2d_nhwc", spatial, reduce)
    assert 2 ** operands.elements([1], [1])[0] == pytest.approx((2 + 2) * (14 + 2) * 16)
    assert [2**row for row in operands.rows([1], [1])] == pytest.approx([16, 32])


def test_product_reads_rows_and_columns_when_it_has_no_window() -> None:
    operands = Operands("matmul", tiles(SPATIAL, (4, 8), (2, 16)), tiles(REDUCE, (8, 4)))
    assert [2**side for side in operands.elements([1], [1])] == pytest.approx([8 * 4, 16 * 4])


def test_there_are_no_weights_when_no_axis_indexes_them() -> None:
    operands = Operands("pool", tiles(SPATIAL, (1, 1), (1, 1), (4, 2), (4, 2)), tiles(REDUCE, (1, 3), (1, 3)))
    assert [2**side for side in operands.elements([1], [1])] == pytest.approx([4 * 4, 1])
