"""Programs for other kinds of machines: linked here, with the right ELF header and names of libraries."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from onnx_models import linear_model, save

import tcl
from tcl.compiler.bootstrap import import_tvm

tvm = import_tvm()

from tcl.compiler.frontend.model import import_relax, read_onnx  # noqa: E402
from tcl.compiler.lowering.pipeline import lower  # noqa: E402
from tcl.compiler.packaging.linking import check_linker  # noqa: E402
from tcl.compiler.packaging.manifest import Manifest  # noqa: E402
from tcl.compiler.packaging.package import write_package  # noqa: E402
from tcl.compiler.programs.build import build_executable  # noqa: E402
from tcl.devices.device import Device  # noqa: E402
from tcl.errors import BadInput  # noqa: E402

SHARED_OBJECT = 3
BOARDS = {
    "aarch64-linux-gnu": ({"mcpu": "cortex-a72"}, 183),
    "riscv64-unknown-linux-gnu": ({"mcpu": "generic-rv64", "mattr": ["+m", "+a", "+f", "+d", "+c"]}, 243),
}
"""Triple → the rest of a target, and the number of the machine in an ELF header."""


@pytest.fixture(scope="module", params=BOARDS)
def board(request: Any, linear_package: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A package for a board, and the machine that its program must be for."""
    extra, machine = BOARDS[request.param]
    target = {"kind": "llvm", "mtriple": request.param, "num-cores": 4, **extra}
    folder = tmp_path_factory.mktemp("board")
    module = import_relax(read_onnx(save(linear_model(), folder)))
    made = tvm.target.Target(target)
    manifest = Manifest.read(linear_package[0])
    manifest = replace(manifest, device=Device("board", target))
    write_package(folder / "package", build_executable(lower(module, made), made), manifest)
    return folder / "package", machine


def test_package_holds_a_shared_object_of_the_machine_when_compiled_for_another(board: tuple[Path, int]):
    folder, machine = board
    content = (folder / Manifest.read(folder).library).read_bytes()
    assert content[:6] == b"\x7fELF\x02\x01"  # 64 bits, little-endian
    assert struct.unpack_from("<HH", content, 16) == (SHARED_OBJECT, machine)
    assert b"libm.so.6\0" in content and b"libc.so.6\0" in content
    assert b"__tvm_ffi" in content  # the functions that TVM's runtime looks up


def test_load_refuses_a_package_of_another_machine(board: tuple[Path, int]):
    with pytest.raises(BadInput, match="copy the package to the device"):
        tcl.load(board[0])


def test_check_linker_refuses_when_the_system_is_not_linux_or_no_linker_is_installed(monkeypatch):
    with pytest.raises(BadInput, match="linux"):
        check_linker({"kind": "llvm", "mtriple": "arm64-apple-darwin"})
    monkeypatch.setattr("tcl.compiler.packaging.linking.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BadInput, match=r"pip install '\.\[cross\]'"):
        check_linker({"kind": "llvm", "mtriple": "aarch64-linux-gnu"})


def test_check_linker_refuses_when_no_c_compiler_is_installed(monkeypatch, tmp_path):
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="needs a C compiler"):
        check_linker({"kind": "llvm"})
