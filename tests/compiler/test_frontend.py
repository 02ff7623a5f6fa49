"""Reading ONNX files: the faults people meet, each refused in one sentence, and models that import and agree."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx_models import HALF, INT64, linear_model, model, relu_model, save, value

from tcl.compiler import onnx_reader
from tcl.compiler.bootstrap import import_tvm
from tcl.compiler.frontend import OnnxModel, import_relax, read_onnx
from tcl.compiler.inputs import random_inputs
from tcl.compiler.onnx_reader import saved_onnx
from tcl.compiler.onnx_reference import Reference
from tcl.compiler.onnx_shapes import parse_pins
from tcl.compiler.verify import difference
from tcl.devices.host import detect_host
from tcl.errors import BadInput


def run(read: OnnxModel, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Compile with default schedules and run in this process."""
    tvm = import_tvm()
    executable = tvm.relax.build(import_relax(read), tvm.target.Target(detect_host().target))
    machine = tvm.relax.VirtualMachine(executable, tvm.cpu())
    result = machine["main"](*[tvm.runtime.tensor(feed[spec.name]) for spec in read.inputs])
    return [part.numpy() for part in ([result] if len(read.outputs) == 1 else result)]


def assert_agrees(
    read: OnnxModel, feed: dict[str, np.ndarray] | None = None, tolerance: float = 1e-4
) -> None:
    feed = feed or random_inputs(read.inputs, seed=0)
    with saved_onnx(read.original, read.path.parent) as path:
        expected = Reference(path, threads=1)(feed)
    assert list(expected) == [spec.name for spec in read.outputs]
    for spec, actual in zip(read.outputs, run(read, feed), strict=True):
        assert actual.shape == spec.shape and actual.dtype == np.dtype(spec.dtype)
        assert difference(expected[spec.name], actual)[1] <= tolerance


def refusal(path: Path, **pins: object) -> str:
    with pytest.raises(BadInput) as caught:
        read_onnx(path, **pins)  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    return message


# Files


def test_read_onnx_names_the_file_when_it_does_not_exist(tmp_path):
    assert "no such ONNX file" in refusal(tmp_path / "none.onnx")


@pytest.mark.parametrize("content", [b"", b"no model", b"\x00" * 64, b"\x08\x08\x12\x04"])
def test_read_onnx_refuses_when_file_is_no_model(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    refusal(path)


def test_read_onnx_refuses_when_file_is_cut_anywhere(tmp_path):
    whole = linear_model().SerializeToString()
    path = tmp_path / "cut.onnx"
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        refusal(path)


def test_read_onnx_names_node_and_value_when_a_weight_is_missing(tmp_path):
    broken = linear_model()
    del broken.graph.initializer[1]
    message = refusal(save(broken, tmp_path))
    assert "node 'sum'" in message and "'b'" in message


def test_read_onnx_refuses_when_graph_has_a_cycle(tmp_path):
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
    ]
    assert "cycle" in refusal(save(model(nodes, [value("x", (4,))], [value("b", (4,))]), tmp_path))


def test_read_onnx_refuses_when_nobody_makes_an_output(tmp_path):
    broken = relu_model()
    broken.graph.output[0].name = "z"
    assert "'z'" in refusal(save(broken, tmp_path))


