"""Small ONNX models that the compiler's tests feed to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


def value(name: str, shape: Sequence[int | str] | None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), tensors)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def save(proto: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    onnx.save_model(proto, str(path))
    return path


def relu_model(shape: Sequence[int | str] = (1, 4), source: str = "x", result: str = "y") -> onnx.ModelProto:
    return model(
        [helper.make_node("Relu", [source], [result], name="relu")],
        [value(source, shape)],
        [value(result, shape)],
    )


def linear_model(rows: int = 2, seed: int = 0) -> onnx.ModelProto:
    """``y = relu(x w + b)`` with 8 inputs and 6 outputs."""
    rng = np.random.default_rng(seed)
    weights = {
        "w": rng.standard_normal((8, 6), dtype=np.float32),
        "b": rng.standard_normal(6, dtype=np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="product"),
        helper.make_node("Add", ["product", "b"], ["sum"], name="sum"),
        helper.make_node("Relu", ["sum"], ["y"], name="relu"),
    ]
    return model(nodes, [value("x", (rows, 8))], [value("y", (rows, 6))], weights)


def compile_package(path: Path, folder: Path, **pins: Any) -> Any:
    """Compile with TVM's default schedules into `folder`; returns the OnnxModel."""
    from tcl.compiler.bootstrap import import_tvm
    from tcl.compiler.frontend.model import import_relax, read_onnx
    from tcl.compiler.packaging.manifest import Manifest
    from tcl.compiler.packaging.package import write_package
    from tcl.devices.host import detect_host

    tvm = import_tvm()
    model = read_onnx(path, **pins)
    device = detect_host("host")
    executable = tvm.relax.build(import_relax(model), tvm.target.Target(device.target))
    manifest = Manifest(
        model=str(path),
        onnx_sha256=model.sha256,
        device=device,
        inputs=model.inputs,
        outputs=model.outputs,
        values=model.values,
        tvm_version=tvm.__version__,
    )
    write_package(folder, executable, manifest)
    return model
