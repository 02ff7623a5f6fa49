"""Packages on disk: whole or absent, and everything in the manifest."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx_models import compile_package, linear_model, save

from tcl.compiler.bootstrap import import_tvm
from tcl.compiler.frontend.model import import_relax, read_onnx
from tcl.compiler.packaging.manifest import Manifest, TaskRow
from tcl.compiler.packaging.package import check_target, write_package
from tcl.compiler.running.loader import load
from tcl.compiler.tensors import TensorSpec
from tcl.devices.device import Device
from tcl.errors import BadInput, WorkFailed
from tcl.files import sha256_file


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def executable():
    tvm = import_tvm()
    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})

    def build(folder: Path):
        return tvm.relax.build(import_relax(read_onnx(save(linear_model(), folder))), target)

    return build


def test_write_package_lists_every_file_with_its_checksum(linear_package, tmp_path, executable):
    records = tmp_path / "database"
    records.mkdir()
    (records / "database_workload.json").write_text("[]\n")
    manifest = Manifest.read(linear_package[0])
    written = write_package(tmp_path / "package", executable(tmp_path), manifest, records)
    assert set(written.files) == {"model.so", "records/database_workload.json"}
    for name, digest in written.files.items():
        assert sha256_file(tmp_path / "package" / name) == digest
    assert Manifest.read(tmp_path / "package") == written


def test_write_package_writes_what_complete_returns_and_nothing_when_it_fails(
    linear_package, tmp_path, executable
):
    program, manifest = executable(tmp_path), Manifest.read(linear_package[0])
    target = tmp_path / "package"

    def verified(folder: Path, given: Manifest) -> Manifest:
        assert not target.exists() and load(folder).manifest == given
        return replace(given, verification={"max_abs": 0.0})

    write_package(target, program, manifest, complete=verified)
    assert Manifest.read(target).verification == {"max_abs": 0.0}
    before = content(target)

    def failing(folder: Path, given: Manifest) -> Manifest:
        raise WorkFailed("the compiled model disagrees")

    with pytest.raises(WorkFailed):
        write_package(target, program, manifest, complete=failing)
    assert content(target) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "package"]


def test_check_target_refuses_when_folder_holds_something_else(tmp_path):
    check_target(tmp_path)
    check_target(tmp_path / "new")
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match=r"holds 'thesis\.txt', which is no part of a package"):
        check_target(tmp_path)
    with pytest.raises(BadInput, match="file"):
        check_target(tmp_path / "thesis.txt")


@pytest.mark.parametrize(
    ("manifest", "files", "other"),
    [
        (None, ["src/thesis.txt"], r"src/thesis\.txt"),  # a package and something else
        (None, ["records/mine.json"], r"records/mine\.json"),
        ("{}", [], None),  # what is left of a package
        ("{}", ["records/database_workload.json"], None),
        ("{}", ["src/thesis.txt"], r"src/thesis\.txt"),
    ],
)
def test_check_target_refuses_when_a_package_holds_a_file_of_others(
    linear_package, tmp_path, manifest, files, other
):
    folder = tmp_path / "package"
    shutil.copytree(linear_package[0], folder)
    if manifest is not None:
        (folder / "tcl.json").write_text(manifest)
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    with pytest.raises(BadInput, match=other) if other else contextlib.nullcontext():
        check_target(folder)


def test_check_target_refuses_when_only_the_name_of_a_file_is_a_manifest_s(tmp_path):
    (tmp_path / "tcl.json").write_text("{}")
    with pytest.raises(BadInput, match=r"tcl\.json"):
        check_target(tmp_path)


@pytest.mark.parametrize("target", ["/proc/new/package", "package\udcff"])
def test_check_target_refuses_when_no_package_can_be_written_there(tmp_path, target):
    with pytest.raises(BadInput, match="-o"):
        check_target(tmp_path / target)


names = st.text(min_size=1, max_size=20)
specs = st.builds(
    TensorSpec,
    name=names,
    shape=st.lists(st.integers(1, 64), max_size=5).map(tuple),
    dtype=st.sampled_from(["float32", "float16", "int64", "bool"]),
    high=st.none() | st.integers(1, 10**6),
)
rows = st.builds(
    TaskRow,
    name=names,
    workload=names,
    weight=st.integers(1, 50),
    schedule=st.sampled_from(["tuned", "default"]),
    predicted=st.none() | st.floats(-10, 10),
    measured_seconds=st.none() | st.floats(0, 1),
    trials=st.integers(0, 64),
    note=names,
)
manifests = st.builds(
    Manifest,
    model=names,
    onnx_sha256=names,
    device=st.just(Device("d", {"kind": "llvm", "num-cores": 2})),
    inputs=st.lists(specs, max_size=3).map(tuple),
    outputs=st.lists(specs, min_size=1, max_size=3).map(tuple),
    tvm_version=names,
    values=st.dictionaries(names, st.lists(st.integers(), max_size=3), max_size=2),
    cost_model=st.none() | st.just({"name": "tcl-cost-d", "version": 3}),
    data_hash=st.none() | names,
    tasks=st.lists(rows, max_size=3).map(tuple),
    files=st.just({"model.so": "0" * 64}),
)


@given(manifests)
def test_manifest_is_the_same_when_written_as_json_and_read(manifest):
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest


@given(st.recursive(st.none() | st.integers() | names, lambda v: st.lists(v) | st.dictionaries(names, v)))
def test_manifest_refuses_any_other_json(value):
    with pytest.raises(BadInput):
        Manifest.from_json(value)


@pytest.mark.parametrize("field", ["inputs", "outputs", "device", "files", "tvm_version", "format_version"])
def test_manifest_refuses_when_a_field_is_missing(linear_package, field):
    value = Manifest.read(linear_package[0]).to_json()
    del value[field]
    with pytest.raises(BadInput, match="compile the model again"):
        Manifest.from_json(value)


def test_compiled_program_gives_the_same_results_when_written_twice(linear_package, tmp_path):
    compile_package(save(linear_model(), tmp_path), tmp_path / "package")
    feed = {"x": np.ones((2, 8), np.float32)}
    assert np.array_equal(load(tmp_path / "package")(feed)["y"], load(linear_package[0])(feed)["y"])
