"""The element types that a model computes in: what cannot be compiled, and what its results can be held to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tcl.compiler.frontend.reader import all_nodes, describe, first_line
from tcl.errors import BadInput

QUANTISED = "quantised"
"""Activations are rounded to 8 bits (QuantizeLinear): sums in another order may land one step aside."""

_FOREIGN = ("BFLOAT16", "FLOAT8", "FLOAT6", "FLOAT4", "INT4", "UINT4", "INT2", "UINT2", "COMPLEX", "STRING")
_STORED = frozenset(
    {"Cast", "Constant", "Identity"}
)  # weights kept in such a type are converted at compile time


def refuse_element_types(path: Path, model: Any) -> None:
    """Refuse a model that computes in a type for which onnxruntime or TVM has no kernels on CPUs.

    Parameters
    ----------
    path
        The model's file, for the message.
    model
        The ``onnx.ModelProto`` as the user wrote it.

    Raises
    ------
    BadInput
        Naming the type and the first node that computes in it, or that a quantisation goes by blocks.
    """
    import onnx

    for node in all_nodes(model.graph):
        if any(attribute.name == "block_size" and attribute.i for attribute in node.attribute):
            raise BadInput(
                f"{path}: {node.op_type} ({describe(node)}) quantises by blocks, which TVM cannot compile; quantise"
                " by tensor or by channel"
            )
    if not any(name.startswith(_FOREIGN) for name in map(_type_name, _named_types(model))):
        return
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception as error:
        raise BadInput(f"{path}: the types of its values cannot be inferred: {first_line(error)}") from None
    types = {tensor.name: _type_name(tensor.data_type) for tensor in graph.initializer}
    for value in (*graph.value_info, *graph.input, *graph.output):
        types[value.name] = _type_name(value.type.tensor_type.elem_type)
    for node in graph.node:
        for name in (*node.input, *node.output):
            if types.get(name, "").startswith(_FOREIGN) and node.op_type not in _STORED:
                raise BadInput(
                    f"{path}: {node.op_type} ({describe(node)}) computes in {types[name].lower()}, which cannot be"
                    " compiled; export the model in float32, float16 or 8-bit integers"
                )


def _named_types(model: Any) -> list[int]:
    """Every element type that the file names."""
    named = [tensor.data_type for tensor in model.graph.initializer]
    named += [value.type.tensor_type.elem_type for value in model.graph.input]
    for node in all_nodes(model.graph):
        for attribute in node.attribute:
            named += [attribute.i] * (attribute.name in ("to", "output_dtype"))
            named += [attribute.t.data_type] * attribute.HasField("t")
    return named


def _type_name(number: int) -> str:
    from onnx import TensorProto

    return str(TensorProto.DataType.Name(number)) if number in TensorProto.DataType.values() else ""


def coarsest_type(model: Any) -> str | None:
    """Return `QUANTISED`, ``float16``, or None for a model that computes in float32 or float64 throughout.

    Parameters
    ----------
    model
        The ``onnx.ModelProto``.
    """
    from onnx import TensorProto

    nodes = list(all_nodes(model.graph))
    if any(node.op_type == "QuantizeLinear" for node in nodes):
        return QUANTISED
    half = TensorProto.FLOAT16
    casts = (a.i for node in nodes if node.op_type == "Cast" for a in node.attribute if a.name == "to")
    tensors = (tensor.data_type for tensor in model.graph.initializer)
    inputs = (value.type.tensor_type.elem_type for value in model.graph.input)
    return "float16" if half in (*casts, *tensors, *inputs) else None
