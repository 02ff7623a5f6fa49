"""What cannot be compiled is refused by name, in one sentence."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from frontend_checks import assert_agrees, refusal
from onnx import TensorProto, helper
from onnx_models import INT64, model, save, value

from tcl.compiler.frontend.model import read_onnx


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
