"""Lowering to blocked, fused programs, their tasks and spaces, and executables from traces."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm_ffi
from onnx import helper
from onnx_models import model, save, value

from tcl.compiler.bootstrap import import_tvm

tvm = import_tvm()

from tcl.compiler.frontend.model import import_relax, read_onnx  # noqa: E402
from tcl.compiler.lowering.layout import channel_block, conv2d_blocks  # noqa: E402
from tcl.compiler.lowering.pipeline import lower  # noqa: E402
from tcl.compiler.programs.build import apply_schedules, build_executable, schedule_program  # noqa: E402
from tcl.compiler.programs.tasks import design_space, extract_tasks, program_of  # noqa: E402
from tcl.errors import WorkFailed  # noqa: E402

TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})


def convolution(
    name: str,
    source: str,
    result: str,
    weights: dict[str, np.ndarray],
    shape: tuple[int, ...],
    **attributes: Any,
) -> list[onnx.NodeProto]:
    """A convolution with bias and ReLU, its weights added to `weights`."""
    rng = np.random.default_rng(len(weights))
    weights[f"{name}.w"] = (rng.standard_normal(shape) * 0.2).astype(np.float32)
    weights[f"{name}.b"] = rng.standard_normal(shape[0]).astype(np.float32)
    conv = helper.make_node(
        "Conv", [source, f"{name}.w", f"{name}.b"], [f"{name}.y"], name=name, **attributes
    )
    return [conv, helper.make_node("Relu", [f"{name}.y"], [result])]


def mixed_network() -> onnx.ModelProto:
    """Plain, strided, depthwise and grouped convolutions, pools, a concatenation, a residual and a gate."""
    weights: dict[str, np.ndarray] = {}
    nodes = [
        *convolution("stem", "x", "a", weights, (32, 3, 3, 3), pads=[1] * 4, strides=[2, 2]),
        *convolution("point", "a", "b", weights, (48, 32, 1, 1)),
        *convolution("depth", "b", "c", weights, (48, 1, 3, 3), pads=[1] * 4, group=48),
        helper.make_node("Add", ["b", "c"], ["residual"]),
        *convolution("group", "residual", "d", weights, (48, 12, 3, 3), pads=[1] * 4, group=4),
        *convolution("wide", "residual", "e", weights, (16, 48, 3, 3), pads=[1] * 4),
        helper.make_node("Concat", ["d", "e"], ["joined"], axis=1),
        helper.make_node(
            "MaxPool", ["joined"], ["pooled"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4
        ),
        helper.make_node("GlobalAveragePool", ["pooled"], ["mean"]),
        helper.make_node("Sigmoid", ["mean"], ["gate"]),
        helper.make_node("Mul", ["pooled", "gate"], ["gated"]),
        helper.make_node("AveragePool", ["gated"], ["averaged"], kernel_shape=[2, 2], strides=[2, 2]),
        *convolution("odd", "averaged", "f", weights, (7, 64, 1, 1)),
        helper.make_node("Transpose", ["f"], ["y"], perm=[0, 2, 3, 1]),
    ]
    return model(nodes, [value("x", (1, 3, 32, 32))], [value("y", (1, 4, 4, 7))], weights)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """The mixed network: its file, the model as read, and its lowered module."""
    path = save(mixed_network(), tmp_path_factory.mktemp("mixed"))
    read = read_onnx(path)
    return path, read, lower(import_relax(read), TARGET)


def first_valid(task: Any, candidates: list[str]) -> str:
    """The first candidate that post-processing does not reject."""
    for trace in candidates:
        try:
            schedule_program(task.mod, TARGET, trace)
        except WorkFailed:
            continue
        return trace
    raise AssertionError(f"no valid candidate of {task.workload.name}")


def run(executable: Any, *arrays: np.ndarray) -> np.ndarray:
    machine = tvm.relax.VirtualMachine(executable, tvm.cpu())
    return machine["main"](*[tvm.runtime.tensor(array) for array in arrays]).numpy()


def expected(path: Path, **inputs: np.ndarray) -> np.ndarray:
    return onnxruntime.InferenceSession(str(path)).run(None, inputs)[0]


def test_channel_block_divides_and_fills_vectors_where_it_can() -> None:
    assert [channel_block(c) for c in (64, 24, 10, 7, 13, 3, 1000)] == [16, 8, 10, 7, 13, 3, 8]


@pytest.mark.parametrize(
    ("out_channels", "group_channels", "groups", "blocks"),
    [
        (64, 3, 1, (1, 16)),  # an image's planes
        (64, 48, 1, (16, 16)),
        (96, 1, 96, (16, 16)),
        (128, 4, 32, None),  # narrow groups
        (256, 8, 32, (8, 8)),
        (17, 64, 1, None),  # a prime number of results
    ],
)
def test_conv2d_blocks_are_those_that_vectorise(
    out_channels: int, group_channels: int, groups: int, blocks: tuple[int, int] | None
) -> None:
    assert conv2d_blocks(out_channels, group_channels, groups) == blocks


def test_lower_keeps_layout_transforms_out_from_between_blocked_operators(
    network: tuple[Path, Any, Any],
) -> None:
    names = [task.workload.name for task in extract_tasks(network[2])]
    assert sum("conv2d_NCHWc" in name for name in names) == 6
    # None at the image, four around the grouped convolution (its groups divide into blocks of 12), one at the end.
    assert sum("layout_transform" in name for name in names) == 5


def test_lower_computes_what_onnxruntime_does_when_nothing_is_scheduled(
    network: tuple[Path, Any, Any],
) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32), dtype=np.float32)
    result = run(build_executable(network[2], TARGET), x)
    assert np.allclose(result, expected(network[0], x=x), rtol=1e-4, atol=1e-5)


def test_lowered_erf_is_exact_over_its_whole_range(tmp_path: Path) -> None:
    proto = model([helper.make_node("Erf", ["x"], ["y"])], [value("x", (4001,))], [value("y", (4001,))])
    path = save(proto, tmp_path)
    x = np.linspace(-10, 10, 4001, dtype=np.float32)
    lowered = lower(import_relax(read_onnx(path)), TARGET)
    assert not any("T.erf(" in str(function) for function in lowered.functions.values())  # of the C library
    result = run(build_executable(lowered, TARGET), x)
    np.testing.assert_allclose(result, [math.erf(v) for v in x], atol=5e-7)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_build_computes_what_onnxruntime_does_when_schedules_are_drawn_at_random(
    network: tuple[Path, Any, Any], seed: int
) -> None:
    path, _, mod = network
    rng = np.random.default_rng(seed)
    traces = {}
    for task in extract_tasks(mod):
        space = design_space(task, TARGET)
        populations = space.sample(4, rng)
        candidates = [space.trace(p, row) for p in populations for row in range(len(p))]
        traces.update(dict.fromkeys(task.functions, first_valid(task, candidates)))
    x = rng.standard_normal((1, 3, 32, 32), dtype=np.float32)
    result = run(build_executable(apply_schedules(mod, TARGET, traces), TARGET), x)
    assert np.allclose(result, expected(path, x=x), rtol=1e-4, atol=1e-5)


def test_apply_schedules_refuses_when_a_trace_is_of_another_program(network: tuple[Path, Any, Any]) -> None:
    mod = network[2]
    first, second = [t for t in extract_tasks(mod) if t.workload.summary.op == "conv2d"][:2]
    instructions = json.loads(
        design_space(first, TARGET).trace(
            design_space(first, TARGET).sample(1, np.random.default_rng(0))[0], 0
        )
    )
    instructions[0][0][2][0] = "no_such_block"
    with pytest.raises(WorkFailed, match="does not fit"):
        apply_schedules(mod, TARGET, {second.functions[0]: json.dumps(instructions)})


def test_extract_tasks_counts_a_program_once_whatever_its_names(tmp_path: Path) -> None:
    weights: dict[str, np.ndarray] = {}
    nodes = [
        *convolution("first", "x", "a", weights, (16, 16, 3, 3), pads=[1] * 4),
        *convolution("second", "a", "y", weights, (16, 16, 3, 3), pads=[1] * 4),
    ]
    proto = model(nodes, [value("x", (1, 16, 8, 8))], [value("y", (1, 16, 8, 8))], weights)
    tasks = extract_tasks(lower(import_relax(read_onnx(save(proto, tmp_path))), TARGET))
    convolutions = [task for task in tasks if task.workload.summary.op == "conv2d"]
    assert [task.weight for task in convolutions] == [2]
    summary = convolutions[0].workload.summary
    assert (summary.spatial, summary.reduce) == ((1, 1, 8, 8, 16), (16, 3, 3))
    assert summary.flops == pytest.approx(2 * 16 * 16 * 9 * 64, rel=0.05)
    assert summary.write_bytes == 16 * 64 * 4


def test_program_of_rebuilds_the_recorded_program(network: tuple[Path, Any, Any]) -> None:
    task = extract_tasks(network[2])[0]
    assert tvm_ffi.structural_equal(program_of(task.workload), task.mod)


def test_copies_are_not_worth_tuning(network: tuple[Path, Any, Any]) -> None:
    by_name = {task.workload.name: task for task in extract_tasks(network[2])}
    assert all(not task.worth_tuning for name, task in by_name.items() if "layout_transform" in name)
    assert all(task.worth_tuning for name, task in by_name.items() if "conv2d" in name)
