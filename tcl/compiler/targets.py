"""TVM targets: from what a user writes to a full description, and what a machine needs to compile for one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tcl.compiler.bootstrap import import_tvm
from tcl.compiler.packaging.linking import check_linker
from tcl.devices.host import is_gpu
from tcl.errors import BadInput


def target_of(target: Mapping[str, Any]) -> Any:
    """Return the ``tvm.target.Target`` of a device's JSON description; a GPU's host code is for this machine.

    Raises
    ------
    BadInput
        When TVM knows no such target, or LLVM no such CPU.
    """
    tvm = import_tvm(target)
    made = _make(tvm, dict(target) | ({"host": {"kind": "llvm"}} if is_gpu(target) else {}))
    if target["kind"] == "llvm" and "mcpu" in target:
        from tvm.target.codegen import llvm_get_system_triple, llvm_is_valid_cpu

        triple = target.get("mtriple") or llvm_get_system_triple()
        if not llvm_is_valid_cpu(target["mcpu"], triple):
            raise BadInput(f"LLVM knows no CPU {target['mcpu']!r} (mcpu) of machines {triple}")
    return made


def _make(tvm: Any, described: Any) -> Any:
    try:
        return tvm.target.Target(described)
    except Exception as error:  # TVM raises its own classes
        lines = str(error).strip().splitlines()
        reason = lines[-1].split(" Target creation from")[0].rstrip(".") if lines else type(error).__name__
        raise BadInput(f"TVM knows no target {described!r}: {reason}") from None


def device_of(target: Mapping[str, Any]) -> Any:
    """Return the TVM device on this machine that a target's programs run on."""
    tvm = import_tvm(target)
    return tvm.cuda(0) if is_gpu(target) else tvm.cpu()


def check_compiler(target: Mapping[str, Any]) -> None:
    """Refuse a target that this machine lacks the tools for; call it before the work.

    Raises
    ------
    BadInput
        When a linker for another kind of machine is missing, or a compiler for CUDA.
    """
    if not is_gpu(target):
        check_linker(target)
        return
    root = Path(os.environ.get("CUDA_PATH", "/usr/local/cuda"))
    if shutil.which("nvcc") is not None or (root / "bin" / "nvcc").exists():
        os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")
    elif find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        raise BadInput(
            "compiling for CUDA needs NVIDIA's compiler: install the CUDA toolkit (nvcc on PATH, or CUDA_PATH), or"
            " cuda-bindings with NVRTC"
        )


def describe(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Expand a target's name, such as ``cuda`` or ``nvidia/nvidia-h100``.

    Returns
    -------
    (dict, dict)
        The target as JSON, and the facts about the GPU: those that the name implies, and those of the GPU in this
        machine where it has one of this architecture.

    Raises
    ------
    BadInput
        When TVM knows no such target, or it is neither CUDA nor LLVM.
    """
    tvm = import_tvm({"kind": "cuda"})
    gpu = tvm.cuda(0)
    present = bool(gpu.exist)
    here = {"kind": "cuda", "arch": f"sm_{gpu.compute_version.replace('.', '')}"} if present else {}
    made = _make(tvm, here if text == "cuda" and present else text)
    target = {"kind": str(made.kind.name), **{str(key): value for key, value in made.attrs.items()}}
    if target["kind"] != "cuda":
        raise BadInput(f"{text!r} is a target of kind {target['kind']}; write other kinds than cuda as JSON")
    if text == "cuda" and not present:
        raise BadInput(
            "this machine has no NVIDIA GPU to ask; name it, for example --target nvidia/nvidia-h100"
        )
    facts: dict[str, Any] = {"isa": "cuda"}
    if "l2_cache_size_bytes" in target:
        facts["l2_bytes"] = target["l2_cache_size_bytes"]
    if present and target.get("arch", "").rstrip("a") == here["arch"]:
        facts |= {
            "gpu_model": str(gpu.device_name),
            "sm_count": int(gpu.multi_processor_count),
            "clock_hz": int(gpu.max_clock_rate) * 1000,
        }
    return target, facts
