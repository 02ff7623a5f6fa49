"""Half precision and 8-bit quantised models: compiled as onnxruntime computes them, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import FLOAT, HALF, model, save, value

from tcl.compiler.bootstrap import import_tvm

tvm = import_tvm()

from tcl.compiler.frontend.inputs import random_inputs  # noqa: E402
from tcl.compiler.frontend.model import import_relax, read_onnx  # noqa: E402
from tcl.compiler.frontend.precision import QUANTISED, coarsest_type  # noqa: E402
from tcl.compiler.frontend.reference import Reference  # noqa: E402
from tcl.compiler.lowering.pipeline import lower  # noqa: E402
from tcl.compiler.programs.build import build_executable  # noqa: E402
from tcl.compiler.programs.tasks import extract_tasks  # noqa: E402
from tcl.compiler.running.verify import TOLERANCES, difference  # noqa: E402
from tcl.errors import BadInput  # noqa: E402

TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
CHANNELS = 16


def half_network() -> onnx.ModelProto:
    """Convolution, ReLU, mean and product in float16."""
    rng = np.random.default_rng(0)
    weights = {
        "w": (rng.standard_normal((CHANNELS, 8, 3, 3)) * 0.2).astype(np.float16),
        "b": rng.standard_normal(CHANNELS).astype(np.float16),
        "m": (rng.standard_normal((CHANNELS, 10)) * 0.2).astype(np.float16),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["y"]),
    ]
    return model(nodes, [value("x", (1, 8, 14, 14), HALF)], [value("y", (1, 10), HALF)], weights)


def quantised_network(dtype: Any, layers: int = 3) -> onnx.ModelProto:
    """Convolutions with weights quantised by channel, activations quantised in between, and a product."""
    rng = np.random.default_rng(1)
    zero = 0 if dtype is np.uint8 else -128
    weights: dict[str, np.ndarray] = {}
    nodes = []

    def quantise(source: str, result: str, scale: float, zero_point: int) -> None:
        weights[f"{result}.s"], weights[f"{result}.z"] = np.float32(scale), np.array(zero_point, dtype)
        nodes.append(
            helper.make_node("QuantizeLinear", [source, f"{result}.s", f"{result}.z"], [f"{result}.q"])
        )
        nodes.append(
            helper.make_node("DequantizeLinear", [f"{result}.q", f"{result}.s", f"{result}.z"], [result])
        )

    quantise("x", "h0", 0.03, zero + 128)
    for i in range(layers):
        inner = CHANNELS if i else 3
        weights[f"w{i}"] = rng.integers(-127, 127, (CHANNELS, inner, 3, 3)).astype(np.int8)
        weights[f"s{i}"] = (rng.random(CHANNELS) * 0.01 + 0.005).astype(np.float32) / np.float32(inner**0.5)
        weights[f"z{i}"] = np.zeros(CHANNELS, np.int8)
        nodes.append(helper.make_node("DequantizeLinear", [f"w{i}", f"s{i}", f"z{i}"], [f"d{i}"], axis=0))
        nodes.append(helper.make_node("Conv", [f"h{i}", f"d{i}"], [f"c{i}"], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        quantise(f"r{i}", f"h{i + 1}", 0.04, zero)
    nodes.append(helper.make_node("GlobalAveragePool", [f"h{layers}"], ["g"]))
    nodes.append(helper.make_node("Flatten", ["g"], ["f"]))
    weights["m"] = rng.integers(-127, 127, (CHANNELS, 10)).astype(np.int8)
    weights["ms"], weights["mz"] = np.float32(0.004), np.array(0, np.int8)
    nodes.append(helper.make_node("DequantizeLinear", ["m", "ms", "mz"], ["md"]))
    nodes.append(helper.make_node("MatMul", ["f", "md"], ["y"]))
    return model(nodes, [value("x", (1, 3, 12, 12))], [value("y", (1, 10))], weights)


NETWORKS = {
    "half": (half_network, "float16"),
    "uint8": (lambda: quantised_network(np.uint8), QUANTISED),
    "int8": (lambda: quantised_network(np.int8), QUANTISED),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_lowered_model_agrees_within_the_tolerance_of_its_type(name: str, tmp_path: Path):
    make, coarsest = NETWORKS[name]
    path = save(make(), tmp_path)
    read = read_onnx(path)
    assert coarsest_type(read.original) == coarsest
    lowered = lower(import_relax(read), TARGET)
    machine = tvm.relax.VirtualMachine(build_executable(lowered, TARGET), tvm.cpu())
    reference = Reference(path, threads=1)
    for seed in range(3):
        feed = random_inputs(read.inputs, seed)
        result = machine["main"](tvm.runtime.tensor(feed["x"])).numpy()
        expected = reference(feed)["y"]
        assert np.abs(expected).max() > 0.1
        assert difference(expected, result)[1] <= TOLERANCES[coarsest]


def test_quantised_convolutions_are_blocked_with_their_weights_converted_when_compiled(tmp_path: Path):
    read = read_onnx(save(quantised_network(np.uint8), tmp_path))
    names = [task.workload.name for task in extract_tasks(lower(import_relax(read), TARGET))]
    convolutions = [name for name in names if "conv2d" in name]
    assert convolutions and all("NCHWc" in name and "quantize" in name for name in convolutions)
    assert not any(name.startswith("dequantize") for name in names)  # of weights, at run time
    assert not any("layout_transform" in name for name in names)  # an image's planes are its blocks


def test_coarsest_type_is_none_when_weights_alone_are_quantised():
    weights = {"w": np.ones((4, 4), np.int8), "s": np.float32(0.5), "z": np.array(0, np.int8)}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"]),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    assert coarsest_type(model(nodes, [value("x", (1, 4))], [value("y", (1, 4))], weights)) is None


def foreign(kind: int, stored_only: bool = False) -> onnx.ModelProto:
    """``y = x w`` with weights, and unless they are converted first also the product, in another type."""
    weight = helper.make_tensor("w", kind, (8, 6), np.linspace(-1, 1, 48, dtype=np.float32))
    nodes = [helper.make_node("MatMul", ["x", "wide"], ["y"], name="product")]
    if stored_only:
        nodes.insert(0, helper.make_node("Cast", ["w"], ["wide"], to=FLOAT))
    else:
        nodes = [
            helper.make_node("Cast", ["x"], ["narrow"], to=kind),
            helper.make_node("MatMul", ["narrow", "w"], ["p"], name="product"),
            helper.make_node("Cast", ["p"], ["y"], to=FLOAT),
        ]
    graph = helper.make_graph(nodes, "graph", [value("x", (2, 8))], [value("y", (2, 6))], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize(
    ("kind", "name"), [(TensorProto.BFLOAT16, "bfloat16"), (TensorProto.FLOAT8E5M2, "float8e5m2")]
)
def test_read_onnx_names_node_and_type_when_it_cannot_compute_in_it(kind: int, name: str, tmp_path: Path):
    with pytest.raises(BadInput, match=rf"MatMul \(node 'product'\) computes in {name}"):
        read_onnx(save(foreign(kind), tmp_path))


def test_read_onnx_takes_weights_that_are_only_stored_in_bfloat16(tmp_path: Path):
    read = read_onnx(save(foreign(TensorProto.BFLOAT16, stored_only=True), tmp_path))
    assert [spec.dtype for spec in (*read.inputs, *read.outputs)] == ["float32", "float32"]


def test_read_onnx_names_the_node_when_it_quantises_by_blocks(tmp_path: Path):
    weights = {"s": np.ones((2, 8), np.float32), "z": np.zeros((2, 8), np.int8)}
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], name="blocks", axis=0, block_size=4)
    proto = model([node], [value("x", (8, 8))], [value("y", (8, 8), TensorProto.INT8)], weights, opset=21)
    proto.ir_version = 10
    with pytest.raises(BadInput, match=r"QuantizeLinear \(node 'blocks'\) quantises by blocks"):
        read_onnx(save(proto, tmp_path))
