"""Ansor's workload keys: JSON lists of a name and arguments, e.g. ``["matmul_layer", 128, 4032, 1000]``."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import prod
from typing import Any

from tcl.features.workload import WorkloadSummary

_FLOAT_BYTES = 4
_LENGTHS = {"conv2d_layer": 10, "depthwise_conv2d_layer": 9, "pool_layer": 10}
"""Length of the keys that end with kernel height, kernel width, stride and padding."""


def normalise_key(key: str) -> str:
    """The same text for the same workload, whichever device's log it comes from.

    Logs write padding as a number or as ``SAME`` or ``VALID``; here it is the number on each side. A key of
    any other form comes back as it is.
    """
    arguments = _parse(key)
    if not arguments or _LENGTHS.get(str(arguments[0])) != len(arguments):
        return key
    kernel, padding = arguments[-4], arguments[-1]
    if padding == "SAME" and isinstance(kernel, int):
        padding = (kernel - 1) // 2
    elif padding == "VALID":
        padding = 0
    return json.dumps([*arguments[:-1], padding])


def summary_of_key(key: str) -> WorkloadSummary:
    """What an Ansor workload key says of its workload; an unknown name is of kind ``other``."""
    arguments = _parse(normalise_key(key))
    try:
        name, *numbers = arguments
        summary = _SUMMARIES[name]
        # A pool's kind is a text, a reduction's shape a list. Elsewhere either, times a number, would fill the memory.
        if name == "reduction_layer" and numbers and isinstance(numbers[0], list):
            extents = [*numbers[0], *numbers[1:]]
        else:
            extents = numbers[1:] if name == "pool_layer" else numbers
        if not all(isinstance(extent, int) for extent in extents):
            raise TypeError("extents are integers")
        return summary(*numbers)
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return WorkloadSummary("other", "float32", 0.0, 0.0, 0.0, (), (), 1)


def _parse(key: str) -> list[Any]:
    try:
        arguments = json.loads(key)
    except ValueError:
        return []
    return arguments if isinstance(arguments, list) else []


def _summary(
    op: str,
    operations: float,
    read: float,
    spatial: tuple[int, ...],
    reduce: tuple[int, ...] = (),
    blocks: int = 1,
) -> WorkloadSummary:
    """`operations` for each output point and reduction step; `read` in elements."""
    if min((*spatial, *reduce), default=1) < 1:
        raise ValueError("extents are positive")
    points = prod(spatial)
    flops = float(operations * points * prod(reduce))
    read_bytes, write_bytes = float(read * _FLOAT_BYTES), float(points * _FLOAT_BYTES)
    return WorkloadSummary(op, "float32", flops, read_bytes, write_bytes, spatial, reduce, blocks)


def _window(size: int, kernel: int, stride: int, padding: int) -> int:
    return (size + 2 * padding - kernel) // stride + 1


def _conv2d(
    n: int, ci: int, h: int, w: int, co: int, kh: int, kw: int, stride: int, padding: int
) -> WorkloadSummary:
    spatial = (n, co, _window(h, kh, stride, padding), _window(w, kw, stride, padding))
    return _summary("conv2d", 2, n * ci * h * w + co * ci * kh * kw, spatial, (ci, kh, kw), 2)


def _depthwise(
    n: int, c: int, h: int, w: int, kh: int, kw: int, stride: int, padding: int
) -> WorkloadSummary:
    spatial = (n, c, _window(h, kh, stride, padding), _window(w, kw, stride, padding))
    return _summary("depthwise_conv2d", 2, n * c * h * w + c * kh * kw, spatial, (kh, kw), 2)


def _pool(
    _kind: str, n: int, c: int, h: int, w: int, kh: int, kw: int, stride: int, padding: int
) -> WorkloadSummary:
    spatial = (n, c, _window(h, kh, stride, padding), _window(w, kw, stride, padding))
    return _summary("pool", 1, n * c * h * w, spatial, (kh, kw), 2)


def _matmul(m: int, k: int, n: int) -> WorkloadSummary:
    return _summary("matmul", 2, m * k + k * n, (m, n), (k,))


def _batch_matmul(b: int, m: int, k: int, n: int) -> WorkloadSummary:
    return _summary("batch_matmul", 2, b * (m * k + k * n), (b, m, n), (k,))


def _reduction(shape: list[int], axis: int, _keepdims: bool) -> WorkloadSummary:
    axis %= len(shape)
    rest = tuple(extent for index, extent in enumerate(shape) if index != axis)
    return _summary("reduce", 1, prod(shape), rest, (shape[axis],))


def _softmax(*shape: int) -> WorkloadSummary:
    return _summary("softmax", 4, prod(shape), shape, (), 4)


def _elementwise(*shape: int) -> WorkloadSummary:
    return _summary("elementwise", 1, prod(shape), shape)


_SUMMARIES: dict[str, Callable[..., WorkloadSummary]] = {
    "conv2d_layer": _conv2d,
    "depthwise_conv2d_layer": _depthwise,
    "pool_layer": _pool,
    "matmul_layer": _matmul,
    "batch_matmul_layer": _batch_matmul,
    "reduction_layer": _reduction,
    "softmax_layer": _softmax,
    "relu_layer": _elementwise,
}
