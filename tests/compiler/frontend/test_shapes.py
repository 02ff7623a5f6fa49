"""Shapes, symbols and values that a user pins."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from frontend_checks import assert_agrees, refusal
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx_models import INT64, model, save, value

from tcl.compiler.frontend.model import import_relax, read_onnx
from tcl.compiler.frontend.shapes import parse_pins
from tcl.errors import BadInput


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
        ({"symbols": {"N": 10**11}}, "'image' has 100000000000x3x8x8 elements"),
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


def test_import_relax_refuses_when_a_value_in_between_is_too_large(tmp_path):
    nodes = [
        helper.make_node("Tile", ["x", "repeats"], ["huge"]),
        helper.make_node("ReduceMax", ["huge"], ["y"], keepdims=0),
    ]
    weights = {"repeats": np.array([10**5, 10**5, 10**2])}
    proto = model(nodes, [value("x", (1, 1, 1))], [value("y", ())], weights)
    with pytest.raises(BadInput, match="what a node makes has 100000x100000x100 elements"):
        import_relax(read_onnx(save(proto, tmp_path)))


@pytest.mark.parametrize(
    "flag",
    [
        "",
        "x",
        "x=",
        "=1x2",
        "x=1x",
        "x=axb",
        "x=[1,a]",
        "x=-1x2",
        "x=[1--2]",
        f"N={'9' * 32}",
        f"x=1x{'9' * 5000}",
    ],
)
def test_parse_pins_refuses_when_a_flag_is_malformed(flag):
    with pytest.raises(BadInput, match="--shape"):
        parse_pins([flag])


def test_parse_pins_refuses_when_a_name_comes_twice():
    with pytest.raises(BadInput, match="twice"):
        parse_pins(["x=1x2", "x=[1]"])


@settings(max_examples=200)
@given(st.text(min_size=1), st.lists(st.integers(0, 10**6), min_size=2, max_size=6))
def test_parse_pins_gives_back_any_name_and_shape(name, shape):
    flag = f"{name}={'x'.join(map(str, shape))}"
    try:
        assert parse_pins([flag]) == ({name: tuple(shape)}, {}, {})
    except BadInput:
        assert "\n" in name or "\r" in name  # no shell passes these
