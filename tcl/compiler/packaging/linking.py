"""Linking compiled programs into shared libraries, for this kind of machine or for another.

This machine's own go through its C compiler. For others LLVM's linker does, which needs neither their C library nor
root: what a program takes from there (`memcpy`, `expf`) is bound when it is loaded.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tcl.devices.host import machine_of
from tcl.errors import BadInput, WorkFailed

_C_LIBRARIES = ("libm.so.6", "libc.so.6")


def check_linker(target: Mapping[str, Any]) -> None:
    """Refuse a target that nothing here can link for; call it before the work.

    Raises
    ------
    BadInput
        When the target is another kind of machine and no linker is installed, or it has no ELF files.
    """
    if machine_of(target) == machine_of({}):
        return
    triple = str(target["mtriple"])
    if "linux" not in triple or "android" in triple:
        raise BadInput(
            f"the target {triple} has not Linux's program files; devices of another machine need linux"
        )
    _linker()


def export_library(executable: Any, path: Path, target: Mapping[str, Any]) -> None:
    """Write an executable of ``relax.build`` as a shared library for the target's machine.

    Raises
    ------
    BadInput
        As `check_linker`.
    WorkFailed
        When linking fails.
    """
    check_linker(target)
    if machine_of(target) == machine_of({}):
        executable.export_library(str(path))
    else:
        executable.export_library(str(path), fcompile=_link)


def _link(output: str, objects: Sequence[str], **_: Any) -> None:
    """Link objects of any machine; the library asks for the C library's by name only."""
    with tempfile.TemporaryDirectory(prefix="tcl-link-") as folder:
        stubs = []
        for name in _C_LIBRARIES:
            stubs.append(str(Path(folder, name)))
            # What a stub defines never counts: the objects beside it define the same.
            _run(["-shared", "-soname", name, "-o", stubs[-1], *objects])
        _run(["-shared", "--no-as-needed", "-o", output, *objects, *stubs])


def _run(arguments: list[str]) -> None:
    done = subprocess.run([*_linker(), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise WorkFailed(f"linking for another machine failed: {done.stderr.strip() or 'no message'}")


def _linker() -> list[str]:
    if (path := shutil.which("ld.lld")) is not None:
        return [path]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "ld.lld"]
    raise BadInput(
        "compiling for another kind of machine needs LLVM's linker: pip install '.[cross]' in TCL's source folder, or"
        " install lld with ld.lld on PATH"
    )
