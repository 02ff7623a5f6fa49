"""What the tuning benchmark compiles: the networks for testing, and single heavy operators of such networks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SEED = 2024
_OPSET = 17


def _convolution(
    channels: int, outputs: int, size: int, kernel: int, stride: int = 1, groups: int = 1
) -> Any:
    attributes = {
        "kernel_shape": [kernel, kernel],
        "strides": [stride, stride],
        "pads": [kernel // 2] * 4,
        "group": groups,
    }
    return "Conv", (1, channels, size, size), (outputs, channels // groups, kernel, kernel), attributes


SUBGRAPHS: dict[str, tuple[str, Sequence[int], Sequence[int] | None, dict[str, Any]]] = {
    "matmul": ("MatMul", (128, 768), (768, 3072), {}),
    "batch_matmul": ("MatMul", (12, 128, 128), (12, 128, 64), {}),
    "conv1x1": _convolution(256, 64, 56, 1),
    "conv3x3": _convolution(128, 128, 28, 3),
    "conv3x3_strided": _convolution(128, 128, 56, 3, stride=2),
    "conv3x3_grouped": _convolution(256, 256, 28, 3, groups=32),
    "conv3x3_depthwise": _convolution(144, 144, 56, 3, groups=144),
    "softmax": ("Softmax", (12, 128, 128), None, {"axis": -1}),
    "reduction": ("ReduceMean", (1, 2048, 7, 7), None, {"axes": [2, 3]}),
}
"""Operator, shape of the input, shape of the weights (or of a second input: the two of `batch_matmul`), attributes."""


def export_network(name: str, folder: Path) -> Path:
    """The ONNX file of a network, a subgraph, or the file that the name is the path of."""
    from tcl.bench.networks import export

    if name.endswith(".onnx"):
        return Path(name)
    path = folder / f"{name}.onnx"
    if not path.exists():
        if name in SUBGRAPHS:
            _save(name, path)
        else:
            export(name, folder)
    return path


def _save(name: str, path: Path) -> None:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    from tcl.files import atomic_write

    operator, shape, second, attributes = SUBGRAPHS[name]
    names = ["x"] if second is None else ["x", "w"]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    weights = []
    if name == "batch_matmul":
        inputs.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, second))
    elif second is not None:
        values = np.random.default_rng(_SEED).standard_normal(second, dtype=np.float32)
        weights.append(numpy_helper.from_array(values * np.float32(0.05), "w"))
    node = helper.make_node(operator, names, ["y"], **attributes)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], name, inputs, [output], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)
    atomic_write(path, onnx.shape_inference.infer_shapes(model).SerializeToString(deterministic=True))
