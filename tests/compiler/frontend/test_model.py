"""Models that import and agree with onnxruntime."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from frontend_checks import assert_agrees
from onnx import helper
from onnx_models import HALF, INT64, linear_model, model, save, value

from tcl.compiler.bootstrap import import_tvm
from tcl.compiler.frontend.model import import_relax, read_onnx


def test_read_onnx_keeps_names_and_order_when_they_are_no_identifiers(tmp_path):
    nodes = [
        helper.make_node("Sub", ["a/b:0", "1.x"], ["out:1"]),
        helper.make_node("Mul", ["a/b:0", "input_1"], ["0.out/y"]),
    ]
    names = ["1.x", "a/b:0", "input_1"]
    proto = model(nodes, [value(n, (2, 3)) for n in names], [value(n, (2, 3)) for n in ("out:1", "0.out/y")])
    read = read_onnx(save(proto, tmp_path))
    assert [spec.name for spec in read.inputs] == names
    assert [spec.name for spec in read.outputs] == ["out:1", "0.out/y"]
    assert_agrees(read)


def test_import_relax_agrees_when_half_data_meets_float_normalisation(tmp_path):
    rng = np.random.default_rng(0)
    weights = {
        "w": (rng.standard_normal((8, 3, 3, 3)) * 0.2).astype(np.float16),
        **{name: rng.uniform(0.5, 1.5, 8).astype(np.float32) for name in ("scale", "bias", "mean", "var")},
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["y"]),
    ]
    proto = model(nodes, [value("x", (1, 3, 8, 8), HALF)], [value("y", (1, 8, 6, 6), HALF)], weights)
    assert_agrees(read_onnx(save(proto, tmp_path)), tolerance=2e-2)


def test_read_onnx_ignores_weights_among_the_inputs_when_the_file_is_old(tmp_path):
    proto = linear_model()
    proto.graph.input.extend([value("w", (8, 6)), value("b", (6,))])
    assert [spec.name for spec in read_onnx(save(proto, tmp_path)).inputs] == ["x"]


@pytest.mark.parametrize("opset", [7, 9, 11, 12])
def test_import_relax_agrees_when_the_operator_set_is_old(tmp_path, opset):
    nodes = [
        helper.make_node("Unsqueeze", ["x"], ["u"], axes=[0]),
        helper.make_node("Softmax", ["u"], ["s"], axis=1),  # over all axes from 1 on, before operator set 13
        helper.make_node("ReduceSum", ["s"], ["y"], axes=[2], keepdims=0),
    ]
    proto = model(nodes, [value("x", (3, 4))], [value("y", (1, 3))], opset=opset)
    assert_agrees(read_onnx(save(proto, tmp_path)))


def test_read_onnx_removes_dropout_when_it_is_for_inference(tmp_path):
    nodes = [helper.make_node("Dropout", ["x"], ["d"]), helper.make_node("Relu", ["d"], ["y"])]
    read = read_onnx(save(model(nodes, [value("x", (4,))], [value("y", (4,))]), tmp_path))
    assert [node.op_type for node in read.proto.graph.node] == ["Relu"]


def test_import_relax_agrees_when_outputs_repeat_inputs_and_constants(tmp_path):
    nodes = [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Identity", ["c"], ["constant"])]
    proto = model(
        nodes,
        [value("x", (2,)), value("unused", (3,))],
        [value("same", (2,)), value("constant", (2,))],
        {"c": np.array([1, 2], np.float32)},
    )
    read = read_onnx(save(proto, tmp_path))
    assert [spec.name for spec in read.inputs] == ["x", "unused"]
    assert_agrees(read)


def test_import_relax_agrees_when_model_is_quantised(tmp_path):
    rng = np.random.default_rng(0)
    weights = {
        "scale": np.array(0.05, np.float32),
        "zero": np.array(3, np.int8),
        "w": rng.integers(-100, 100, (8, 6)).astype(np.int8),
        "wzero": np.array(0, np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "scale", "wzero"], ["dw"]),
        helper.make_node("MatMul", ["d", "dw"], ["y"]),
    ]
    proto = model(nodes, [value("x", (2, 8))], [value("y", (2, 6))], weights)
    assert_agrees(read_onnx(save(proto, tmp_path)))


def test_import_relax_agrees_when_sums_have_many_operands(tmp_path):
    node = helper.make_node("Sum", ["a", "b", "c"], ["y"])
    read = read_onnx(save(model([node], [value(n, (2, 3)) for n in "abc"], [value("y", (2, 3))]), tmp_path))
    assert [n.op_type for n in read.proto.graph.node] == ["Add", "Add"]
    assert_agrees(read)


def test_read_onnx_bounds_token_ids_by_the_vocabulary(tmp_path):
    table = np.random.default_rng(0).standard_normal((50, 4), dtype=np.float32)
    node = helper.make_node("Gather", ["table", "ids"], ["y"])
    read = read_onnx(
        save(model([node], [value("ids", (3,), INT64)], [value("y", (3, 4))], {"table": table}), tmp_path)
    )
    assert read.inputs[0].high == 50
    assert_agrees(read, {"ids": np.array([0, 49, -50])})


def test_import_relax_leaves_no_arithmetic_on_constants(networks):
    tvm = import_tvm()
    module = import_relax(read_onnx(networks("densenet_like")))
    constant_calls = []

    def visit(expr: object) -> None:
        constants = isinstance(expr, tvm.relax.Call) and {
            isinstance(argument, tvm.ir.GenericConst) for argument in expr.args
        }
        if constants == {True}:
            constant_calls.append(expr)

    tvm.relax.analysis.post_order_visit(module["main"].body, visit)
    assert not constant_calls


@pytest.mark.parametrize("name", ["squeezenet", "vit_like", "shufflenet_like", "unet_like"])
def test_import_relax_agrees_with_onnxruntime_on_networks(networks, name):
    assert_agrees(read_onnx(networks(name)))


def test_import_relax_agrees_when_torch_exports_through_dynamo(tmp_path):
    import torch

    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2).eval()
    path = tmp_path / "encoder.onnx"
    torch.onnx.export(encoder, (torch.randn(1, 10, 32),), str(path), dynamo=True, verbose=False)
    assert_agrees(read_onnx(path))


def test_import_relax_agrees_on_magika():
    package = importlib.util.find_spec("magika")
    assert package is not None and package.origin is not None
    (path,) = sorted(Path(package.origin).parent.glob("models/*/model.onnx"))
    read = read_onnx(path, shapes={"bytes": (1, 2048)})
    assert (read.inputs[0].dtype, read.outputs[0].name) == ("int32", "target_label")
    assert_agrees(read)
