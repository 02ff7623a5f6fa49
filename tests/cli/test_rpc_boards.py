"""From `tcl device add --rpc` to a package that was tuned, verified and timed on the board."""

import json
from dataclasses import replace

import pytest
from boards import HOST, boards
from command_line import Project

from tcl.records.store import RecordStore


def plant_wrong_schedule(project: Project, device: str) -> None:
    """Add a record, faster than all others, whose schedule rounds the product to float16."""
    store = RecordStore(project.root / "data")
    record = next(iter(store.records(device)))
    product = next(  # the first one named is the workload's own; parts of it may follow
        instruction[2][0]
        for instruction in json.loads(record.trace)[0]
        if instruction[0] == "GetSBlock" and "matmul" in instruction[2][0]
    )
    rounding = [["GetSBlock", [], [product, "main"], ["b0"]], ["UnsafeSetDType", ["b0"], [0, "float16"], []]]
    store.append([], [replace(record, trace=json.dumps([rounding, []]), run_seconds=(1e-9,), error=None)])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_measure_distill_and_compile_run_on_a_board_and_name_it_when_it_is_away(learnt: Project) -> None:
    target = json.dumps({"kind": "llvm", "mcpu": "x86-64-v2", "num-cores": 1})
    with boards("pi4") as running:
        address = f"{HOST}:{running.port}"
        learnt.ok("device", "add", "pi4", "--target", target, "--rpc", address, "--key", "pi4")
        measured = learnt.ok("measure", "matmul16.onnx", "--device", "pi4", "--budget", "2")
        assert (measured["measured"], measured["failed"]) == (2, 0)
        learnt.ok("distill", "--device", "pi4")
        plant_wrong_schedule(learnt, "pi4")
        arguments = ("compile", "matmul16.onnx", "--device", "pi4", "-o", "remote")
        compiled = learnt.ok(*arguments, "--trials", "4")
        assert "1 schedule discarded: the best gives wrong results" in compiled["tasks"][0]["note"]
        assert compiled["verification"]["max_rel"] <= 1e-4
        assert set(compiled["latency"]) == {"tuned"}  # onnxruntime does not run on the board
        assert compiled["device"]["rpc"] == {"host": HOST, "port": running.port, "key": "pi4"}
        running.kill("pi4")
        message = learnt.fail(*arguments, "--trials", "0", code=1, TCL_MEASURE_DEVICE_WAIT="0")
        assert "waiting for device pi4: " in message
