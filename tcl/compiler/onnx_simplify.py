"""From the model a user wrote to the plain graph TVM imports: old operator sets, dead branches and Dropout are gone."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tcl.compiler.onnx_reader import first_line, subgraphs
from tcl.errors import BadInput

# Below it TVM's importer reads some operators by their newer definition.
_OLDEST_OPSET = 13
_PROTOBUF_LIMIT = 1 << 30


def convert_opset(path: Path, model: Any) -> Any:
    """Return the model with at least operator set 13, or itself where no conversion exists and none is needed.

    Raises
    ------
    BadInput
        When the operator set is so old that onnxruntime does not promise to run it, and cannot be converted.
    """
    import onnx

    version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), _OLDEST_OPSET)
    if version >= _OLDEST_OPSET or model.ByteSize() > _PROTOBUF_LIMIT:
        return model
    try:
        return onnx.version_converter.convert_version(model, _OLDEST_OPSET)
    except Exception as error:  # the converter raises RuntimeError and its own errors
        if version >= 7:
            return model
        raise BadInput(
            f"{path}: its operator set {version} is too old and cannot be converted ({first_line(error)}); export the"
            " model with operator set 13 or newer"
        ) from None


def simplify(path: Path, model: Any) -> Any:
    """Return the model as onnxruntime's basic optimisations leave it: constants folded, Dropout and Identity removed.

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
    import onnxruntime

    with tempfile.TemporaryDirectory(prefix="tcl-onnx-") as folder:
        source, target = Path(folder, "pinned.onnx"), Path(folder, "simple.onnx")
        large = model.ByteSize() > _PROTOBUF_LIMIT
        onnx.save_model(model, str(source), save_as_external_data=large, location="pinned.data")
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(target)
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        if large:
            options.add_session_config_entry(
                "session.optimized_model_external_initializers_file_name", "simple.data"
            )
        try:
            onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises a dozen classes of its own
            raise BadInput(
                f"{path}: onnxruntime cannot load the model: {_without_folder(error, folder)}"
            ) from None
        return onnx.load_model(str(target))


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


def _without_folder(error: BaseException, folder: str) -> str:
    text = first_line(error).replace(folder, "")
    return text.split(" : ", 2)[-1].strip()
