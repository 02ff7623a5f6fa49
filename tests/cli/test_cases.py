"""Faults that were reported elsewhere, seen through the command line: each must end the right way here.

The project's device `host` is really measured and learnt; devices that a test needs besides are copies of it.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import DEVICE, QUICK, TCL, clean_environment, save_convolution, save_matmul, save_model
from copies import add_device, records_of, register_copy
from onnx import TensorProto, helper

from tcl.features.batch import FEATURE_VERSION
from tcl.jobs.dataset import open_journal, tuning_store
from tcl.records.store import RecordStore
from tcl.registry.registry import Registry
from tcl.registry.versions import KNOWLEDGE_BASE
from tcl.settings import load_settings

SLOW = {"columns": 2048, "rows": 2048, "depth": 2048}
"""Extents of a product that runs longer than a time-out near zero, however the processes are scheduled."""


def programs(compiled) -> list[dict]:
    return [row for row in compiled["tasks"] if row["name"] != "reshape"]


def test_compile_uses_no_record_of_another_device_when_that_one_is_faster(learnt):
    store, records = records_of(learnt, "[1, 32]")
    add_device(learnt, "slow")
    add_device(learnt, "fast", model=False)
    chosen = replace(records[0], device="slow", run_seconds=(0.5,), reference_seconds=None)
    store.append([], [chosen])
    store.append([], [replace(r, device="fast", run_seconds=(1e-9,)) for r in records])
    compiled = learnt.ok("compile", "matmul32.onnx", "--device", "slow", "--trials", "0", "-o", "slow")
    (row,) = programs(compiled)
    assert row["measured_seconds"] == pytest.approx(0.5)
    lines = (learnt.root / "slow" / "records" / "database_tuning_record.json").read_text().splitlines()
    assert [json.loads(line)[1][1] for line in lines] == [[0.5]]


def test_measure_fails_with_the_cause_when_nothing_succeeds(project):
    model = save_matmul(project.root / "matmul.onnx", **SLOW)
    project.ok("device", "detect", "--name", DEVICE)
    message = project.fail(
        "measure", model, "--device", DEVICE, "--budget", "2", code=1, TCL_MEASURE_RUN_TIMEOUT="0.000001"
    )
    assert "timeout" in message and "2 of 2" in message
    assert not (project.root / "data.dvc").exists()
    assert project.ok("models") == {"models": []}


def test_compile_exports_nothing_when_no_trial_succeeds(learnt):
    add_device(learnt, "hopeless")
    model = save_matmul(learnt.root / "hopeless.onnx", **SLOW)
    message = learnt.fail(
        "compile", model, "--device", "hopeless", "-o", "hopeless", code=1, TCL_MEASURE_RUN_TIMEOUT="0.000001"
    )
    assert "timeout" in message
    assert not (learnt.root / "hopeless").exists()


def test_compile_takes_the_default_schedule_when_every_candidate_failed(learnt):
    store, records = records_of(learnt, "[1, 16]")
    add_device(learnt, "failing")
    failure = {"device": "failing", "run_seconds": (), "reference_seconds": None, "error": "crash: signal 11"}
    store.append([], [replace(record, **failure) for record in records])
    arguments = ("compile", "matmul16.onnx", "--device", "failing", "--trials", "0", "-o", "failing")
    (row,) = programs(learnt.ok(*arguments))
    assert row["schedule"] == "default" and row["measured_seconds"] is None
    assert f"all {len(records)} measured candidates failed" in row["note"]
    assert row["name"] in learnt.run(*arguments).out


def test_compile_goes_on_when_it_was_killed_and_the_last_line_is_cut(learnt):
    _, records = records_of(learnt, "[1, 48]")
    add_device(learnt, "killed")
    settings = load_settings(learnt.root)
    journal = open_journal(settings, "tune", "killed", tuning_store(settings))
    workload = RecordStore(learnt.root / "data").workloads(DEVICE)[records[0].workload]
    for record in records[:2]:
        journal.append([workload], [replace(record, device="killed", origin="search")])
    line = journal.path.read_bytes().splitlines()[-1]
    journal.path.write_bytes(journal.path.read_bytes() + line[: len(line) // 2])
    outcome = learnt.run(
        "compile", "matmul48.onnx", "--device", "killed", "--trials", "2", "-o", "killed", "--json"
    )
    assert outcome.code == 0, outcome.err
    assert "dropped 1 broken record" in outcome.err
    (row,) = programs(outcome.json)
    assert row["trials"] == 0 and row["note"] == "measured before"


@pytest.mark.parametrize(
    ("operator", "domain"),
    [("LSTM", ""), ("GRU", ""), ("ConvInteger", ""), ("LinearRegressor", "ai.onnx.ml")],
)
def test_compile_names_operator_node_and_domain_when_it_cannot_be_compiled(
    learnt, tmp_path, operator, domain
):
    node = helper.make_node(operator, ["x"], ["y"], name="culprit", domain=domain)
    model = save_model(tmp_path / "model.onnx", [node], {"x": [1, 4]}, {"y": [1, 4]})
    message = learnt.fail("compile", model, "--device", DEVICE, "-o", "refused", code=2)
    assert operator in message and "culprit" in message and (domain or "ai.onnx") in message


def test_compile_says_which_input_to_pin_when_it_decides_a_shape(learnt):
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["flat"]), helper.make_node("Relu", ["flat"], ["y"])]
    inputs = {"x": [4, 4], "shape": ([2], TensorProto.INT64)}
    model = save_model(learnt.root / "reshape.onnx", nodes, inputs, {"y": ["a", "b"]})
    arguments = ("compile", model, "--device", DEVICE, "--trials", "0", "-o", "reshape")
    message = learnt.fail(*arguments, code=2)
    assert "'shape'" in message and "--shape" in message
    compiled = learnt.ok(*arguments, "--shape", "shape=[2,8]")
    assert compiled["outputs"][0]["shape"] == [2, 8]


@pytest.mark.parametrize("pin", ["x=1x3x8x8", "N=1"])
def test_compile_pins_symbolic_dimensions_when_told_how(learnt, pin):
    model = save_convolution(learnt.root / "dynamic.onnx", batch="N")
    output = f"dynamic-{len(pin)}"
    arguments = ("compile", model, "--device", DEVICE, "--trials", "0", "-o", output)
    message = learnt.fail(*arguments, code=2)
    assert "N" in message and "--shape" in message
    compiled = learnt.ok(*arguments, "--shape", pin)
    assert compiled["inputs"][0]["shape"] == [1, 3, 8, 8]


def test_run_takes_and_gives_the_original_names_when_they_are_no_identifiers(learnt, tmp_path):
    nodes = [
        helper.make_node("Sub", ["a/b:0", "1.x"], ["difference"]),
        helper.make_node("Relu", ["difference"], ["out:1"]),
        helper.make_node("Neg", ["difference"], ["file"]),
    ]
    shape = [2, 3]
    model = save_model(
        learnt.root / "names.onnx", nodes, {"a/b:0": shape, "1.x": shape}, {"out:1": shape, "file": shape}
    )
    compiled = learnt.ok("compile", model, "--device", DEVICE, "--trials", "0", "-o", "names")
    assert [spec["name"] for spec in compiled["inputs"]] == ["a/b:0", "1.x"]
    first, second = np.full(shape, 3, np.float32), np.full(shape, 1, np.float32)
    np.savez(tmp_path / "in.npz", **{"a/b:0": first, "1.x": second})
    ran = learnt.ok("run", "names", "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    assert [output["name"] for output in ran["outputs"]] == ["out:1", "file"]
    with np.load(tmp_path / "out.npz", allow_pickle=False) as arrays:
        assert np.array_equal(arrays["out:1"], first - second)
        assert np.array_equal(arrays["file"], second - first)


def test_compile_agrees_with_onnxruntime_when_half_data_meets_float_normalisation(learnt):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["y"]),
    ]
    rng = np.random.default_rng(3)
    weights = {"w": rng.standard_normal((4, 3, 3, 3)).astype(np.float16)}
    for name in ("scale", "bias", "mean", "var"):
        weights[name] = (rng.random(4) + 0.5).astype(np.float32)
    half = {"x": ([1, 3, 8, 8], TensorProto.FLOAT16)}, {"y": ([1, 4, 8, 8], TensorProto.FLOAT16)}
    model = save_model(learnt.root / "half.onnx", nodes, *half, weights)
    compiled = learnt.ok("compile", model, "--device", DEVICE, "--trials", "0", "-o", "half")
    assert compiled["outputs"][0]["dtype"] == "float16"
    assert compiled["verification"]["max_rel"] <= 2e-2


def test_distill_recognises_records_by_content_when_it_is_asked_again(learnt):
    store = RecordStore(learnt.root / "data")
    learnt.ok("device", "add", "twice", "--target", json.dumps({"kind": "llvm", "num-cores": 1}))
    records = [replace(record, device="twice") for record in store.records(DEVICE)]
    store.append([], records)
    first = learnt.ok("distill", "--device", "twice")["model"]["version"]
    assert learnt.ok("distill", "--device", "twice")["model"]["version"] == first
    store.append([], [replace(records[0], timestamp=records[0].timestamp + 1)])
    assert learnt.ok("distill", "--device", "twice")["model"]["version"] == first + 1


def test_compile_names_both_versions_when_the_cost_model_has_other_features(learnt):
    add_device(learnt, "outdated", model=False)
    register_copy(learnt, "outdated", feature_version="0")
    message = learnt.fail("compile", "matmul16.onnx", "--device", "outdated", "-o", "outdated", code=2)
    assert "version 0" in message and f"version {FEATURE_VERSION}" in message


@pytest.mark.slow
def test_registry_is_whole_when_two_terminals_start_the_first_run_at_once(learnt, project):
    store, copy = RecordStore(learnt.root / "data"), RecordStore(project.root / "data")
    records = list(store.records(DEVICE))
    names = ["left", "right"]
    for name in names:
        project.ok("device", "add", name, "--target", json.dumps({"kind": "llvm", "num-cores": 1}))
        copy.append(store.workloads(DEVICE).values(), [replace(record, device=name) for record in records])
    running = [
        subprocess.Popen(
            [TCL, "distill", "--device", name],
            cwd=project.root,
            env=clean_environment() | QUICK,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    errors = [process.communicate(timeout=600)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], errors
    registry = Registry(load_settings(project.root))
    assert {version.owner for version in registry.list()} == {*names, KNOWLEDGE_BASE}
    for version in registry.list():
        assert (registry.fetch(version) / "weights.safetensors").is_file()
    assert {version.tags["learned"] for version in registry.versions(KNOWLEDGE_BASE)} <= set(names)


def test_run_refuses_when_a_package_was_tampered_with(learnt):
    learnt.ok("compile", "matmul16.onnx", "--device", DEVICE, "--trials", "0", "-o", "tampered")
    library = Path(learnt.root, "tampered", "model.so")
    library.write_bytes(library.read_bytes() + b"\0")
    assert "SHA-256" in learnt.fail("run", "tampered", code=2)
