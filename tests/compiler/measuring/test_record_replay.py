"""A stored record is enough to rebuild its program and run it."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from tcl.compiler.bootstrap import import_tvm

tvm = import_tvm()

from tvm import te  # noqa: E402

from tcl.compiler.programs.tasks import TuningTask, describe, design_space, program_of  # noqa: E402
from tcl.compiler.programs.traces import plain_json, replay, tuning_context  # noqa: E402
from tcl.devices.device import Device  # noqa: E402
from tcl.measuring.engine import MeasuringEngine  # noqa: E402
from tcl.measuring.types import MeasureOptions, MeasureRequest  # noqa: E402
from tcl.records.metaschedule import export_database  # noqa: E402
from tcl.records.record import MeasureRecord  # noqa: E402
from tcl.records.store import RecordStore  # noqa: E402

DEVICE = Device("host", {"kind": "llvm", "mcpu": "x86-64-v2", "num-cores": 1})
TARGET = tvm.target.Target(DEVICE.target)


def matmul_task() -> TuningTask:
    a, b = te.placeholder((16, 32), name="a"), te.placeholder((32, 48), name="b")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((16, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=[k]), name="matmul")
    mod = tvm.IRModule({"main": te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")})
    return TuningTask(describe(mod, "matmul"), 1, mod, ("main",))


def measured_record(task: TuningTask) -> MeasureRecord:
    space = design_space(task, TARGET)
    trace = space.trace(space.sample(3, np.random.default_rng(2))[-1], 0)
    request = MeasureRequest(task.workload.key, task.workload.program, DEVICE.target, trace, "random")
    with MeasuringEngine(DEVICE, MeasureOptions(builders=1, repeats=3)) as engine:
        (result,) = engine.measure([request])
    return MeasureRecord(
        device=DEVICE.name,
        workload=task.workload.key,
        trace=result.trace,
        run_seconds=result.run_seconds,
        reference_seconds=result.reference_seconds,
        error=result.error,
        timestamp=time.time(),
        tvm_version=tvm.__version__,
        feature_version=1,
        origin="random",
    )


def test_record_computes_what_numpy_does_when_rebuilt_from_parquet_or_by_tvm(tmp_path: Path) -> None:
    task = matmul_task()
    RecordStore(tmp_path / "data").append([task.workload], [measured_record(task)])
    store = RecordStore(tmp_path / "data")
    (record,) = store.records(DEVICE.name)
    assert record.error is None
    rebuilt = replay(
        tuning_context(program_of(store.workloads(DEVICE.name)[record.workload]), TARGET), record.trace
    )
    export_database(store, DEVICE, tmp_path / "database")
    database = tvm.s_tir.meta_schedule.database.JSONDatabase(work_dir=str(tmp_path / "database"))
    queried = database.query_schedule(task.mod, TARGET, "main")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((16, 32), (32, 48)))
    for schedule in (rebuilt, queried):
        assert plain_json(schedule.trace.as_json())[1]  # it is scheduled, not the bare program
        result = tvm.runtime.tensor(np.zeros((16, 48), np.float32))
        tvm.build(schedule.mod, target=TARGET)["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), result)
        assert np.allclose(result.numpy(), a @ b, rtol=1e-4, atol=1e-5)
