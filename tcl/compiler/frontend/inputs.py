"""Inputs that a model can run on: seeded, within the ranges that its graph allows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tcl.compiler.tensors import TensorSpec

_DEFAULT_HIGH = 256
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
    # NumPy makes a scalar of arithmetic on arrays without axes.
    return {spec.name: np.asarray(_draw(spec, rng, scale)) for spec in specs}


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


def extreme_inputs(specs: Sequence[TensorSpec], seed: int) -> dict[str, np.ndarray]:
    """Return random inputs whose floats are the largest, the smallest and ordinary numbers of their type."""
    rng = np.random.default_rng(seed)
    arrays = random_inputs(specs, seed)
    for name, array in arrays.items():
        if np.issubdtype(array.dtype, np.floating):
            about = np.finfo(array.dtype)
            numbers = np.array([about.max, about.min, about.tiny, -about.tiny, 0, 1, -1], array.dtype)
            arrays[name] = np.asarray(rng.choice(numbers, size=array.shape))
    return arrays


def save_inputs(path: Path, specs: Sequence[TensorSpec], feed: dict[str, np.ndarray]) -> None:
    """Write arrays to an ``.npz`` file by position, since names may hold any character."""
    np.savez(path, *[feed[spec.name] for spec in specs])


def read_inputs(path: Path, specs: Sequence[TensorSpec]) -> dict[str, np.ndarray]:
    """Read what `save_inputs` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        return {spec.name: arrays[f"arr_{index}"] for index, spec in enumerate(specs)}


def integer_bound(graph: Any, name: str) -> int | None:
    """Return the extent that an integer input indexes, or None where it indexes nothing.

    Followed through casts and reshapes to the gathered axis of a Gather: a token id has to be smaller than
    the vocabulary.

    Parameters
    ----------
    graph
        A simplified ``onnx.GraphProto``.
    name
        The input's name in `graph`.
    """
    extents = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.value_info, *graph.input):
        extents[value.name] = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    bounds, names = [], {name}
    for node in graph.node:
        taken = [position for position, value in enumerate(node.input) if value in names]
        if node.op_type in ("Gather", "GatherElements") and taken == [1] and extents.get(node.input[0]):
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
            bounds.append(extents[node.input[0]][axis])
        elif node.op_type in _PASSING and taken:
            names.update(node.output)
    return min((bound for bound in bounds if bound > 0), default=None)


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
