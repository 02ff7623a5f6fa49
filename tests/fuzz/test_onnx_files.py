"""Damaged and hostile ONNX files."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from fuzz.conftest import FUZZED, Folder
from fuzz.mutations import NUMBERS, TEXTS, spoilt_bytes
from tcl.compiler.frontend.model import import_relax, read_onnx

OPERATORS = (  # noqa: SIM905
    "Relu MatMul Add Conv Reshape Concat Gather Slice Pad Resize ConstantOfShape Expand Tile If Loop LSTM Cast"
    " Squeeze Softmax Transpose ReduceMean Range TopK Split Einsum Constant Where QLinearConv Custom"
).split()
SMALL = st.integers(-(2**63), 2**63 - 1)


def model() -> onnx.ModelProto:
    """A convolution, a reshape and a product: every kind of tensor and attribute that a mutation can meet."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((4, 2, 3, 3), dtype=np.float32),
        "shape": np.array([1, -1], np.int64),
        "m": rng.standard_normal((64, 5), dtype=np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1], strides=[1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Reshape", ["r", "shape"], ["f"], name="flat"),
        helper.make_node("MatMul", ["f", "m"], ["p"], name="product"),
        helper.make_node("Softmax", ["p"], ["y"], name="softmax", axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


RIGHT = model().SerializeToString()


@st.composite
def spoilt_models(draw: st.DrawFn) -> onnx.ModelProto:
    proto = model()
    for _ in range(draw(st.integers(1, 3))):
        draw(st.sampled_from(MUTATIONS))(draw, proto)
    return proto


def _node(draw: st.DrawFn, proto: Any) -> Any:
    return draw(st.sampled_from(list(proto.graph.node)))


def _dims(draw: st.DrawFn, proto: Any) -> None:
    value = draw(st.sampled_from([*proto.graph.input, *proto.graph.output]))
    dims = value.type.tensor_type.shape.dim
    if dims and draw(st.booleans()):
        dim = draw(st.sampled_from(list(dims)))
        if draw(st.booleans()):
            dim.dim_value = draw(SMALL)
        else:
            dim.dim_param = draw(st.text(max_size=5))
    elif draw(st.booleans()):
        value.type.tensor_type.ClearField("shape")
    else:
        value.type.tensor_type.elem_type = draw(st.integers(-1, 30))


def _tensor(draw: st.DrawFn, proto: Any) -> None:
    if not proto.graph.initializer:
        return
    tensor = draw(st.sampled_from(list(proto.graph.initializer)))
    kind = draw(st.sampled_from(["remove", "dims", "cut", "dtype", "name", "values"]))
    if kind == "remove":
        proto.graph.initializer.remove(tensor)
    elif kind == "dims":
        del tensor.dims[:]
        tensor.dims.extend(draw(st.lists(SMALL, max_size=5)))
    elif kind == "cut":
        tensor.raw_data = tensor.raw_data[: draw(st.integers(0, len(tensor.raw_data)))]
    elif kind == "dtype":
        tensor.data_type = draw(st.integers(-1, 30))
    elif kind == "name":
        tensor.name = draw(TEXTS.filter(lambda text: "\0" not in text))
    else:
        array = draw(st.lists(SMALL, min_size=1, max_size=4))
        tensor.CopyFrom(numpy_helper.from_array(np.array(array, np.int64), tensor.name))


def _external(draw: st.DrawFn, proto: Any) -> None:
    if not proto.graph.initializer:
        return
    tensor = draw(st.sampled_from(list(proto.graph.initializer)))
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entries = {
        "location": draw(TEXTS | st.sampled_from(["../secret", "weights.bin", "link", "missing.bin"])),
        "offset": draw(NUMBERS | TEXTS),
        "length": draw(NUMBERS | TEXTS),
    }
    for key in draw(st.sets(st.sampled_from(sorted(entries)))):
        tensor.external_data.add(key=key, value=str(entries[key]))


def _wiring(draw: st.DrawFn, proto: Any) -> None:
    node = _node(draw, proto)
    names = [name for other in proto.graph.node for name in (*other.input, *other.output)] + ["", "nobody"]
    target = node.output if node.output and draw(st.booleans()) else node.input
    if target:
        target[draw(st.integers(0, len(target) - 1))] = draw(st.sampled_from(names))
    if draw(st.booleans()):
        proto.graph.node.add().CopyFrom(node)
    if draw(st.integers(0, 4)) == 0:
        proto.graph.node.remove(_node(draw, proto))
    if not proto.graph.node:
        proto.graph.node.add(op_type="Relu")


def _operator(draw: st.DrawFn, proto: Any) -> None:
    node = _node(draw, proto)
    node.op_type = draw(st.sampled_from(OPERATORS) | st.text(max_size=5))
    if draw(st.integers(0, 3)) == 0:
        node.domain = draw(st.sampled_from(["", "ai.onnx.ml", "com.microsoft", "x"]))
    if draw(st.integers(0, 3)) == 0:
        node.input.append(draw(st.sampled_from(["x", "w", "shape", ""])))


def _attribute(draw: st.DrawFn, proto: Any) -> None:
    node = _node(draw, proto)
    name = draw(
        st.sampled_from(["axis", "pads", "strides", "to", "group", "value", "perm", "kernel_shape", "x"])
    )
    value = draw(st.one_of(SMALL, st.lists(SMALL, min_size=1, max_size=6), st.floats(), st.text(max_size=5)))
    node.attribute.append(helper.make_attribute(name, value))


def _version(draw: st.DrawFn, proto: Any) -> None:
    if proto.opset_import and draw(st.booleans()):
        proto.opset_import[0].version = draw(st.sampled_from([-1, 0, 1, 6, 11, 13, 18, 21, 999, 2**40]))
    elif draw(st.booleans()):
        proto.ir_version = draw(SMALL)
    else:
        del proto.opset_import[:]


MUTATIONS = (_dims, _tensor, _external, _wiring, _operator, _attribute, _version)


def attempt(folder: Folder, content: bytes) -> None:
    path = folder.path / "model.onnx"
    path.write_bytes(content)
    with folder.guarded():
        import_relax(read_onnx(path))


@pytest.fixture(scope="module", autouse=True)
def _neighbours(folder: Folder) -> None:
    """A file of weights, and a link that leads out; TVM is imported before the clock runs."""
    (folder.path / "weights.bin").write_bytes(bytes(4096))
    (folder.path / "link").symlink_to(folder.outside / "secret")
    attempt(folder, RIGHT)


@FUZZED
@given(spoilt_bytes(RIGHT))
def test_onnx_file_is_read_or_refused_when_bytes_are_damaged(folder: Folder, content: bytes) -> None:
    attempt(folder, content)


@FUZZED
@given(spoilt_models())
def test_onnx_file_is_read_or_refused_when_its_graph_is_wrong(folder: Folder, proto: onnx.ModelProto) -> None:
    attempt(folder, proto.SerializeToString())
