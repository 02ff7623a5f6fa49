"""What cannot be compiled, found before any work and named by operator, node and domain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tcl.compiler.frontend.reader import all_nodes, describe, subgraphs
from tcl.errors import BadInput

# Operators of onnxruntime's own domain that TVM's importer knows.
_CONTRIBUTED = frozenset(
    {"BiasGelu", "EmbedLayerNormalization", "FastGelu", "Gelu", "MatMulInteger16", "SkipLayerNormalization"}
)
# TVM's importer knows their names, but their results have no static shape, or it reads another operator's
# definition.
_NOT_COMPILED = frozenset(
    {"AllClassNMS", "Attention", "Compress", "MaxUnpool", "NonMaxSuppression", "NonZero", "Unique"}
    | {
        "ConcatFromSequence",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
    }
    | {"SequenceLength", "SplitToSequence", "Optional", "OptionalGetElement", "OptionalHasElement"}
)
# Operators that read an extent, or a position, from an input: (operator, input). A compiled program needs it
# constant.
_SHAPE_INPUTS = {
    "Reshape": (1,),
    "Expand": (1,),
    "Tile": (1,),
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
    "Resize": (2, 3),
    "Upsample": (1,),
    "Pad": (1,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
    "TopK": (1,),
    "OneHot": (1,),
    "AffineGrid": (1,),
}


def refuse_unknown_operators(path: Path, model: Any, known: frozenset[str]) -> None:
    """Refuse a model with operators that TVM's importer does not know, also within branches and loops.

    Parameters
    ----------
    path
        The model's file, for the message.
    model
        The ``onnx.ModelProto`` as the user wrote it.
    known
        Names of the operators that TVM's importer converts.

    Raises
    ------
    BadInput
        Naming each unknown operator once, with its first node and its domain.
    """
    refused: dict[tuple[str, str], str] = {}
    for node in all_nodes(model.graph):
        domain = node.domain or "ai.onnx"
        if domain == "ai.onnx":
            supported = node.op_type in known or node.op_type in ("Constant", "If")
        else:
            supported = domain == "com.microsoft" and node.op_type in _CONTRIBUTED & known
        if not supported:
            refused.setdefault((node.op_type, domain), describe(node))
    if refused:
        listing = "; ".join(f"{op} ({where}, domain {domain})" for (op, domain), where in refused.items())
        raise BadInput(
            f"{path}: TVM cannot compile {listing}; export the model without"
            f" {'this operator' if len(refused) == 1 else 'these operators'}"
        )


def refuse_dynamic_nodes(path: Path, model: Any) -> None:
    """Refuse what is still decided at run time after shapes are pinned and constants are folded.

    Parameters
    ----------
    path
        The model's file, for the message.
    model
        The simplified ``onnx.ModelProto``.

    Raises
    ------
    BadInput
        Naming the node and, where an input of the model decides, that input and how to pin its value.
    """
    for node in all_nodes(model.graph):
        if node.op_type in _NOT_COMPILED:
            raise BadInput(
                f"{path}: TVM cannot compile {node.op_type} ({describe(node)}, domain"
                f" {node.domain or 'ai.onnx'}); export the model without this operator"
            )
        if node.op_type == "If":
            raise BadInput(
                f"{path}: If ({describe(node)}) chooses its branch at run time"
                f"{_advice(model.graph, node.input[:1])}"
            )
        if node.op_type == "Dropout":
            raise BadInput(
                f"{path}: Dropout ({describe(node)}) is in training mode or its mask is used; export the"
                " model for inference"
            )
    constants = {tensor.name for tensor in model.graph.initializer}
    constants |= {node.output[0] for node in model.graph.node if node.op_type == "Constant"}
    for node in model.graph.node:
        positions = _SHAPE_INPUTS.get(node.op_type, ())
        dynamic = [node.input[i] for i in positions if i < len(node.input) and node.input[i]]
        dynamic = [name for name in dynamic if name not in constants]
        if dynamic:
            raise BadInput(
                f"{path}: {node.op_type} ({describe(node)}) takes its shape from {dynamic[0]!r}, known only"
                f" at run time{_advice(model.graph, dynamic)}"
            )


def _advice(graph: Any, names: Any) -> str:
    """Say which input of the model decides the values `names`, and how to pin it."""
    inputs = {value.name: value for value in graph.input}
    makers = {output: node for node in graph.node for output in node.output}
    pending, seen, decisive = list(names), set(names), []
    while pending:
        name = pending.pop()
        if name in inputs:
            decisive.append(name)
        elif name in makers and makers[name].op_type not in ("Shape", "Size"):
            new = [n for n in makers[name].input if n and n not in seen]
            new += [
                n
                for g in subgraphs(makers[name])
                for inner in all_nodes(g)
                for n in inner.input
                if n not in seen
            ]
            pending += new
            seen.update(new)
    if not decisive:
        return "; export the model with static shapes"
    name = decisive[0]
    extents = [d.dim_value for d in inputs[name].type.tensor_type.shape.dim]
    count = 1
    for extent in extents:
        count *= extent
    example = ",".join("V" if count == 1 else f"V{i + 1}" for i in range(min(count, 4))) + (
        ",..." if count > 4 else ""
    )
    return f"; pin the value of the input {name!r} with --shape '{name}=[{example}]'"
