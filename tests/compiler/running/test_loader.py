"""Loading and running packages: checked before they run, and without what compiled them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from onnx_models import compile_package, model, save, value

import tcl
from tcl.errors import BadInput, TclError
from tcl.files import sha256_file

X = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)


@pytest.fixture
def copy(linear_package, tmp_path) -> Path:
    shutil.copytree(linear_package[0], tmp_path / "copy")
    return tmp_path / "copy"


def edit(folder: Path, **fields: object) -> None:
    path = folder / "tcl.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_package_computes_the_model_when_called_by_name_or_with_a_mapping(linear_package):
    folder, read = linear_package
    weights = {t.name: np.frombuffer(t.raw_data, np.float32) for t in read.original.graph.initializer}
    expected = np.maximum(X @ weights["w"].reshape(8, 6) + weights["b"], 0)
    package = tcl.load(folder)
    for result in (package(x=X), package({"x": X})):
        assert list(result) == ["y"]
        np.testing.assert_allclose(result["y"], expected, atol=1e-5)


def test_package_gives_right_results_when_arrays_are_strided_and_called_by_many_threads(linear_package):
    package = tcl.load(linear_package[0])
    feeds = [X * factor for factor in range(20)]
    expected = [package(x=feed)["y"] for feed in feeds]
    strided = [np.asfortranarray(feed) for feed in feeds]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda feed: package(x=feed)["y"], strided))
    assert all(np.array_equal(a, b) for a, b in zip(results, expected, strict=True))


@pytest.mark.parametrize(
    ("feed", "expected"),
    [
        ({}, "'x' is missing"),
        ({"x": X, "z": X}, "no input 'z'"),
        ({"x": X[:1]}, r"shape \(2, 8\), not \(1, 8\)"),
        ({"x": X.astype(np.float64)}, "dtype float32, not float64"),
        ({"x": [[1.0] * 8] * 2}, "dtype float32"),
        ({"x": None}, "dtype float32"),
    ],
)
def test_package_refuses_in_one_sentence_when_inputs_do_not_fit(linear_package, feed, expected):
    with pytest.raises(BadInput, match=expected):
        tcl.load(linear_package[0])(feed)


def test_package_keeps_names_order_and_scalars_when_names_are_no_identifiers(tmp_path):
    nodes = [
        helper.make_node("Add", ["a/b:0", "1.x"], ["z:1"]),
        helper.make_node("Neg", ["1.x"], ["a.out"]),
    ]
    proto = model(nodes, [value("a/b:0", (3,)), value("1.x", ())], [value("z:1", (3,)), value("a.out", ())])
    compile_package(save(proto, tmp_path), tmp_path / "package")
    ones = np.ones(3, np.float32)
    result = tcl.load(tmp_path / "package")({"1.x": np.float32(2), "a/b:0": ones})
    assert list(result) == ["z:1", "a.out"]
    assert np.array_equal(result["z:1"], ones * 3) and result["a.out"] == -2 and result["a.out"].shape == ()


def test_results_belong_to_the_caller_when_they_are_inputs_or_constants_of_the_model(tmp_path):
    nodes = [helper.make_node("Identity", [name], [f"{name}.out"]) for name in ("x", "c")]
    nodes.append(helper.make_node("Neg", ["x"], ["n"]))
    outputs = [value("x.out", (3,)), value("c.out", (2,)), value("n", (3,))]
    constant = np.array([5, 7], np.float32)
    compile_package(
        save(model(nodes, [value("x", (3,))], outputs, {"c": constant}), tmp_path), tmp_path / "package"
    )
    package, x = tcl.load(tmp_path / "package"), np.arange(3, dtype=np.float32)
    first, second = package(x=x), package(x=x + 1)
    for result in first.values():
        result.fill(-1)
    third = package(x=x)
    for result, expected in ((second, x + 1), (third, x)):
        assert np.array_equal(result["x.out"], expected) and np.array_equal(result["n"], -expected)
        assert np.array_equal(result["c.out"], constant)
    assert np.array_equal(x, [0, 1, 2])


def test_package_refuses_indices_beyond_the_table_before_they_crash(tmp_path):
    table = np.eye(5, dtype=np.float32)
    node = helper.make_node("Gather", ["table", "ids"], ["y"])
    proto = model([node], [value("ids", (2,), 7)], [value("y", (2, 5))], {"table": table})
    compile_package(save(proto, tmp_path), tmp_path / "package")
    package = tcl.load(tmp_path / "package")
    assert np.array_equal(package(ids=np.array([4, -5]))["y"], table[[4, 0]])
    with pytest.raises(BadInput, match="indexes 5 entries"):
        package(ids=np.array([0, 5]))


def test_load_refuses_when_a_file_was_changed_or_removed(copy):
    library = copy / "model.so"
    library.write_bytes(library.read_bytes() + b"\0")
    with pytest.raises(BadInput, match="SHA-256"):
        tcl.load(copy)
    library.unlink()
    with pytest.raises(BadInput, match=r"lacks its file 'model\.so'"):
        tcl.load(copy)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tvm_version": "0.1.0"}, "compiled with TVM 0.1.0"),
        ({"format_version": 99}, "package format 99"),
        ({"inputs": [{"name": "x"}]}, "no package manifest"),
        ({"inputs": [{"name": "x", "shape": [2, 8], "dtype": None}]}, "no tensor has the dtype None"),
        ({"outputs": [{"name": "y", "shape": [2, -6], "dtype": "int8"}]}, "no tensor has the shape"),
        ({"inputs": [{"name": "x", "shape": [1 << 62], "dtype": "int8"}]}, "no tensor has the shape"),
        ({"files": {"model.so": "0", "../../etc/hostname": "0"}}, "SHA-256|outside"),
        ({"library": "../other.so"}, "does not list its program"),
        ({"files": {"model.so": "0", "\ud800": "0"}}, "files is"),
        ({"inputs": [{"name": "\ud800", "shape": [2, 8], "dtype": "float32"}]}, "no package manifest"),
        (
            {"inputs": [{"name": "x", "shape": [float("inf"), 8], "dtype": "float32"}]},
            "no tensor has the shape",
        ),
        ({"device": {"name": "d", "target": {}}}, 'needs a "kind"'),
        ({"device": {"name": "d", "target": {"kind": "llvm", "num-cores": float("inf")}}}, "num-cores"),
        ({"model": 5}, "model is '5'"),
        ({"values": 5}, "values is '5'"),
        ({"verification": [1]}, "verification is"),
        ({"verification": {"max_rel": "small"}}, "errors are no numbers"),
        ({"latency": 5}, "latency is '5'"),
        ({"latency": {"tuned": 5}}, "latency is"),
        ({"latency": {"tuned": {"median_seconds": 0}}}, "is no time"),
        ({"cost_model": {"name": "m"}}, "no name and version"),
        (
            {"tasks": [{"name": "t", "workload": "w", "weight": 1, "schedule": "tuned", "flops": "abc"}]},
            "flops",
        ),
    ],
)
def test_load_refuses_before_it_loads_the_program_when_the_manifest_is_wrong(copy, fields, expected):
    edit(copy, **fields)
    with pytest.raises(BadInput, match=expected):
        tcl.load(copy)


@pytest.mark.parametrize(
    ("fields", "feed", "expected"),
    [
        ({"inputs": []}, {}, "the program failed: .*expects 1 arguments"),
        (
            {"inputs": [{"name": "x", "shape": [2, 9], "dtype": "float32"}]},
            {"x": np.zeros((2, 9))},
            "failed: ",
        ),
        ({"outputs": []}, {"x": X}, "other outputs than the manifest lists"),
        ({"outputs": [{"name": "y", "shape": [6, 2], "dtype": "float32"}]}, {"x": X}, "other outputs"),
    ],
)
def test_run_fails_in_one_sentence_when_the_manifest_describes_another_program(copy, fields, feed, expected):
    edit(copy, **fields)
    package = tcl.load(copy)
    with pytest.raises(TclError, match=expected) as failed:
        package({name: array.astype(np.float32) for name, array in feed.items()})
    assert "\n" not in str(failed.value)


def test_load_refuses_when_the_cpu_is_too_weak(copy, monkeypatch):
    device = json.loads((copy / "tcl.json").read_text())["device"]
    edit(copy, device={**device, "facts": {"isa": "avx512"}})
    monkeypatch.setattr("tcl.devices.host._X86_LEVELS", ())
    with pytest.raises(BadInput, match="compiled for avx512"):
        tcl.load(copy)


@pytest.mark.parametrize("library", ["model.so", "model.txt"])
def test_load_refuses_when_the_program_is_no_library(copy, library):
    (copy / library).write_text("no library")
    edit(copy, library=library, files={library: sha256_file(copy / library)})
    with pytest.raises(BadInput, match="this is no program that TVM can load") as refused:
        tcl.load(copy)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", [None, "", "{", "[]", "null", "\udcff", "[" * 100_000, "1" * 5_000])
def test_load_refuses_when_there_is_no_manifest_or_it_is_damaged(tmp_path, text):
    if text is not None:
        (tmp_path / "tcl.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BadInput):
        tcl.load(tmp_path)


def test_load_needs_nothing_of_what_compiled_the_package(linear_package):
    code = """
