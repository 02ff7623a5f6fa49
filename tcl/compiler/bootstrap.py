"""The one way this project imports TVM: fast, and without dragging torch in.

A plain ``import tvm`` imports torch, and the first ``TuneContext`` imports the tensor intrinsics of every
target that TVM knows: a minute of parsing, because TVMScript reads the source of the whole call stack for
each intrinsic. Here torch is hidden for the length of the import, the call stack is read cheaply, and only
the intrinsics of the wanted target are parsed.
"""

from __future__ import annotations

import importlib
import inspect
import linecache
import os
import platform
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import FrameType, ModuleType
from typing import Any

_INTRINSICS = "tvm.s_tir.tensor_intrin"
_LOCK = threading.Lock()
_SPINS = "2000"
"""How often a thread of TVM's pool yields while it waits for work, before it sleeps: about a millisecond, more than
lies between two kernels. With TVM's own 300,000, on a busy machine, where each yield gives a time slice away, a process
takes minutes to end."""


def import_tvm(target: Mapping[str, Any] | None = None) -> ModuleType:
    """Import TVM with the tensor intrinsics of one target family; cheap to call again.

    Torch stays importable: a process may use both, in either order.

    Parameters
    ----------
    target : mapping, optional
        TVM target as JSON, such as ``{"kind": "llvm", "mcpu": "znver4", "num-cores": 2}``.
        Default: this host's CPU.

    Returns
    -------
    module
        The module ``tvm``.
    """
    family = intrinsic_family(target or {"kind": "llvm"})
    with _LOCK:
        os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", _SPINS)
        if "tvm" not in sys.modules:
            with _hidden("torch"), _cheap_stack():
                importlib.import_module("tvm")
        _register_lowerings()  # also where somebody else has imported TVM before
        if _INTRINSICS not in sys.modules:
            _register_bare_package(_INTRINSICS)
        if family is not None and f"{_INTRINSICS}.{family}" not in sys.modules:
            with _cheap_stack():
                importlib.import_module(f"{_INTRINSICS}.{family}")
    return sys.modules["tvm"]


def intrinsic_family(target: Mapping[str, Any]) -> str | None:
    """Name of a target's intrinsics module (``"x86"``, ``"arm_cpu"``, ``"cuda"``, ...) or None."""
    kind = str(target["kind"])
    if kind != "llvm":
        return kind if kind in ("cuda", "rocm", "metal", "hexagon") else None
    machine = str(target.get("mtriple") or platform.machine()).split("-")[0].lower()
    if machine.startswith(("aarch64", "arm")):
        return "arm_cpu"
    if machine.startswith("riscv"):
        return "riscv_cpu"
    return "x86" if machine in ("x86_64", "amd64", "i386", "i686") else None


@cache
def _register_lowerings() -> None:
    for module in ("intrinsics", "prefetch"):
        importlib.import_module(f"tcl.compiler.programs.{module}").register()


def _register_bare_package(name: str) -> None:
    """Put package `name` into sys.modules without running its ``__init__``; its submodules import as ever."""
    parent, _, child = name.rpartition(".")
    package = ModuleType(name)
    package.__path__ = [f"{folder}/{child}" for folder in sys.modules[parent].__path__]
    sys.modules[name] = package
    setattr(sys.modules[parent], child, package)


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Make ``import name`` fail inside the block, as if it were not installed."""
    before = sys.modules.get(name)
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before


@contextmanager
def _cheap_stack() -> Iterator[None]:
    """Let ``inspect.stack`` read just each frame's current line: TVMScript looks at nothing else."""
    original = inspect.stack
    inspect.stack = _stack
    try:
        yield
    finally:
        inspect.stack = original


def _stack(context: int = 1) -> list[inspect.FrameInfo]:
    frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code, line = frame.f_code, frame.f_lineno
        source = linecache.getline(code.co_filename, line)
        frames.append(
            inspect.FrameInfo(frame, code.co_filename, line, code.co_name, [source] if source else None, 0)
        )
        frame = frame.f_back
    return frames
