"""An ONNX file in, a Relax module with constant weights out."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tcl.compiler.frontend.inputs import integer_bound
from tcl.compiler.frontend.precision import refuse_element_types
from tcl.compiler.frontend.reader import first_line, load_onnx
from tcl.compiler.frontend.refusals import refuse_dynamic_nodes, refuse_unknown_operators
from tcl.compiler.frontend.shapes import pin_shapes, pin_values, refuse_size
from tcl.compiler.frontend.simplify import convert_opset, rename_inputs, simplify
from tcl.compiler.tensors import DTYPES, TensorSpec
from tcl.errors import BadInput


@dataclass(frozen=True)
class OnnxModel:
    """A model that is ready to be imported.

    Attributes
    ----------
    path
        The ONNX file.
    sha256
        Of the file and its external data, in hex.
    original
        ``onnx.ModelProto`` as written by the user, but with pinned inputs: what a compiled package must agree
        with.
    proto
        ``onnx.ModelProto``, pinned and simplified, with identifiers as input names: what TVM imports; None once it
        has.
    inputs, outputs
        In the file's order, with the file's names.
    values
        Inputs of the file that were pinned to a value.
    """

    path: Path
    sha256: str
    original: Any
    proto: Any
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    values: dict[str, list[int]] = field(default_factory=dict)


def read_onnx(
    path: Path | str,
    shapes: Mapping[str, Sequence[int]] | None = None,
    symbols: Mapping[str, int] | None = None,
    values: Mapping[str, Sequence[int]] | None = None,
) -> OnnxModel:
    """Read an ONNX file, refuse what cannot be compiled, pin its shapes and simplify it.

    Parameters
    ----------
    path
        The ``.onnx`` file; external data lies in its folder.
    shapes
        Shapes of inputs with symbolic dimensions, by input name.
    symbols
        Extents of symbolic dimensions, by symbol.
    values
        Values of integer inputs that decide shapes; they become constants and are no inputs any more.

    Raises
    ------
    BadInput
        When the file is damaged, has operators TVM cannot compile, or its shapes are not all known.
    """
    path = Path(path)
    original, sha256 = load_onnx(path)
    refuse_unknown_operators(path, original, _importable_operators())
    refuse_element_types(path, original)
    _drop_constant_inputs(original.graph)
    for value in (*original.graph.input, *original.graph.output):
        _dtype(path, value)
    pin_values(path, original, values or {})
    pin_shapes(path, original, shapes or {}, symbols or {})
    proto = simplify(path, convert_opset(path, original))
    refuse_dynamic_nodes(path, proto)
    outputs = tuple(_spec(path, value) for value in proto.graph.output)
    inputs = tuple(_input_spec(path, proto.graph, value) for value in proto.graph.input)
    rename_inputs(proto)
    pinned = {name: list(numbers) for name, numbers in (values or {}).items()}
    return OnnxModel(path, sha256, original, proto, inputs, outputs, pinned)


def import_relax(model: OnnxModel) -> Any:
    """Import a model into Relax.

    Returns
    -------
    tvm.IRModule
        One function ``main``; parameters in the order of `model.inputs`, weights as constants, normalisations
        decomposed, arithmetic on constants folded; returns a tensor, or a tuple of them in the order of the
        outputs.

    Raises
    ------
    BadInput
        When TVM's importer does not take a node, or what one makes is too large.
    """
    from tcl.compiler.bootstrap import import_tvm

    tvm = import_tvm()
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    from tcl.compiler.frontend.constants import fold_constants

    try:
        # The importer prints what it fails on, and warns of what the refusals have dealt with.
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            module = from_onnx(model.proto)
    except Exception as error:  # the importer raises whatever a converter meets
        raise BadInput(f"{model.path}: TVM cannot import the model: {first_line(error)}") from error
    _refuse_sizes(model.path, module)
    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        fold_constants(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
    ]
    return tvm.transform.Sequential(passes)(module)


def _refuse_sizes(path: Path, module: Any) -> None:
    """Refuse values within a model that no machine holds; what makes them has lost its name."""
    from tvm import relax, tirx

    for block in module["main"].body.blocks:
        for binding in block.bindings:
            made = binding.var.ty
            if isinstance(made, relax.TensorType) and isinstance(made.shape, relax.ShapeExpr):
                extents = [int(e) for e in made.shape.values if isinstance(e, tirx.IntImm)]
                refuse_size(path, "what a node makes", extents)


def _importable_operators() -> frozenset[str]:
    from tcl.compiler.bootstrap import import_tvm

    import_tvm()
    from tvm.relax.frontend.onnx import onnx_frontend

    return frozenset(onnx_frontend._get_convert_map())


def _drop_constant_inputs(graph: Any) -> None:
    """Remove weights from the list of inputs, where old files repeat them; the file's values are used."""
    constants = {tensor.name for tensor in graph.initializer}
    for value in [value for value in graph.input if value.name in constants]:
        graph.input.remove(value)


def _dtype(path: Path, value: Any) -> str:
    import onnx

    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise BadInput(
            f"{path}: {value.name!r} is a {kind or 'value without a type'}; only tensors can be compiled"
        )
    try:
        name = str(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
    except KeyError:
        name = "undefined"
    if name not in DTYPES:
        raise BadInput(f"{path}: {value.name!r} has dtype {name}; compiled are {', '.join(sorted(DTYPES))}")
    return name


def _input_spec(path: Path, graph: Any, value: Any) -> TensorSpec:
    spec = _spec(path, value)
    return replace(spec, high=integer_bound(graph, value.name)) if "int" in spec.dtype else spec


def _spec(path: Path, value: Any) -> TensorSpec:
    tensor_type = value.type.tensor_type
    dims = tensor_type.shape.dim
    if not tensor_type.HasField("shape") or any(not dim.HasField("dim_value") for dim in dims):
        raise BadInput(
            f"{path}: the shape of the output {value.name!r} depends on data; only static shapes can be"
            " compiled"
        )
    return TensorSpec(value.name, tuple(dim.dim_value for dim in dims), _dtype(path, value))
