import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcl.compiler.bootstrap import import_tvm

TARGET = {"kind": "llvm", "num-cores": 1}


@pytest.fixture(scope="module")
def program() -> str:
    import_tvm(TARGET)
    import tvm
    from tvm import te
    from tvm.s_tir.meta_schedule.database import Workload

    from tcl.compiler.programs.traces import plain_json

    a, b = (te.placeholder((24, 40), name=name) for name in "AB")
    product = te.compute((24, 40), lambda i, j: a[i, j] * b[i, j] + 1.0, name="C")
    module = tvm.IRModule({"main": te.create_prim_func([a, b, product]).with_attr("global_symbol", "main")})
    return json.dumps(plain_json(Workload(module).as_json()))


@pytest.fixture
def build(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A build worker's answer to a trace, without lowering this process's priority."""
    from tcl.compiler.measuring.workers import BuildWorker

    monkeypatch.setattr("os.nice", lambda increment: increment)
    worker = BuildWorker({})

    def answer(trace: str, archive: bool = False) -> dict[str, Any]:
        return worker(
            {
                "op": "build",
                "workload": "key",
                "program": program,
                "target": TARGET,
                "trace": trace,
                "folder": str(tmp_path),
                "archive": archive,
            }
        )

    return answer


def test_build_makes_an_artifact_that_computes_the_program(build: Any) -> None:
    import tvm

    answer = build("[[],[]]")
    assert answer["args"] == [["float32", [24, 40]]] * 3
    main = tvm.runtime.load_module(answer["artifact"])["main"]
    a, b = (np.random.default_rng(seed).random((24, 40), dtype=np.float32) for seed in (1, 2))
    arguments = [tvm.runtime.tensor(value) for value in (a, b, np.empty_like(a))]
    main(*arguments)
    np.testing.assert_allclose(arguments[2].numpy(), a * b + 1, rtol=1e-6)


def test_build_replays_its_own_full_trace(build: Any) -> None:
    trace = build("[[],[]]")["trace"]
    assert any(instruction[0] == "EnterPostproc" for instruction in json.loads(trace)[0])
    assert build(trace)["trace"] == trace


def test_build_writes_an_archive_for_a_board(build: Any) -> None:
    assert Path(build("[[],[]]", archive=True)["artifact"]).suffix == ".tar"


def test_build_reports_a_trace_that_does_not_apply(build: Any) -> None:
    trace = [[["GetSBlock", [], ["nothing", "main"], ["b0"]]], []]
    answer = build(json.dumps(trace))
    assert answer["error"].startswith("build: ")
    assert "artifact" not in answer


def test_reference_module_computes_a_matrix_product() -> None:
    tvm = import_tvm(TARGET)
    from tcl.compiler.measuring.reference import reference_module

    built = tvm.build(reference_module(2, 128), target=tvm.target.Target(TARGET))
    a = np.random.default_rng(1).random((32, 1024), dtype=np.float32)
    b = np.random.default_rng(2).random((1024, 256), dtype=np.float32)
    arguments = [tvm.runtime.tensor(value) for value in (a, b, np.empty((32, 256), dtype=np.float32))]
    built["main"](*arguments)
    np.testing.assert_allclose(arguments[2].numpy(), a @ b, rtol=1e-4)


def test_inputs_are_seeded_distinct_and_safe_as_indices() -> None:
    tvm = import_tvm(TARGET)
    from tcl.compiler.measuring.places import Inputs

    specifications = [["float32", [70000]], ["float32", [70000]], ["int64", [3, 5]], ["bool", [4]]]
    first, second, index, mask = (t.numpy() for t in Inputs(tvm.cpu()).make(specifications))
    again = Inputs(tvm.cpu()).make(specifications)
    assert not np.array_equal(first, second)
    assert np.array_equal(first, again[0].numpy())
    assert set(index.ravel().tolist()) <= {0, 1}
    assert mask.dtype == bool


class _BrokenClock:
    """A place whose programs run, and whose clock does not."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.inputs, self.device = seconds, self, self

    def load(self, artifact: str) -> dict[str, Any]:
        return {"main": lambda: None}

    def make(self, specifications: list[Any]) -> list[Any]:
        return specifications

    def sync(self) -> None:
        pass

    def time(self, module: Any, arguments: list[Any], repeats: int) -> tuple[list[float], list[float]]:
        return [self.seconds] * repeats, [1e-3] * repeats


@pytest.mark.parametrize("seconds", [0.0, float("nan"), float("inf")])
def test_run_is_a_failure_when_the_clock_gives_no_time(seconds: float) -> None:
    from tcl.compiler.measuring.workers import RunWorker

    message = {"artifact": "a", "args": [], "repeats": 2, "budget": 1.0, "hopeless": 1.0, "limit": 1.0}
    answer = RunWorker(_BrokenClock(seconds))(message)  # type: ignore[arg-type]
    assert "the device's clock gave" in answer["error"]
