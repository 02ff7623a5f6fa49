"""exp as plain arithmetic, compared with numpy."""

from typing import Any

import numpy as np
import pytest

from tcl.compiler.bootstrap import import_tvm
from tcl.compiler.targets import target_of

SIZE = 4096


def exponential(dtype: str, lanes: int) -> Any:
    """A function of one array: exp of each element, in vectors of so many lanes."""
    tvm = import_tvm()
    from tvm import s_tir, te, tirx

    x = te.placeholder((SIZE,), name="x", dtype=dtype)
    y = te.compute((SIZE,), lambda i: tirx.exp(x[i]), name="y")
    schedule = s_tir.Schedule(te.create_prim_func([x, y]))
    (loop,) = schedule.get_loops(schedule.get_sblock("y"))
    _, inner = schedule.split(loop, [None, lanes])
    schedule.vectorize(inner)
    compiled = tvm.compile(schedule.mod, target_of({"kind": "llvm", "num-cores": 1}))

    def run(values: np.ndarray) -> np.ndarray:
        padded = np.zeros(SIZE, dtype)
        padded[: len(values)] = values
        result = tvm.runtime.tensor(np.empty(SIZE, dtype))
        compiled["main"](tvm.runtime.tensor(padded), result)
        return result.numpy()[: len(values)]

    return run


@pytest.mark.parametrize("lanes", [1, 4, 64])
def test_exp_is_within_two_units_in_the_last_place(lanes: int) -> None:
    values = np.concatenate([np.linspace(-87, 88.7, 3000), np.linspace(-1e-3, 1e-3, 1000)]).astype(np.float32)
    exact = np.exp(values.astype(np.float64))
    error = np.abs(exponential("float32", lanes)(values) - exact) / np.spacing(exact.astype(np.float32))
    assert error.max() < 2


@pytest.mark.parametrize("lanes", [1, 16])
def test_exp_is_that_of_the_c_library_when_results_are_no_normal_numbers(lanes: int) -> None:
    values = np.array([np.nan, np.inf, -np.inf, 88.7229, 300, -200, -103.9, -95, 0, -0.0], np.float32)
    with np.errstate(over="ignore"):
        expected = np.exp(values)
    np.testing.assert_allclose(exponential("float32", lanes)(values), expected, rtol=1e-6, atol=2e-45)


def test_exp_of_doubles_stays_that_of_the_c_library() -> None:
    values = np.linspace(-700, 700, 1000)
    np.testing.assert_allclose(exponential("float64", 1)(values), np.exp(values), rtol=1e-15)
