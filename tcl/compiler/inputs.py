"""Inputs that a model can run on: seeded, within the ranges that its graph allows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tcl.compiler.tensors import TensorSpec

_DEFAULT_HIGH = 64
# Operators whose result holds the same values as their first input.
_PASSING = frozenset(
    {
        "Cast",
        "Concat",
        "Expand",
        "Flatten",
        "Identity",
        "Reshape",
        "Slice",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)


def random_inputs(specs: Sequence[TensorSpec], seed: int, scale: float = 1.0) -> dict[str, np.ndarray]:
    """Draw one array for each input: floats from a normal distribution, integers from their valid range.

    Parameters
    ----------
    specs
        The inputs.
    seed
        The same seed gives the same arrays.
    scale
        Standard deviation of floats.
    """
    rng = np.random.default_rng(seed)
    return {spec.name: _draw(spec, rng, scale) for spec in specs}


def zero_inputs(specs: Sequence[TensorSpec]) -> dict[str, np.ndarray]:
    """Return zeros for each input."""
    return {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}


def broken_inputs(specs: Sequence[TensorSpec], seed: int) -> dict[str, np.ndarray]:
    """Return random inputs with a few NaN and infinities among the floats."""
    rng = np.random.default_rng(seed)
    arrays = random_inputs(specs, seed)
    for array in arrays.values():
        if np.issubdtype(array.dtype, np.floating) and array.size:
            places = rng.integers(array.size, size=3)
            array.reshape(-1)[places] = [np.nan, np.inf, -np.inf]
    return arrays


def save_inputs(path: Path, specs: Sequence[TensorSpec], feed: dict[str, np.ndarray]) -> None:
    """Write arrays to an ``.npz`` file by position, since names may hold any character."""
    np.savez(path, *[feed[spec.name] for spec in specs])


def read_inputs(path: Path, specs: Sequence[TensorSpec]) -> dict[str, np.ndarray]:
    """Read what `save_inputs` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        return {spec.name: arrays[f"arr_{index}"] for index, spec in enumerate(specs)}


def integer_bound(graph: Any, name: str) -> int | None:
    """Return the value below which an integer input must stay, as far as the graph tells.

    Followed through casts and reshapes to a Gather (extent of the gathered axis), a OneHot (its depth) or an
    Equal with constants (their largest value and one).

    Parameters
    ----------
    graph
        A simplified ``onnx.GraphProto``.
    name
        The input's name in `graph`.
    """
    from onnx import numpy_helper

    constants = {tensor.name: tensor for tensor in graph.initializer}
    shapes = {value.name: value.type.tensor_type.shape.dim for value in (*graph.value_info, *graph.input)}
    bounds = []
    names = {name}
    for node in graph.node:
        taken = [position for position, value in enumerate(node.input) if value in names]
        if not taken:
            continue
        if node.op_type in ("Gather", "GatherElements") and taken == [1]:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            data = node.input[0]
            if data in constants:
                bounds.append(constants[data].dims[axis])
            elif shapes.get(data):
                bounds.append(shapes[data][axis].dim_value)
        elif node.op_type == "OneHot" and taken == [0] and node.input[1] in constants:
            bounds.append(int(numpy_helper.to_array(constants[node.input[1]]).max()))
        elif node.op_type == "Equal":
            others = [constants[value] for value in node.input if value in constants]
            bounds += [int(numpy_helper.to_array(other).max()) + 1 for other in others]
        elif node.op_type in _PASSING and 0 in taken:
            names.update(node.output)
    usable = [bound for bound in bounds if bound > 0]
    return min(usable) if usable else None


def _draw(spec: TensorSpec, rng: np.random.Generator, scale: float) -> np.ndarray:
    dtype = np.dtype(spec.dtype)
    if dtype == np.bool_:
        return rng.integers(2, size=spec.shape).astype(dtype)
    if np.issubdtype(dtype, np.floating):
        return (rng.standard_normal(spec.shape) * scale).astype(dtype)
    if spec.high is None and dtype.itemsize == 1:  # images and quantised values
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, size=spec.shape, dtype=dtype, endpoint=True)
    high = spec.high or (2 if "mask" in spec.name.lower() else _DEFAULT_HIGH)
    return rng.integers(min(high, np.iinfo(dtype).max), size=spec.shape).astype(dtype)
