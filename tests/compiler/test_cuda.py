"""CUDA without a GPU: targets by name, design space, generated code, and refusals. With one: `tests/gpu/check.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_models import linear_model, save

from tcl.compiler.bootstrap import import_tvm

tvm = import_tvm()

from tcl.compiler.frontend.model import import_relax, read_onnx  # noqa: E402
from tcl.compiler.lowering.pipeline import lower  # noqa: E402
from tcl.compiler.measuring.reference import gpu_reference_module  # noqa: E402
from tcl.compiler.programs.build import apply_schedules, build_executable, schedule_program  # noqa: E402
from tcl.compiler.programs.tasks import design_space, extract_tasks  # noqa: E402
from tcl.compiler.targets import check_compiler, describe, target_of  # noqa: E402
from tcl.devices.device import Device  # noqa: E402
from tcl.devices.host import check_reachable  # noqa: E402
from tcl.errors import BadInput, WorkFailed  # noqa: E402
from tcl.features.device import device_descriptor  # noqa: E402

H100 = "nvidia/nvidia-h100"


@pytest.fixture(scope="module")
def target() -> dict[str, Any]:
    return describe(H100)[0]


def sources(module: Any) -> str:
    """The CUDA code within a built module."""
    found = [imported.inspect_source() for imported in module.imports if imported.kind == "cuda"]
    return "\n".join(found) + "\n".join(sources(imported) for imported in module.imports)


def test_describe_expands_the_name_of_a_gpu_into_what_the_descriptor_reads(target: dict[str, Any]):
    assert (target["kind"], target["arch"], target["thread_warp_size"]) == ("cuda", "sm_90a", 32)
    facts = describe(H100)[1]
    gpu, cpu = Device("h100", target, facts=facts), Device("cpu", {"kind": "llvm", "num-cores": 2})
    descriptor = device_descriptor(gpu)
    assert descriptor[:3].tolist() == [0, 1, 1]  # no CPU, a GPU, NVIDIA's
    assert np.count_nonzero(descriptor) > np.count_nonzero(device_descriptor(cpu))


@pytest.mark.parametrize("name", ["nonsense", "llvm"])
def test_describe_refuses_when_the_name_is_no_gpu(name: str):
    with pytest.raises(BadInput, match=name):
        describe(name)


def test_lowered_program_becomes_cuda_code_tuned_and_untuned(target: dict[str, Any], tmp_path: Path):
    made = target_of(target)
    lowered = lower(import_relax(read_onnx(save(linear_model(256), tmp_path))), made)
    task = extract_tasks(lowered)[0]
    space = design_space(task, made)
    valid = []
    for population in space.sample(96, np.random.default_rng(0)):
        for row in range(len(population)):
            trace = space.trace(population, row)
            try:
                schedule_program(task.mod, made, trace)
            except WorkFailed:  # too many threads, or too much shared memory
                continue
            valid.append(trace)
    assert valid
    tuned = apply_schedules(lowered, made, {task.functions[0]: valid[0]})
    for module in (lowered, tuned):
        code = sources(build_executable(module, made).mod)
        assert "__global__" in code and "threadIdx.x" in code
    assert "__shared__" in sources(build_executable(tuned, made).mod)


def test_reference_kernel_of_gpus_is_cuda_code(target: dict[str, Any]):
    code = sources(tvm.build(gpu_reference_module(), target=target_of(target)))
    assert "__global__" in code and "blockIdx.x" in code


def test_check_compiler_refuses_cuda_when_its_compiler_is_missing(target, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    monkeypatch.setattr("tcl.compiler.targets.find_spec", lambda name: None)
    with pytest.raises(BadInput, match="nvcc on PATH"):
        check_compiler(target)


def test_check_reachable_refuses_a_gpu_when_this_machine_has_none(target, monkeypatch):
    monkeypatch.setattr("tcl.devices.host.has_gpu", lambda: False)
    with pytest.raises(BadInput, match="this machine has none"):
        check_reachable(Device("h100", target))
