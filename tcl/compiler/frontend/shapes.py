"""Pinning: every extent of every input becomes a number, and inputs that decide shapes become constants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tcl.compiler.tensors import MOST_ELEMENTS, is_too_large
from tcl.errors import BadInput

_FLAG = re.compile(r"(?P<name>.+)=(?:(?P<shape>\d+(?:x\d+)*)|\[(?P<values>[-\d,\s]*)\])")

_MOST_DIGITS = 18  # that fit into an ONNX file


def parse_pins(
    flags: Iterable[str],
) -> tuple[dict[str, tuple[int, ...]], dict[str, int], dict[str, tuple[int, ...]]]:
    """Parse the values of ``--shape``: the last three arguments of `tcl.compiler.frontend.model.read_onnx`.

    ``NAME=1x3x8x8`` is the shape of an input, ``N=4`` the extent of a symbolic dimension (or of an input of
    rank 1), and ``NAME=[2,8]`` the value of an integer input that decides a shape.

    Returns
    -------
    (dict, dict, dict)
        Shapes, symbols, values.

    Raises
    ------
    BadInput
        When a flag has another form or a name comes twice.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    symbols: dict[str, int] = {}
    values: dict[str, tuple[int, ...]] = {}
    for flag in flags:
        match = _FLAG.fullmatch(flag)
        if match is None:
            raise BadInput(
                f"--shape {flag}: write NAME=1x3x224x224 for an input, N=1 for a symbolic dimension or"
                " NAME=[2,8] for the value of an input"
            )
        name = match["name"]
        if name in shapes or name in symbols or name in values:
            raise BadInput(f"--shape {flag}: {name!r} is pinned twice; keep one")
        if any(len(extent) > _MOST_DIGITS for extent in (match["shape"] or "").split("x")):
            raise BadInput(f"--shape {name}=...: no extent has more than {_MOST_DIGITS} digits")
        if match["values"] is not None:
            try:
                values[name] = tuple(int(item) for item in match["values"].split(",") if item.strip())
            except ValueError:
                raise BadInput(f"--shape {flag}: the values between [ and ] must be whole numbers") from None
        elif "x" in match["shape"]:
            shapes[name] = tuple(int(extent) for extent in match["shape"].split("x"))
        else:
            symbols[name] = int(match["shape"])
    return shapes, symbols, values


def pin_values(path: Path, model: Any, values: Mapping[str, Sequence[int]]) -> None:
    """Turn inputs into constants, in place.

    Raises
    ------
    BadInput
        When a name is no input, or the values do not fit its dtype or element count.
    """
    import numpy as np
    import onnx

    inputs = {value.name: value for value in model.graph.input}
    for name, numbers in values.items():
        if name not in inputs:
            raise _unknown(path, name, inputs)
        tensor_type = inputs[name].type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor_type.elem_type)
        if not np.issubdtype(dtype, np.integer):
            raise BadInput(
                f"{path}: the input {name!r} is {dtype}; only integer inputs can be pinned to a value"
            )
        extents = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in tensor_type.shape.dim)
        try:
            array = np.array(numbers, dtype=dtype).reshape(extents)
        except (ValueError, OverflowError):
            raise BadInput(
                f"{path}: the {len(numbers)} values for the input {name!r} do not fit its type"
                f" {dtype}{list(extents)}"
            ) from None
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        model.graph.input.remove(inputs[name])


