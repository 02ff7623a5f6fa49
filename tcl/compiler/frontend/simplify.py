"""From the model a user wrote to a plain graph for TVM: no old operator sets, dead branches or Dropout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tcl.compiler.frontend.reader import external_locations, first_line, saved_onnx, subgraphs
from tcl.compiler.frontend.reference import import_onnxruntime
from tcl.errors import BadInput

# Below it TVM's importer reads some operators by their newer definition.
_OLDEST_OPSET = 13


def convert_opset(path: Path, model: Any) -> Any:
    """Return the model with at least operator set 13, or itself where no conversion exists or is needed.

    Raises
    ------
    BadInput
        When the operator set is so old that onnxruntime does not promise to run it, and cannot be converted.
    """
    import onnx

    version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), _OLDEST_OPSET)
    if version >= _OLDEST_OPSET or external_locations(model.graph):
        return model
    try:
        return onnx.version_converter.convert_version(model, _OLDEST_OPSET)
    except Exception as error:  # the converter raises RuntimeError and its own errors
        if version >= 7:
            return model
        raise BadInput(
            f"{path}: its operator set {version} is too old and cannot be converted ({first_line(error)});"
            " export the model with operator set 13 or newer"
        ) from None


def simplify(path: Path, model: Any) -> Any:
    """Return the model as onnxruntime's basic optimisations leave it: constants folded, no Dropout.

    They know far more rewrites than TVM's importer, and make several dynamic Reshape and Resize importable.

    Parameters
    ----------
    path
        The model's file, for messages.
    model
        An ``onnx.ModelProto`` whose inputs have static shapes.

    Raises
    ------
    BadInput
        When onnxruntime cannot load the model: then nothing could verify the compiled one either.
    """
    import onnx

    onnxruntime = import_onnxruntime()
    with saved_onnx(model, path.parent) as source:
        target = source.with_suffix(".simple")
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(target)
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        if external_locations(model.graph):
            key = "session.optimized_model_external_initializers_file_name"
            options.add_session_config_entry(key, source.with_suffix(".data").name)
        try:
            session = onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises a dozen classes of its own
            reason = first_line(error).replace(str(source), path.name).split(" : ", 2)[-1].strip()
            raise BadInput(f"{path}: onnxruntime cannot load the model: {reason}") from None
        simple = onnx.load_model(str(target))
    for output, inferred in zip(simple.graph.output, session.get_outputs(), strict=True):
        extents = [extent if isinstance(extent, int) else None for extent in inferred.shape]
        elem_type = output.type.tensor_type.elem_type
        output.CopyFrom(onnx.helper.make_tensor_value_info(output.name, elem_type, extents))
    _chain_sums(simple.graph)
    return simple


def _chain_sums(graph: Any) -> None:
    """Turn Sum into additions, in place: TVM would stack the operands in memory first."""
    from onnx import helper

    for position in reversed([i for i, node in enumerate(graph.node) if node.op_type == "Sum"]):
        node = graph.node[position]
        if len(node.input) < 2:
            continue
        total, additions = node.input[0], []
        for index, operand in enumerate(node.input[1:], start=1):
            result = node.output[0] if index == len(node.input) - 1 else f"{node.output[0]}_tcl_{index}"
            additions.append(helper.make_node("Add", [total, operand], [result], name=node.name))
            total = result
        graph.node.remove(node)
        for addition in reversed(additions):
            graph.node.insert(position, addition)


def rename_inputs(model: Any) -> None:
    """Give the graph's inputs names that are identifiers in Relax, in place: ``input_0``, ``input_1``, ...

    Original names may hold any character; only `TensorSpec` keeps them.
    """
    graph = model.graph
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    prefix = "input"
    while any(name.startswith(f"{prefix}_") for name in taken):
        prefix = f"_{prefix}"
    renamed = {value.name: f"{prefix}_{index}" for index, value in enumerate(graph.input)}
    for value in graph.input:
        value.name = renamed[value.name]
    _rename_uses(graph, renamed)


def _rename_uses(graph: Any, renamed: dict[str, str]) -> None:
    for value in graph.output:
        value.name = renamed.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        for inner in subgraphs(node):
            _rename_uses(inner, renamed)
