"""The tuning benchmark, as small as it gets: one matrix product, records of three others on two devices."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import zstandard
from onnx import TensorProto, helper, numpy_helper

from tcl.bench import in_network
from tcl.bench.machine import own_device
from tcl.bench.tune import bench_tune
from tcl.bench.tune_contenders import Arena
from tcl.bench.tune_curves import covered_seconds, curve, final_estimate
from tcl.bench.tune_figures import geometric_mean, reach
from tcl.bench.tune_models import prepare
from tcl.bench.tune_networks import SUBGRAPHS, export_network
from tcl.bench.tune_report import markdown
from tcl.bench.tune_run import Runner
from tcl.bench.tune_study import TuneParams, cells, read_params
from tcl.devices.device import Device
from tcl.devices.host import detect_host
from tcl.devices.store import DeviceStore
from tcl.errors import BadInput
from tcl.jobs.programs import read_network
from tcl.records.record import MeasureRecord
from tcl.records.store import RecordStore
from tcl.settings import Settings, load_settings

STUDY = """
tune:
  tiny:
    networks: [{network}]
    trials: {{tcl: 4, tcl-0: 0, tenset-mlp: 4, xgb: 4, random: 4}}
    epochs: 1
    seeds: 1
    visits: 1
    build_workers: 1
    latency_rounds: 1
"""


def product(path: Path, width: int) -> Path:
    """``y = relu(x w)`` with x[32, 32] and w[32, width]."""
    weights = np.random.default_rng(width).standard_normal((32, width), dtype=np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (32, 32))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (32, width))],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path)
    )
    return path


def fill(store: RecordStore, device: Device, folder: Path) -> None:
    """Records of three programs with made-up latencies."""
    from tcl.compiler.bootstrap import import_tvm

    import_tvm(device.target)
    from tcl.compiler.programs.tasks import design_space
    from tcl.compiler.targets import target_of

    rng = np.random.default_rng(0)
    for width in (16, 48, 96):
        network = read_network(str(product(folder / f"{width}.onnx", width)), (), device)
        task = next(task for task in network.tasks if task.worth_tuning)
        space = design_space(task, target_of(device.target))
        traces = [space.trace(p, row) for p in space.sample(8, rng) for row in range(len(p))]
        records = [
            MeasureRecord(
                device.name,
                task.workload.key,
                trace,
                (float(rng.uniform(1, 2)) * 1e-5,),
                None,
                None,
                0.0,
                "",
                0,
                "random",
            )
            for trace in traces
        ]
        store.append([task.workload], records)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A project with two devices, their records, and a study of one network."""
    root = tmp_path_factory.mktemp("project")
    settings = load_settings(root, environ={})
    host = detect_host("host")
    wider = {**host.target, "num-cores": host.num_cores + 1}
    for device in (host, replace(host, name="teacher", target=wider)):
        DeviceStore(settings.devices_dir).add(device)
        fill(RecordStore(settings.data_dir), device, root)
    network = product(root / "product.onnx", 64)
    (root / "params.yaml").write_text(STUDY.format(network=network))
    return settings


def open_runner(project: Settings, params: TuneParams, kept: Path) -> Runner:
    return Runner(project, params, own_device(project), project.state_dir / "bench/tune", kept)


@pytest.mark.slow
def test_packages_of_the_same_schedules_are_compared(project: Settings) -> None:
    params = read_params(project.root / "params.yaml")["tiny"]
    runner = open_runner(project, params, project.state_dir / "in_network")
    table = in_network.compare(runner, params.networks[0], trials=2, rounds=1)
    assert [row[0] for row in table.rows] == [
        "as it is built",
        "without prefetches",
        "rows not shared out",
    ]
    assert all(float(cell) > 0 for row in table.rows for cell in row[1:])
    assert float(table.rows[0][-1]) == 1