def with_external_data(folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save_model(
        linear_model(), str(path), save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    return path


def test_read_onnx_reads_weights_and_hashes_them_when_they_are_external(tmp_path):
    path = with_external_data(tmp_path)
    read = read_onnx(path)
    expected = hashlib.sha256(path.read_bytes() + (tmp_path / "weights.bin").read_bytes()).hexdigest()
    assert read.sha256 == expected
    assert_agrees(read)


@pytest.mark.parametrize("may_link", [True, False])
def test_external_data_stays_where_it_is_when_a_message_cannot_hold_it(tmp_path, monkeypatch, may_link):
    path = with_external_data(tmp_path)
    whole = read_onnx(path)
    monkeypatch.setattr(onnx_reader, "_PROTOBUF_LIMIT", 100)
    if not may_link:  # the folder of temporary files is on another disk
        monkeypatch.setattr(os, "link", refuse_to_link)
    large = read_onnx(path)
    assert all(
        tensor.data_location == TensorProto.EXTERNAL and not tensor.raw_data
        for tensor in large.original.graph.initializer
    )
    assert large.sha256 == whole.sha256 and large.outputs == whole.outputs
    assert_agrees(large)


def refuse_to_link(*_: object) -> None:
    raise OSError("Invalid cross-device link")


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/hostname", "link.bin", ""])
def test_read_onnx_refuses_when_external_data_lies_outside_the_folder(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    path = with_external_data(folder)
    (tmp_path / "weights.bin").write_bytes((folder / "weights.bin").read_bytes())
    (folder / "link.bin").symlink_to(tmp_path / "weights.bin")
    proto = onnx.load_model(str(path), load_external_data=False)
    for tensor in proto.graph.initializer:
        next(entry for entry in tensor.external_data if entry.key == "location").value = location
    path.write_bytes(proto.SerializeToString())
    assert "folder" in refusal(path)


def test_read_onnx_refuses_when_external_data_is_truncated_or_missing(tmp_path):
    path = with_external_data(tmp_path)
    weights = tmp_path / "weights.bin"
    weights.write_bytes(weights.read_bytes()[:-8])
    assert "truncated" in refusal(path)
    weights.unlink()
    assert "does not exist" in refusal(path)


# Operators


@pytest.mark.parametrize(
    ("operator", "domain"),
    [("LSTM", ""), ("GRU", ""), ("ConvInteger", ""), ("Normalizer", "ai.onnx.ml"), ("Mine", "my.domain")],
)
def test_read_onnx_names_operator_node_and_domain_when_it_is_unknown(tmp_path, operator, domain):
    node = helper.make_node(operator, ["x", "x", "x"], ["y"], name="the/node", domain=domain)
    path = save(
        model([node], [value("x", (1, 4))], [value("y", (1, 4))], domains=[domain] * bool(domain)), tmp_path
    )
    message = refusal(path)
    assert operator in message and "'the/node'" in message and f"domain {domain or 'ai.onnx'}" in message


def conditional(inner: onnx.NodeProto, condition: str) -> onnx.ModelProto:
    def branch(node: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph([node], "branch", [], [value("r", (1, 4))])

    other = helper.make_node("Identity", ["x"], ["r"])
    node = helper.make_node(
        "If", [condition], ["y"], name="choice", then_branch=branch(inner), else_branch=branch(other)
    )
    inputs = [value("x", (1, 4)), value("flag", (), TensorProto.BOOL)]
    return model([node], inputs, [value("y", (1, 4))], {"yes": np.array(True)})


def test_read_onnx_names_the_inner_node_when_a_branch_has_an_unknown_operator(tmp_path):
    inner = helper.make_node("Mystery", ["x"], ["r"], name="inner")
    message = refusal(save(conditional(inner, "flag"), tmp_path))
    assert "Mystery" in message and "'inner'" in message


def test_read_onnx_refuses_loops_by_name(tmp_path):
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["c2"])],
        "body",
        [value("i", (), INT64), value("c", (), TensorProto.BOOL)],
        [value("c2", (), TensorProto.BOOL)],
    )
    nodes = [
        helper.make_node("Loop", ["n", "go"], [], name="loop", body=body),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    weights = {"n": np.array(3), "go": np.array(True)}
    assert "Loop (node 'loop'" in refusal(
        save(model(nodes, [value("x", (4,))], [value("y", (4,))], weights), tmp_path)
    )


def test_read_onnx_says_how_to_pin_when_an_input_chooses_the_branch(tmp_path):
    inner = helper.make_node("Relu", ["x"], ["r"])
    assert "input 'flag'" in refusal(save(conditional(inner, "flag"), tmp_path))


def test_read_onnx_takes_the_branch_when_the_condition_is_constant(tmp_path):
    read = read_onnx(save(conditional(helper.make_node("Relu", ["x"], ["r"]), "yes"), tmp_path))
    assert_agrees(read, {"x": np.array([[-1, 2, -3, 4]], np.float32), "flag": np.array(False)})


def test_read_onnx_refuses_when_the_output_shape_depends_on_data(tmp_path):
    node = helper.make_node("NonZero", ["x"], ["y"], name="where")
    assert "NonZero" in refusal(
        save(model([node], [value("x", (4,))], [value("y", (1, None), INT64)]), tmp_path)
    )


def test_read_onnx_refuses_when_an_input_is_no_tensor_of_numbers(tmp_path):
    node = helper.make_node("Identity", ["x"], ["y"])
    proto = model([node], [value("x", (2,), TensorProto.STRING)], [value("y", (2,), TensorProto.STRING)])
    assert "'x'" in refusal(save(proto, tmp_path))


# Shapes


def dynamic_conv() -> onnx.ModelProto:
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3), dtype=np.float32)
    node = helper.make_node("Conv", ["image", "w"], ["y"], pads=[1, 1, 1, 1])
    return model([node], [value("image", ("N", 3, 8, 8))], [value("y", ("N", 4, 8, 8))], {"w": weight})


