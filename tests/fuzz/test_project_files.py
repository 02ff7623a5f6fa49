"""Damaged device files, settings and packages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.conftest import FUZZED, Folder
from fuzz.mutations import TEXTS, VALUES, spoilt_bytes, spoilt_json
from tcl.compiler.frontend.inputs import random_inputs
from tcl.compiler.running.loader import load
from tcl.devices.device import Device, parse_device
from tcl.devices.store import DeviceStore
from tcl.errors import BadInput
from tcl.features.device import device_descriptor
from tcl.files import sha256_file
from tcl.settings import load_settings

DEVICE = {
    "name": "board",
    "target": {"kind": "llvm", "mcpu": "cortex-a72", "num-cores": 4},
    "rpc": {"host": "tracker", "port": 9190, "key": "board"},
    "facts": {"cpu_model": "x", "isa": "neon", "cores": 4, "l1d_bytes": 32768, "vector_bits": 128},
}
SETTINGS = b"[measure]\nfraction = 0.1\npool_size = 512\n\n[dvc]\ngit_commit = false\nremote = 'store'\n"


def read_devices(folder: Folder, content: bytes) -> None:
    devices = folder.path / "devices"
    devices.mkdir(exist_ok=True)
    (devices / "board.json").write_bytes(content)
    with folder.guarded():
        for device in DeviceStore(devices).list():
            device_descriptor(device)
            assert device.num_cores > 0


@FUZZED
@given(spoilt_json(DEVICE))
def test_device_file_is_read_or_refused_when_its_values_are_wrong(folder: Folder, value: Any) -> None:
    read_devices(folder, json.dumps(value).encode())


@FUZZED
@given(spoilt_bytes(json.dumps(DEVICE).encode()))
def test_device_file_is_read_or_refused_when_bytes_are_damaged(folder: Folder, content: bytes) -> None:
    read_devices(folder, content)


@FUZZED
@given(TEXTS, TEXTS | VALUES.map(json.dumps), st.none() | TEXTS, st.none() | TEXTS)
def test_device_is_made_or_refused_when_the_command_line_is_wrong(
    folder: Folder, name: str, target: str, rpc: str | None, key: str | None
) -> None:
    with folder.guarded():
        device = parse_device(name, target, rpc, key)
        DeviceStore(folder.path / "added").add(device)
        assert Device.from_json(device.to_json()) == device


@FUZZED
@given(spoilt_bytes(SETTINGS), st.dictionaries(st.sampled_from(["TCL_MEASURE_FRACTION", "TCL_X"]), TEXTS))
def test_settings_are_read_or_refused_when_they_are_wrong(
    folder: Folder, content: bytes, variables: dict[str, str]
) -> None:
    (folder.path / "tcl.toml").write_bytes(content)
    with folder.guarded():
        load_settings(folder.path, environ=variables)


@pytest.fixture(scope="module")
def package(folder: Folder) -> Path:
    """A right package; tests copy it."""
    from onnx_models import compile_package, linear_model, save

    compile_package(save(linear_model(), folder.path), folder.path / "right")
    load(folder.path / "right")  # TVM is imported before the clock runs
    return folder.path / "right"


def copy_of(package: Path) -> Path:
    copy = package.with_name("package")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(package, copy)
    return copy


@FUZZED
@given(data=st.data())
def test_package_runs_or_is_refused_when_its_manifest_is_edited(
    folder: Folder, package: Path, data: st.DataObject
) -> None:
    copy = copy_of(package)
    right = json.loads((copy / "tcl.json").read_text())
    (copy / "tcl.json").write_text(json.dumps(data.draw(spoilt_json(right))))
    with folder.guarded():
        loaded = load(copy)
        loaded(random_inputs(loaded.inputs, 0))


@FUZZED
@given(data=st.data())
def test_package_is_refused_when_its_program_is_changed(
    folder: Folder, package: Path, data: st.DataObject
) -> None:
    copy = copy_of(package)
    right = (copy / "model.so").read_bytes()
    wrong = data.draw(spoilt_bytes(right))
    (copy / "model.so").write_bytes(wrong)
    if wrong != right:
        with folder.guarded(), pytest.raises(BadInput, match="SHA-256"):
            load(copy)


@FUZZED
@given(st.sampled_from(["../outside.so", "/OUTSIDE", "link.so"]))
def test_package_is_refused_when_its_program_lies_elsewhere(folder: Folder, package: Path, name: str) -> None:
    copy = copy_of(package)
    outside = shutil.copy(copy / "model.so", copy.parent / "outside.so")
    (copy / "link.so").symlink_to(outside)
    manifest = json.loads((copy / "tcl.json").read_text())
    manifest["library"] = name.replace("/OUTSIDE", str(outside))
    manifest["files"] = {manifest["library"]: sha256_file(outside)}
    (copy / "tcl.json").write_text(json.dumps(manifest))
    with folder.guarded(), pytest.raises(BadInput, match="outside the package"):
        load(copy)


def test_package_is_right_before_it_is_spoilt(package: Path) -> None:
    loaded = load(package)
    (result,) = loaded(random_inputs(loaded.inputs, 0)).values()
    assert np.isfinite(result).all()