@pytest.mark.slow
def test_bench_tune_measures_every_contender_and_nothing_again(project: Settings) -> None:
    study = bench_tune(project, ["tiny"])["tiny"]
    assert study["missing"] == []
    found = study["networks"]["product"]
    assert found["programs"] == 1 and found["peak_gflops"] > 1
    assert list(found["searches"]) == ["tcl", "tcl-0", "tenset-mlp", "xgb", "random"]
    for contender, (run,) in found["searches"].items():
        assert run["trials"] == (0 if contender == "tcl-0" else run["trials"]) <= 4, contender
        assert run["trials"] > 0 or contender == "tcl-0"
        assert 0 < run["final_seconds"] < 1 and run["max_rel_error"] < 1e-4
        assert run["first_package_seconds"] > 0 and len(run["package_rounds"]) == 1
    assert found["searches"]["xgb"][0]["trials"] == found["searches"]["random"][0]["trials"] == 4
    assert list(found["engines"]) == ["onnxruntime"]
    assert {row["contender"] for row in found["comparison"]} == {"tenset-mlp", "xgb", "random"}
    assert all(row["estimate_ratio"] > 0 and row["package_ratio"] > 0 for row in found["comparison"])
    # None: the other's first schedule, which cost no time, stayed its best
    assert all(row["speedup"] is None or row["speedup"] > 0 for row in found["comparison"])
    assert found["kernels"][0]["share_of_time"] == pytest.approx(1)
    run = found["run"]
    assert run["at_peak_seconds"] > 0 and run["alone_seconds"] > 0
    assert 0 < run["tuned_seconds"] < 1 and 0 < run["machine_seconds"] < 1 and 0 < run["run_seconds"] < 1

    results = project.root / "docs/results/tune/host"
    report = (results / "report.md").read_text()
    assert "| product | tcl-0 | 1 | 0 ± 0 |" in report and "TCL against tenset-mlp" in report
    assert "of 1 never reached" in report
    assert len((results / "tiny.csv").read_text().splitlines()) > 4 * 4
    assert b"<svg" in (results / "tiny.svg").read_bytes()

    kept = {path: path.stat().st_mtime_ns for path in (results / "cells").iterdir()}
    assert len(kept) == 5 + 3
    again = bench_tune(project, ["tiny"])["tiny"]
    assert again["networks"] == study["networks"]
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    assert markdown({"tiny": json.loads((results / "tiny.json").read_text())}) == report

    params, folder = read_params(project.root / "params.yaml")["tiny"], project.state_dir / "bench/tune"
    elsewhere = open_runner(project, params, results / "cells")
    assert elsewhere.read("product.profile") is not None
    shutil.rmtree(folder / "packages")  # as in another clone, which has the cells only
    assert elsewhere.profile(str(params.networks[0]))["run_seconds"] > 0
    assert len(list((folder / "packages").iterdir())) == 1

    path = results / "cells/product.tcl-4.0.json.zst"
    searched = json.loads(zstandard.decompress(path.read_bytes()))
    searched["traces"] = {}
    path.write_bytes(zstandard.compress(json.dumps(searched).encode()))
    assert elsewhere.read("product.profile") is None and elsewhere.read("product.latency") is None, (
        "they are of another package"
    )


def test_bench_tune_refuses_a_machine_that_has_no_measurements(project: Settings, tmp_path: Path) -> None:
    settings = load_settings(tmp_path, environ={})
    (tmp_path / "params.yaml").write_text((project.root / "params.yaml").read_text())
    DeviceStore(settings.devices_dir).add(detect_host("host"))
    with pytest.raises(BadInput, match=r"is none of the devices that have measurements \(none\)"):
        bench_tune(settings, ["tiny"])
    shutil.copytree(project.data_dir / "teacher", settings.data_dir / "teacher")
    with pytest.raises(BadInput, match=r"have measurements \(teacher\); measure some programs first"):
        bench_tune(settings, ["tiny"])


def test_run_names_what_is_missing_when_there_is_no_time(project: Settings, tmp_path: Path) -> None:
    params = replace(read_params(project.root / "params.yaml")["tiny"], minutes=0)
    missing = open_runner(project, params, tmp_path).run()
    assert missing == ["product.start", *(cell.name for cell in cells(params))]


def test_cells_come_seed_after_seed_and_contender_after_contender(project: Settings) -> None:
    params = read_params(project.root / "params.yaml")["tiny"]
    params = replace(params, networks=("a.onnx", "b.onnx"), trials={"tcl": 4, "xgb": 4}, seeds=2)
    assert [cell.name for cell in cells(params)] == [
        *("a.tcl-4.0", "b.tcl-4.0", "a.xgb-4.0", "b.xgb-4.0"),
        *("a.tcl-4.1", "b.tcl-4.1", "a.xgb-4.1", "b.xgb-4.1"),
    ]