def test_read_onnx_lists_symbolic_dimensions_when_they_are_not_pinned(tmp_path):
    message = refusal(save(dynamic_conv(), tmp_path))
    assert "'image' [N, 3, 8, 8]" in message
    assert "--shape 'image=1x3x8x8'" in message and "--shape N=1" in message


@pytest.mark.parametrize("pins", [{"shapes": {"image": (2, 3, 8, 8)}}, {"symbols": {"N": 2}}])
def test_read_onnx_writes_pinned_extents_into_inputs_and_outputs(tmp_path, pins):
    read = read_onnx(save(dynamic_conv(), tmp_path), **pins)
    assert read.inputs[0].shape == (2, 3, 8, 8) and read.outputs[0].shape == (2, 4, 8, 8)
    assert_agrees(read)


@pytest.mark.parametrize(
    ("pins", "expected"),
    [
        ({"shapes": {"picture": (1, 3, 8, 8)}}, "no input 'picture'"),
        ({"symbols": {"M": 1}}, "'M'"),
        ({"shapes": {"image": (1, 3, 9, 8)}}, "axis 2"),
        ({"shapes": {"image": (1, 3, 8)}}, "rank 4, not 3"),
        ({"shapes": {"image": (2, 3, 8, 8)}, "symbols": {"N": 1}}, "N=1, not 2"),
        ({"symbols": {"N": 0}}, "at least 1"),
    ],
)
def test_read_onnx_refuses_when_pins_contradict_the_model(tmp_path, pins, expected):
    assert expected in refusal(save(dynamic_conv(), tmp_path), **pins)


def test_read_onnx_binds_a_symbol_in_all_inputs_when_one_shape_is_given(tmp_path):
    node = helper.make_node("Add", ["a", "b"], ["y"])
    proto = model([node], [value("a", ("N", 4)), value("b", ("N", 4))], [value("y", ("N", 4))])
    read = read_onnx(save(proto, tmp_path), shapes={"a": (3, 4)})
    assert [spec.shape for spec in read.inputs] == [(3, 4), (3, 4)]


def reshape_by_input() -> onnx.ModelProto:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], name="fold")
    return model([node], [value("x", (4, 4)), value("shape", (2,), INT64)], [value("y", ("a", "b"))])


def test_read_onnx_says_which_input_to_pin_when_it_decides_a_shape(tmp_path):
    message = refusal(save(reshape_by_input(), tmp_path))
    assert "Reshape (node 'fold')" in message and "--shape 'shape=[V1,V2]'" in message


def test_read_onnx_makes_the_input_a_constant_when_its_value_is_pinned(tmp_path):
    read = read_onnx(save(reshape_by_input(), tmp_path), values={"shape": (2, 8)})
    assert [spec.name for spec in read.inputs] == ["x"] and read.outputs[0].shape == (2, 8)
    assert read.values == {"shape": [2, 8]}
    assert_agrees(read)


@pytest.mark.parametrize("values", [{"shape": (1, 2, 3)}, {"x": (1,)}, {"z": (1,)}])
def test_read_onnx_refuses_when_pinned_values_do_not_fit(tmp_path, values):
    refusal(save(reshape_by_input(), tmp_path), values=values)


def test_parse_pins_reads_shapes_symbols_and_values():
    assert parse_pins(["a/b:0=1x3x8x8", "N=4", "shape=[2, -1]"]) == (
        {"a/b:0": (1, 3, 8, 8)},
        {"N": 4},
        {"shape": (2, -1)},
    )


@pytest.mark.parametrize("flag", ["", "x", "x=", "=1x2", "x=1x", "x=axb", "x=[1,a]", "x=-1x2", "x=[1--2]"])
def test_parse_pins_refuses_when_a_flag_is_malformed(flag):
    with pytest.raises(BadInput, match="--shape"):
        parse_pins([flag])


def test_parse_pins_refuses_when_a_name_comes_twice():
    with pytest.raises(BadInput, match="twice"):
        parse_pins(["x=1x2", "x=[1]"])


@settings(max_examples=200, deadline=None)
@given(st.text(min_size=1), st.lists(st.integers(0, 10**6), min_size=2, max_size=6))
def test_parse_pins_gives_back_any_name_and_shape(name, shape):
    flag = f"{name}={'x'.join(map(str, shape))}"
    try:
        assert parse_pins([flag]) == ({name: tuple(shape)}, {}, {})
    except BadInput:
        assert "\n" in name or "\r" in name  # no shell passes these


# Names, dtypes, forms


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


# Networks


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
