"""Linking compiled programs into shared libraries, for this kind of machine or for another.

This machine's own go through its C compiler. For others LLVM's linker does, which needs neither their C library nor
root: what a program takes from there (`memcpy`, `expf`) is bound when it is loaded.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
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
        When no C compiler is installed or, for another kind of machine, no linker, or that has no ELF files.
    """
    if machine_of(target) == machine_of({}):
        _check_c_compiler()
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
    export(executable, path, None if machine_of(target) == machine_of({}) else _link)


def export(built: Any, path: Path, compile: Callable[..., None] | None = None) -> None:
    """Write what TVM has compiled to a file, by the C compiler unless another way is given.

    Raises
    ------
    BadInput
        When there is no C compiler.
    WorkFailed
        When the C compiler or linker fails.
    """
    if compile is None:
        _check_c_compiler()
    try:
        built.export_library(str(path), fcompile=compile)
    except (FileNotFoundError, RuntimeError) as error:  # TVM raises the latter for what the C compiler says
        title, *lines = str(error).strip().splitlines()
        raise WorkFailed(f"linking a compiled program failed: {(lines or [title])[0]}") from None


def _check_c_compiler() -> None:
    from tvm.support import cc

    if cc.get_cc() is None:
        raise BadInput("compiling needs a C compiler: install gcc or clang, or set CXX to one")


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
