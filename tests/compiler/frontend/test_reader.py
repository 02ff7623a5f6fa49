"""Files that are no models, damaged ones, and weights in files beside them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import onnx
import pytest
from frontend_checks import assert_agrees, refusal
from onnx import TensorProto, helper
from onnx_models import linear_model, model, relu_model, save, value

from tcl.compiler.frontend import reader as onnx_reader
from tcl.compiler.frontend.model import read_onnx


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