def pin_shapes(
    path: Path, model: Any, shapes: Mapping[str, Sequence[int]], symbols: Mapping[str, int]
) -> None:
    """Write a number into every dimension of every input, in place.

    Stale shapes of inner values and of outputs are dropped, so that onnxruntime infers them anew.

    Raises
    ------
    BadInput
        When a name is unknown, a shape contradicts the model or another shape, or dimensions stay open; the
        message then lists them and how to pin them.
    """
    inputs = {value.name: value for value in model.graph.input}
    shapes, symbols = dict(shapes), dict(symbols)
    known_symbols = {
        d.dim_param for v in inputs.values() for d in v.type.tensor_type.shape.dim if d.dim_param
    }
    for name in [name for name in symbols if name not in known_symbols and name in inputs]:
        shapes[name] = (symbols.pop(name),)
    for name in shapes:
        if name not in inputs:
            raise _unknown(path, name, inputs)
    for name in symbols:
        if name not in known_symbols:
            listing = ", ".join(sorted(known_symbols)) or "none"
            raise BadInput(
                f"{path}: no input or symbolic dimension is called {name!r}; symbolic are: {listing}"
            )
    for name, shape in shapes.items():
        _bind(path, inputs[name], shape, symbols)
    _refuse_extents(path, [*symbols.items()])
    missing = []
    for name, value in inputs.items():
        tensor_type = value.type.tensor_type
        for dim in tensor_type.shape.dim:
            if dim.dim_param in symbols and not dim.HasField("dim_value"):
                dim.dim_value = symbols[dim.dim_param]
        if not tensor_type.HasField("shape") or any(
            not d.HasField("dim_value") for d in tensor_type.shape.dim
        ):
            missing.append(value)
        extents = [d.dim_value for d in tensor_type.shape.dim if d.HasField("dim_value")]
        _refuse_extents(path, [(name, extent) for extent in extents])
        refuse_size(path, repr(name), extents)
    if missing:
        raise BadInput(f"{path}: {_open_dimensions(missing)}")
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")


def _bind(path: Path, value: Any, shape: Sequence[int], symbols: dict[str, int]) -> None:
    tensor_type = value.type.tensor_type
    given = "x".join(str(extent) for extent in shape)
    if not tensor_type.HasField("shape"):
        for _ in shape:
            tensor_type.shape.dim.add()
    dims = tensor_type.shape.dim
    if len(dims) != len(shape):
        raise BadInput(
            f"{path}: the input {value.name!r} has rank {len(dims)}, not {len(shape)} as in {given}"
        )
    for axis, (dim, extent) in enumerate(zip(dims, shape, strict=True)):
        fixed = dim.dim_value if dim.HasField("dim_value") else symbols.get(dim.dim_param, extent)
        if fixed != extent:
            what = f"{dim.dim_param}={fixed}" if dim.dim_param else str(fixed)
            raise BadInput(
                f"{path}: axis {axis} of the input {value.name!r} is {what}, not {extent} as in {given}"
            )
        if dim.dim_param:
            symbols[dim.dim_param] = extent
        dim.dim_value = extent


def refuse_size(path: Path, what: str, shape: Sequence[int]) -> None:
    """Refuse a value of a model that is larger than a tensor may be.

    Raises
    ------
    BadInput
        Then, naming it.
    """
    if is_too_large(shape):
        raise BadInput(
            f"{path}: {what} has {'x'.join(map(str, shape))} elements, and a tensor may have at most"
            f" {MOST_ELEMENTS}; pin or export the model with smaller extents"
        )


def _refuse_extents(path: Path, extents: Iterable[tuple[str, int]]) -> None:
    for name, extent in extents:
        if extent < 1:
            raise BadInput(f"{path}: an extent of {name!r} is {extent}; every extent must be at least 1")


def _open_dimensions(values: Sequence[Any]) -> str:
    listing, flags = [], []
    symbols: dict[str, None] = {}
    for value in values:
        dims = [
            str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?"
            for d in value.type.tensor_type.shape.dim
        ]
        ranked = value.type.tensor_type.HasField("shape")
        listing.append(f"{value.name!r} [{', '.join(dims)}]" if ranked else f"{value.name!r} of unknown rank")
        example = "x".join(d if d.isdigit() else "1" for d in dims) if ranked else "1x..."
        flags.append(f"--shape '{value.name}={example}'")
        symbols.update({d: None for d in dims if not d.isdigit() and d != "?"})
    advice = " ".join(flags)
    if symbols:
        advice += f" or {' '.join(f'--shape {symbol}=1' for symbol in symbols)}"
    return f"these inputs have symbolic dimensions: {', '.join(listing)}; pin them, e.g. {advice}"


def _unknown(path: Path, name: str, inputs: Iterable[str]) -> BadInput:
    return BadInput(f"{path}: the model has no input {name!r}; its inputs are: {', '.join(inputs) or 'none'}")
