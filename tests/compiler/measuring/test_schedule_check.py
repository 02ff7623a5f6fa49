"""A schedule that changes what its program computes is recognised."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tcl.compiler.bootstrap import import_tvm
from tcl.compiler.measuring import schedule_check
from tcl.devices.device import Device
from tcl.errors import WorkFailed

tvm = import_tvm()

from tvm import te  # noqa: E402

from tcl.compiler.measuring.schedule_check import fault_of  # noqa: E402
from tcl.compiler.programs.tasks import TuningTask, describe, design_space  # noqa: E402
from tcl.compiler.targets import target_of  # noqa: E402

DEVICE = Device("here", {"kind": "llvm", "mcpu": "x86-64-v2", "num-cores": 1})


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
    space = design_space(task, target_of(DEVICE.target))
    trace = space.trace(space.sample(3, np.random.default_rng(2))[-1], 0)
    assert fault_of(task.mod, DEVICE, trace, {}) is None


def test_schedule_that_rounds_is_wrong_unless_the_tolerance_allows_it(task):
    rounded = trace_with_product_in("float16")
    assert "wrong results (off by 0.0" in fault_of(task.mod, DEVICE, rounded, {})
    assert fault_of(task.mod, DEVICE, rounded, {"float32": 0.1}) is None
    assert "wrong results" in fault_of(task.mod, DEVICE, trace_with_product_in("int32"), {})


def test_schedule_that_does_not_apply_is_wrong(task):
    other = json.dumps([[["GetSBlock", [], ["no such block", "main"], ["b0"]]], []])
    assert "does not compile" in fault_of(task.mod, DEVICE, other, {})


def dying_by(number: int):
    """Stand in for the scheduled program: its process gets a signal in the middle of it."""

    def export(built: object, device: Device, folder: Path) -> str:
        code = f"#include <signal.h>\nint __tvm_ffi_main() {{ return raise({number}); }}"
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / "scheduled.so")]
        subprocess.run(command, input=code, text=True, check=True)
        return "scheduled.so"

    return export


def test_schedule_is_to_blame_for_a_crash_but_not_when_the_system_ends_the_check(task, monkeypatch):
    monkeypatch.setattr(schedule_check, "_build_scheduled", lambda *_: None)
    monkeypatch.setattr(schedule_check, "_export_scheduled", dying_by(11))
    assert fault_of(task.mod, DEVICE, "", {}) == "crashes (SIGSEGV)"
    monkeypatch.setattr(schedule_check, "_export_scheduled", dying_by(9))  # as for want of memory
    with pytest.raises(WorkFailed, match=r"not be checked \(SIGKILL: the machine has too little memory\)"):
        fault_of(task.mod, DEVICE, "", {})
    monkeypatch.setattr(schedule_check, "_export_scheduled", dying_by(4))
    with pytest.raises(WorkFailed, match=r"not be checked \(SIGILL: .*for another machine\)"):
        fault_of(task.mod, DEVICE, "", {})


@pytest.mark.parametrize(("compiler", "message"), [("false", "linking"), ("/no/such/cc", "linking")])
def test_schedule_is_not_to_blame_when_the_c_compiler_is_broken(task, monkeypatch, compiler, message):
    monkeypatch.setenv("CXX", compiler)
    with pytest.raises(WorkFailed, match=message):
        fault_of(task.mod, DEVICE, trace_with_product_in("int32"), {})


def test_schedule_is_not_to_blame_when_the_check_cannot_start(task, monkeypatch, tmp_path):
    (tmp_path / "numpy.py").write_text("raise ImportError('numpy is broken')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(WorkFailed, match=r"could not be checked \(ImportError: numpy is broken\)"):
        fault_of(task.mod, DEVICE, trace_with_product_in("int32"), {})
