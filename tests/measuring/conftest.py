"""Small real candidates, and programs that crash, hang or ask for too much memory."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tcl.compiler.bootstrap import import_tvm
from tcl.devices.device import Device
from tcl.measuring.engine import MeasuringEngine
from tcl.measuring.types import MeasureOptions, MeasureRequest

MCPU = {"x86_64": "x86-64-v2"}.get(platform.machine(), "generic")
DEVICE = Device("test-1c", {"kind": "llvm", "mcpu": MCPU, "num-cores": 1})
OPTIONS = MeasureOptions(builders=2, repeats=5, run_timeout=3.0)


@pytest.fixture(scope="package")
def device() -> Device:
    """One core of this machine, with an instruction set that each machine of its kind has."""
    return DEVICE


@pytest.fixture(scope="package")
def options() -> MeasureOptions:
    """Two build workers and short limits."""
    return OPTIONS


@pytest.fixture(scope="package")
def matmul() -> Callable[[int], list[MeasureRequest]]:
    """Random schedules of a 64 x 64 matrix product, as many as asked for."""
    import_tvm(DEVICE.target)
    import tvm
    from tvm import te
    from tvm.s_tir import Schedule, Trace

    from tcl.compiler.programs.traces import plain_json, tuning_context

    a, b = (te.placeholder((64, 64), name=name) for name in "AB")
    k = te.reduce_axis((0, 64), name="k")
    product = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    module = tvm.IRModule({"main": te.create_prim_func([a, b, product]).with_attr("global_symbol", "main")})
    sketches = tuning_context(module, tvm.target.Target(DEVICE.target)).generate_design_space()

    def sample(count: int) -> list[MeasureRequest]:
        requests = []
        for seed in range(count):
            schedule = Schedule(module, debug_mask="none", seed=seed + 1)
            sketch = sketches[seed % len(sketches)]
            Trace(sketch.trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
            trace = json.dumps(plain_json(schedule.trace.as_json()))
            requests.append(request(module, "matmul", trace))
        return requests

    return sample


def request(module: Any, workload: str, trace: str = "[[],[]]") -> MeasureRequest:
    """A request for one schedule of a module; by default for the program as it stands."""
    from tvm.s_tir.meta_schedule.database import Workload

    from tcl.compiler.programs.traces import plain_json

    program = json.dumps(plain_json(Workload(module).as_json()))
    return MeasureRequest(workload, program, DEVICE.target, trace, "random")


@pytest.fixture(scope="package")
def plants() -> dict[str, MeasureRequest]:
    """Programs that do harm in the run worker."""
    import_tvm(DEVICE.target)
    import tvm
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def crash(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):  # type: ignore[no-untyped-def]
        for i in range(16):
            with T.sblock("read"):
                v = T.axis.spatial(16, i)
                b[v] = a[v * 100000000]

    @T.prim_func(s_tir=True)
    def hang(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):  # type: ignore[no-untyped-def]
        for i in range(1000000000000):
            with T.sblock("loop"):
                T.axis.opaque(1000000000000, i)
                b[0] = b[0] * a[0] + a[1]

    @T.prim_func(s_tir=True)
    def argument(a: T.Buffer((1000000000000,), "float32"), b: T.Buffer((16,), "float32")):  # type: ignore[no-untyped-def]
        for i in range(16):
            with T.sblock("copy"):
                v = T.axis.spatial(16, i)
                b[v] = a[v]

    @T.prim_func(s_tir=True)
    def workspace(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):  # type: ignore[no-untyped-def]
        c = T.sblock_alloc_buffer((100000000000,), "float32")
        for i in range(100000000000):
            with T.sblock("fill"):
                v = T.axis.spatial(100000000000, i)
                c[v] = a[0]
        for i in range(16):
            with T.sblock("copy"):
                v = T.axis.spatial(16, i)
                b[v] = c[v * 1000000]

    functions = {"crash": crash, "hang": hang, "argument": argument, "workspace": workspace}
    return {
        name: request(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), name)
        for name, function in functions.items()
    }


@pytest.fixture(scope="package")
def engine() -> Iterator[MeasuringEngine]:
    """One engine for all tests that leave it usable."""
    with MeasuringEngine(DEVICE, OPTIONS) as engine:
        yield engine
