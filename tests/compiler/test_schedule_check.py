"""A schedule that changes what its program computes is recognised."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tcl.compiler.bootstrap import import_tvm

tvm = import_tvm()

from tvm import te  # noqa: E402

from tcl.compiler.schedule_check import fault_of  # noqa: E402
from tcl.compiler.tasks import TuningTask, describe, design_space  # noqa: E402

TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v2", "num-cores": 1})


@pytest.fixture(scope="module")
def task() -> TuningTask:
    """A product whose result is clipped at zero."""
    a, b = te.placeholder((16, 32), name="a"), te.placeholder((32, 48), name="b")
    k = te.reduce_axis((0, 32), name="k")
    product = te.compute((16, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=[k]), name="matmul")
    zero = tvm.tirx.const(0, "float32")
    relu = te.compute((16, 48), lambda i, j: tvm.tirx.max(product[i, j], zero), name="relu")
    mod = tvm.IRModule({"main": te.create_prim_func([a, b, relu]).with_attr("global_symbol", "main")})
    return TuningTask(describe(mod, "matmul"), 1, mod, ("main",))


def trace_with_product_in(dtype: str) -> str:
    """Keep the product in another type before it is clipped: TVM's own way to a wrong schedule."""
    return json.dumps(
        [[["GetSBlock", [], ["matmul", "main"], ["b0"]], ["UnsafeSetDType", ["b0"], [0, dtype], []]], []]
    )


def test_schedule_of_the_design_space_has_no_fault(task):
    space = design_space(task, TARGET)
    trace = space.trace(space.sample(3, np.random.default_rng(2))[-1], 0)
    assert fault_of(task.mod, TARGET, trace, {}) is None


def test_schedule_that_rounds_is_wrong_unless_the_tolerance_allows_it(task):
    rounded = trace_with_product_in("float16")
    assert "wrong results (off by 0.0" in fault_of(task.mod, TARGET, rounded, {})
    assert fault_of(task.mod, TARGET, rounded, {"float32": 0.1}) is None
    assert "wrong results" in fault_of(task.mod, TARGET, trace_with_product_in("int32"), {})


def test_schedule_that_does_not_apply_is_wrong(task):
    other = json.dumps([[["GetSBlock", [], ["no such block", "main"], ["b0"]]], []])
    assert "does not compile" in fault_of(task.mod, TARGET, other, {})
