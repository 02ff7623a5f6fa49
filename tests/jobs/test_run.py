"""Running and timing a package: what is given to it, and what it was compiled from, may be anything."""

from __future__ import annotations

import io
import json
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tcl.devices.host import detect_host
from tcl.errors import BadInput
from tcl.jobs.run import benchmark_package, run_package
from tcl.jobs.up import UpArguments, current_package

sys.path.insert(0, str(Path(__file__).parent.parent / "compiler"))  # its small ONNX models
HEADER = np.lib.format.magic(1, 0)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from onnx_models import compile_package, linear_model, save

    folder = tmp_path_factory.mktemp("original")
    compile_package(save(linear_model(), folder), folder / "package")
    return folder


@pytest.fixture
def package(original: Path, tmp_path: Path) -> Path:
    """A package, with its model beside it; tests may change both."""
    shutil.copytree(original, tmp_path / "copy")
    edit(tmp_path / "copy/package", model=str(tmp_path / "copy/model.onnx"))
    return tmp_path / "copy/package"


def edit(folder: Path, **fields: object) -> None:
    path = folder / "tcl.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def archive(member: bytes, compression: int = zipfile.ZIP_STORED) -> bytearray:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as zipped:
        zipped.writestr("x.npy", member)
    return bytearray(buffer.getvalue())


def array_header(text: str) -> bytes:
    return HEADER + len(text).to_bytes(2, "little") + text.encode()


def damaged_deflate() -> bytes:
    content = archive(bytes(1000), zipfile.ZIP_DEFLATED)
    content[35:40] = b"\xff" * 5
    return bytes(content)


def changed(offsets: dict[int, int]) -> bytes:
    """An archive with other numbers in the header of its member, and in the list at its end."""
    content = archive(bytes(10))
    end = content.index(b"PK\x01\x02")
    for offset, number in offsets.items():
        content[offset] = content[end + offset + 2] = number
    return bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a,b\n1,2\n",
        damaged_deflate(),
        bytes(archive(array_header("{'descr': '<f4', 'fortran_order': False, 'shape': (10**9, 10**9), }\n"))),
        bytes(archive(array_header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10**13},), }}\n"))),
        bytes(archive(array_header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10**30},), }}\n"))),
        bytes(archive(array_header("{'descr': '<f4', 'shape': ("))),
        changed({6: 1}),  # encrypted
        changed({8: 99}),  # compressed in another way
    ],
    ids=[
        "empty",
        "text",
        "deflate",
        "expression",
        "large",
        "overflow",
        "cut",
        "encrypted",
        "method",
    ],
)
def test_run_refuses_in_one_sentence_when_the_inputs_are_damaged(
    package: Path, tmp_path: Path, content: bytes
):
    (tmp_path / "in.npz").write_bytes(content)
    with pytest.raises(BadInput, match=r"in\.npz: cannot be read as \.npz arrays \(damaged") as refused:
        run_package(package, tmp_path / "in.npz", None)
    assert "\n" not in str(refused.value) and "pickle" not in str(refused.value)


@pytest.mark.parametrize(
    ("make", "message"), [(lambda path: None, "no such file"), (Path.mkdir, "is a directory")]
)
def test_run_says_why_when_the_inputs_cannot_be_opened(
    package: Path, tmp_path: Path, make: Callable[[Path], None], message: str
):
    make(tmp_path / "in.npz")
    with pytest.raises(BadInput, match=message):
        run_package(package, tmp_path / "in.npz", None)


def test_run_refuses_when_no_file_can_be_made_where_the_outputs_go(package: Path):
    with pytest.raises(BadInput, match="--output"):
        run_package(package, None, Path("/proc/out.npz"))


@pytest.mark.parametrize("content", [b"no model any more", None])
def test_benchmark_times_the_package_alone_when_the_model_has_changed(package: Path, content: bytes | None):
    model = package.parent / "model.onnx"
    if content is None:  # a model with other inputs
        from onnx_models import linear_model, save

        save(linear_model(rows=3), package.parent)
    else:
        model.write_bytes(content)
    report = benchmark_package(package, rounds=1)
    assert list(report.latencies) == ["tcl"]
    assert report.note == f"{model} has changed since it was compiled, so onnxruntime was not timed"


def test_benchmark_refuses_a_package_of_another_machine(package: Path):
    device = json.loads((package / "tcl.json").read_text())["device"]
    edit(package, device={**device, "target": {**device["target"], "mtriple": "aarch64-linux-gnu"}})
    with pytest.raises(BadInput, match="compiled for aarch64, and this machine is"):
        benchmark_package(package, rounds=1)


def test_up_compiles_anew_when_the_package_is_damaged(package: Path, settings, capsys):
    settings = replace(settings, tuning=replace(settings.tuning, trials=7))
    edit(package, trials=7)
    arguments = UpArguments(str(package.parent / "model.onnx"), str(package))
    current = current_package(arguments, detect_host("host"), settings)
    assert current is not None and current.manifest.trials == 7
    with (package / "model.so").open("ab") as program:
        program.write(b"\0")
    assert current_package(arguments, detect_host("host"), settings) is None
    assert "SHA-256 differs" in capsys.readouterr().err