def test_start_refuses_a_network_whose_program_is_in_the_records(project: Settings, tmp_path: Path) -> None:
    params = read_params(project.root / "params.yaml")["tiny"]
    seen = str(product(tmp_path / "seen.onnx", 48))
    with pytest.raises(BadInput, match="1 of its programs are in the records"):
        open_runner(project, replace(params, networks=(seen,)), tmp_path).start(seen)


def test_metaschedule_begins_no_round_when_the_time_is_over(project: Settings, tmp_path: Path) -> None:
    params = replace(read_params(project.root / "params.yaml")["tiny"], cell_minutes=0)
    device = own_device(project)
    pretrained = prepare(project, device, params.epochs, project.state_dir / "bench/tune/models-host-1")
    network = read_network(params.networks[0], (), device)
    arena = Arena(network, device, params, pretrained, tmp_path)
    arena.resume({"reference_seconds": 1e-3, "defaults": {"default": "trace"}})
    outcome = arena.run(next(cell for cell in cells(params) if cell.contender == "random"))
    assert outcome.stopped == "time" and outcome.trials == [] and outcome.traces == {"default": "trace"}


def test_curve_falls_with_each_better_trial_and_counts_weights() -> None:
    start = {
        "tasks": [{"key": "a", "weight": 2}, {"key": "b", "weight": 1}],
        "default_seconds": {"a": 1.0, "b": 4.0},
    }
    trials = [[1.0, "a", 0.5], [2.0, "b", None], [3.0, "b", 1.0], [4.0, "a", 0.7]]
    kept = {"trials": trials, "final_seconds": {}}
    assert list(curve(start, kept)) == [
        (0.0, 0, 6.0),
        (1.0, 1, 5.0),
        (2.0, 2, 5.0),
        (3.0, 3, 2.0),
        (4.0, 4, 2.0),
    ]
    assert final_estimate(start, kept) == 2.0 and covered_seconds(start, kept) == 3.0
    assert reach(curve(start, kept), 5.0) == (1.0, 1) and reach(curve(start, kept), 1.9) is None
    timed = {"trials": [], "final_seconds": {"a": 0.25, "b": None}}
    assert final_estimate(start, timed) == 4.5 and covered_seconds(start, timed) is None


def test_geometric_mean_is_none_of_nothing() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4) and geometric_mean([]) is None


@pytest.mark.parametrize("name", SUBGRAPHS)
def test_every_subgraph_is_a_valid_model(name: str, tmp_path: Path) -> None:
    model = onnx.load(str(export_network(name, tmp_path)))
    onnx.checker.check_model(model, full_check=True)
    assert len(model.graph.node) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("learn: {}", "no study"),
        ("tune: {a: {networks: [resnet50], size: 1}}", "unknown name size"),
        ("tune: {a: {networks: [resnet50], trials: {luck: 1}}}", "unknown contender luck"),
        ("tune: {a: {networks: [resnet51]}}", "unknown network resnet51"),
        ("tune: {a: {networks: [resnet50], engines: [tensorrt]}}", "unknown engine tensorrt"),
        ("tune: {a: {}}", "lacks networks, a list, each item a text"),
        ("tune: {a: {networks: 5}}", "networks must be a list, each item a text, not 5"),
        ("tune: {a: {networks: [5]}}", "networks must be"),
        (
            "tune: {a: {networks: [resnet50], trials: 5}}",
            "trials must be a mapping, each value a whole number",
        ),
        ("tune: {a: {networks: [resnet50], trials: {tcl: -1}}}", "trials must be"),
        ("tune: {a: {networks: [resnet50], seeds: x}}", "seeds must be a whole number, not 'x'"),
        ("tune: {a: {networks: [resnet50], cell_minutes: .inf}}", "cell_minutes must be a number, not inf"),
        ("tune: {a: {networks: [resnet50], 5: 5}}", "unknown name 5"),
        ("tune: {../../x: {networks: [resnet50]}}", "'../../x' cannot name a study"),
        ("tune: {5: {networks: [resnet50]}}", "5 cannot name a study"),
    ],
)
def test_read_params_refuses_what_it_does_not_know(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(content)
    with pytest.raises(BadInput, match=message):
        read_params(tmp_path / "params.yaml")


def test_shipped_params_are_read() -> None:
    studies = read_params(Path(__file__).parents[2] / "params.yaml")
    assert {"small", "large", "subgraphs"} <= set(studies)
    assert len(studies["subgraphs"].networks) >= 8
    assert all(isinstance(params, TuneParams) for params in studies.values())
