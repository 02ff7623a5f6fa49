"""Derived numbers of GPU schedules."""

import json

import numpy as np
import pytest

from tcl.features.ansor import encode_steps
from tcl.features.vocabulary import KIND_IDS


def threads_values(rows: list[int], columns: list[int], fetch: tuple[int, int]) -> np.ndarray:
    """The row of a matmul of 128 x 256 x 64 whose data tile has `fetch[0]` elements, loaded `fetch[1]` at a time."""
    steps = [
        ["CHW", 2, "local"],
        ["SP", 2, 0, 128, rows, 1],
        ["SP", 2, 5, 256, columns, 1],
        ["SP", 2, 10, 64, [4, 2], 1],
        ["RE", 2, [0, 5, 1, 6, 2, 7, 10, 11, 3, 8, 12, 4, 9]],
        ["FSP", 3, 0, 1, 3],
        ["FSP", 3, 4, 2, 3],
        ["RE", 3, [0, 4, 1, 5, 2, 6, 3, 7]],
        ["CA", 2, 3, 5],
        ["CHR", 0, "shared", [2]],
        ["CA", 1, 3, 6],
        ["FU", 4, [0, 1]],
        ["AN", 4, 0, 5],
        ["FU", 4, [1, 2]],
        ["AN", 4, 1, 4],
        ["FU", 4, [2, 3]],
        ["AN", 4, 2, 6],
        ["FU", 1, [0, 1]],
        ["SP", 1, 0, fetch[0], [fetch[1]], 1],
        ["AN", 1, 1, 2],
    ]
    kinds, values = encode_steps([json.dumps(steps, separators=(",", ":"))], "matmul")
    return values[0, kinds[0].tolist().index(KIND_IDS["summary_threads"])]


def test_shared_tile_and_fetches_are_counted() -> None:
    row = threads_values([2, 8, 1, 2], [1, 16, 1, 2], (512, 2))
    assert 2 ** (row[0] * 5) == pytest.approx(512, rel=1e-4)
    assert row[1] == pytest.approx(1)  # 256 loads for 128 threads
    assert 2 ** (row[5] * 5) == pytest.approx(513 / 128, rel=1e-3)
    assert threads_values([2, 8, 1, 2], [1, 16, 1, 2], (192, 1))[1] == pytest.approx(0.75)


def test_threads_that_do_not_fill_a_multiprocessor_show() -> None:
    full = threads_values([2, 8, 1, 2], [1, 16, 1, 2], (512, 2))
    starved = threads_values([2, 8, 1, 2], [1, 16, 1, 2], (24_000, 1))
    assert full[7] == pytest.approx(1)
    assert starved[7] == pytest.approx(128 / 2048)


def test_neighbouring_threads_show() -> None:
    row = threads_values([2, 8, 1, 2], [1, 16, 1, 2], (512, 2))
    assert 2 ** (row[11] * 4) == pytest.approx(16)
    assert row[14] == pytest.approx(0.5)
    assert 2 ** (row[10] * 4) == pytest.approx(32)