import sys
for name in ("torch", "mlflow", "prefect", "dvc", "onnx", "onnxruntime", "pyarrow", "sklearn", "rich", "click"):
    sys.modules[name] = None
import numpy as np
import tcl
package = tcl.load(sys.argv[1])
print(package(x=np.ones((2, 8), np.float32))["y"].shape, package.threads)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(linear_package[0])], capture_output=True, text=True, check=True
    )
    cores = tcl.load(linear_package[0]).manifest.cores
    assert done.stdout == f"(2, 6) {cores}\n"
    assert done.stderr == ""


def test_load_and_run_leave_the_affinity_of_the_caller_as_it_is(linear_package):
    before = os.sched_getaffinity(0)
    tcl.load(linear_package[0])(x=X)
    assert os.sched_getaffinity(0) == before


def test_load_gives_the_program_the_threads_of_its_device(linear_package, copy):
    code = """
import sys
import tcl
package = tcl.load(sys.argv[1])
import tvm
print(package.threads, tvm.get_global_func("runtime.NumThreads")())
"""
    device = json.loads((copy / "tcl.json").read_text())["device"]
    edit(copy, device={**device, "target": {**device["target"], "num-cores": 1}})
    for folder, expected in ((copy, 1), (linear_package[0], tcl.load(linear_package[0]).threads)):
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
        )
        assert done.stdout == f"{expected} {expected}\n"
