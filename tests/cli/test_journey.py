"""From measuring to a promoted model and a running package, through the command line."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
from command_line import DEVICE, save_matmul

from tcl.registry.registry import Registry
from tcl.settings import load_settings


def test_measure_does_nothing_when_the_dataset_holds_it_already(learnt):
    models = [learnt.root / f"matmul{n}.onnx" for n in (16, 32, 48)]
    arguments = (
        "measure",
        *models,
        learnt.root / "convolution.onnx",
        "--device",
        DEVICE,
        "--sampler",
        "random",
    )
    again = learnt.ok(*arguments, "--budget", "32")
    assert again["measured"] == 0
    assert [program["known"] for program in again["programs"]] == [8, 8, 8, 8]


def test_data_status_counts_records_and_names_the_version(learnt):
    status = learnt.ok("data", "status")
    host = next(device for device in status["devices"] if device["device"] == DEVICE)
    assert host["records"] >= 32 and host["workloads"] >= 4
    assert status["version"]["hash"]
    assert learnt.ok("data", "pull")["fetched"] is False


def test_models_shows_lineage_and_aliases(learnt):
    version = next(v for v in learnt.ok("models")["models"] if v["owner"] == DEVICE and v["version"] == 1)
    wanted = {"target", "data_hash", "dataset_version", "git_commit", "parent_version", "tvm_version"}
    assert wanted <= version["tags"].keys()
    assert {"top_1", "top_5"} <= version["metrics"].keys()
    assert any(v["owner"] == "knowledge base" for v in learnt.ok("models")["models"])


def test_compile_then_run_agrees_with_onnxruntime(learnt, tmp_path):
    compiled = learnt.ok("compile", "matmul32.onnx", "--device", DEVICE, "--trials", "2", "-o", "journey")
    assert compiled["verification"]["max_rel"] <= 1e-4
    assert set(compiled["latency"]) == {"tuned", "onnxruntime"}
    feed = {"x": np.random.default_rng(5).standard_normal((1, 64), dtype=np.float32)}
    np.savez(tmp_path / "in.npz", **feed)
    learnt.ok("run", "journey", "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    session = onnxruntime.InferenceSession(learnt.root / "matmul32.onnx")
    with np.load(tmp_path / "out.npz", allow_pickle=False) as arrays:
        np.testing.assert_allclose(arrays["y"], session.run(None, feed)[0], rtol=1e-4, atol=1e-4)
    timed = learnt.ok("run", "journey", "--benchmark")
    assert set(timed["latency"]) == {"tcl", "onnxruntime"}


def test_run_says_what_fits_when_inputs_do_not(learnt, tmp_path):
    learnt.ok("compile", "matmul16.onnx", "--device", DEVICE, "--trials", "0", "-o", "fits")
    np.savez(tmp_path / "in.npz", x=np.zeros((2, 64), np.float32))
    assert "(1, 64)" in learnt.fail("run", "fits", "--input", tmp_path / "in.npz", code=2)
    (tmp_path / "in.npz").write_text("no arrays")
    assert "in.npz" in learnt.fail("run", "fits", "--input", tmp_path / "in.npz", code=2)


def test_compile_uses_the_promoted_version_when_the_alias_moves(learnt):
    learnt.ok("distill", "--device", DEVICE, "--again", "--seed", "1")
    arguments = ("compile", "matmul16.onnx", "--device", DEVICE, "--trials", "0", "-o", "promoted")
    assert learnt.ok(*arguments)["cost_model"]["version"] == 1
    assert learnt.ok(*arguments, "--alias", "challenger")["cost_model"]["version"] == 2
    # As a person does in MLflow's page.
    from mlflow.tracking import MlflowClient

    uri = load_settings(learnt.root).mlflow_tracking_uri
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    client.set_registered_model_alias(f"tcl-cost-{DEVICE}", "champion", "2")
    assert learnt.ok(*arguments)["cost_model"]["version"] == 2
    learnt.ok("models", "promote", DEVICE, "1")
    assert Registry(load_settings(learnt.root)).resolve(DEVICE).version == 1
    assert learnt.ok(*arguments)["cost_model"]["version"] == 1
    assert learnt.ok(*arguments, "--version", "2")["cost_model"]["version"] == 2


def test_compile_keeps_the_folder_when_it_is_no_package(learnt):
    folder = learnt.root / "precious"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    learnt.fail("compile", "matmul16.onnx", "--device", DEVICE, "-o", "precious", code=2)
    assert (folder / "thesis.txt").read_text() == "years of work"


def test_package_loads_where_only_tvm_and_numpy_are_installed(learnt):
    learnt.ok("compile", "matmul16.onnx", "--device", DEVICE, "--trials", "0", "-o", "alone")
    code = (
        "import sys\n"
        "for name in ('torch', 'mlflow', 'prefect', 'dvc', 'onnx', 'onnxruntime', 'pyarrow', 'click', 'rich'):\n"
        "    sys.modules[name] = None\n"
        "import numpy, tcl\n"
        "print(tcl.load('alone')(x=numpy.ones((1, 64), 'float32'))['y'].shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=learnt.root, capture_output=True, text=True)
    assert done.stdout.strip() == "(1, 16)", done.stderr


@pytest.mark.slow
def test_import_then_distill_makes_a_model_when_records_come_from_elsewhere(learnt, project):
    from tcl.devices.store import DeviceStore
    from tcl.records.metaschedule import export_database
    from tcl.records.store import RecordStore

    device = DeviceStore(learnt.root / "devices").get(DEVICE)
    export_database(RecordStore(learnt.root / "data"), device, project.root / "database")
    project.ok("device", "detect", "--name", DEVICE)
    imported = project.ok("import", "database", "--device", DEVICE)
    assert imported["broken"] == 0 and imported["new"] == imported["records"] >= 32
    assert project.ok("import", "database", "--device", DEVICE)["new"] == 0
    assert project.ok("distill", "--device", DEVICE)["model"]["version"] == 1


def test_up_finds_everything_done_when_it_runs_again(learnt):
    save_matmul(learnt.root / "up.onnx", 40)
    budgets = {"TCL_UP_MEASURE_PER_PROGRAM": "4", "TCL_UP_DISTILL_SECONDS": "5"}
    arguments = ("up", "up.onnx", "--trials", "2", "-o", "up")
    outcome = learnt.run(*arguments, "--json", **budgets)
    assert outcome.code == 0, outcome.err
    assert "connection attempts failed" not in outcome.err  # or Prefect goes on trying for a minute
    first = outcome.json
    assert first["done"] == ["measure", "distill", "compile"]
    assert set(first["latency"]) == {"untuned", "tuned", "onnxruntime"}
    second = learnt.ok(*arguments, **budgets)
    assert second["done"] == []
    assert second["files"] == first["files"]
