"""What a tensor program computes, apart from how it is scheduled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite, log2, prod
from typing import Any

import numpy as np

OPS = (
    "conv2d",
    "depthwise_conv2d",
    "matmul",
    "batch_matmul",
    "pool",
    "reduce",
    "softmax",
    "elementwise",
    "other",
)
"""Kinds of anchor block."""

_DTYPES = {"float32": 0, "float16": 1, "bfloat16": 1, "int8": 2, "uint8": 2}
_OTHER_DTYPE = 3
_SPATIAL_SLOTS = 6
_REDUCE_SLOTS = 5
_SCALARS = 8
WORKLOAD_WIDTH = len(OPS) + 4 + _SCALARS + _SPATIAL_SLOTS + _REDUCE_SLOTS
"""Values of a workload's vector (W)."""


@dataclass(frozen=True)
class WorkloadSummary:
    """A tensor program in a few numbers.

    Attributes
    ----------
    op : str
        Kind of the anchor block, one of `OPS`.
    dtype : str
        Element type of the anchor block's output, e.g. ``float32``.
    flops : float
        Floating-point operations of the whole program.
    read_bytes, write_bytes : float
        Size of the program's inputs and outputs in bytes.
    spatial, reduce : tuple of int
        Loop extents of the anchor block, outermost first.
    blocks : int
        Blocks in the program (1 = the anchor alone).

    Raises
    ------
    ValueError
        From the constructor, when a number is infinite or none.
    """

    op: str
    dtype: str
    flops: float
    read_bytes: float
    write_bytes: float
    spatial: tuple[int, ...]
    reduce: tuple[int, ...]
    blocks: int

    def __post_init__(self) -> None:
        if not all(map(isfinite, (self.flops, self.read_bytes, self.write_bytes))):
            raise ValueError("a program's operations and bytes are finite")

    def to_json(self) -> dict[str, Any]:
        """The summary as a JSON object."""
        return {**asdict(self), "spatial": list(self.spatial), "reduce": list(self.reduce)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WorkloadSummary:
        """Reads what `to_json` wrote; raises KeyError, TypeError, ValueError or OverflowError on anything else."""
        return cls(
            op=str(data["op"]),
            dtype=str(data["dtype"]),
            flops=float(data["flops"]),
            read_bytes=float(data["read_bytes"]),
            write_bytes=float(data["write_bytes"]),
            spatial=tuple(int(extent) for extent in data["spatial"]),
            reduce=tuple(int(extent) for extent in data["reduce"]),
            blocks=int(data["blocks"]),
        )

    def vector(self) -> np.ndarray:
        """The summary as float32[WORKLOAD_WIDTH], logarithmic and scaled to about [0, 4].

        Spatial extents are aligned at the innermost axis (the last slot), reduction extents at the outermost
        (the first slot), so that channels, width and kernel sizes fall into the same slots across workloads.
        """
        size = self.read_bytes + self.write_bytes
        points = prod(self.spatial)
        scalars = (
            _log(self.flops) / 10,
            _log(self.read_bytes) / 8,
            _log(self.write_bytes) / 8,
            _log(self.flops / max(size, 1.0)) / 4,
            _log(points) / 8,
            _log(prod(self.reduce)) / 5,
            _log(self.blocks) / 2,
            _log(self.read_bytes / max(self.write_bytes, 1.0)) / 4,
        )
        op = OPS.index(self.op) if self.op in OPS else OPS.index("other")
        one_hot = np.zeros(len(OPS) + 4, np.float32)
        one_hot[op] = 1
        one_hot[len(OPS) + _DTYPES.get(self.dtype, _OTHER_DTYPE)] = 1
        spatial = [_log(extent) / 4 for extent in self.spatial[-_SPATIAL_SLOTS:]]
        reduce = [_log(extent) / 4 for extent in self.reduce[:_REDUCE_SLOTS]]
        spatial = [0.0] * (_SPATIAL_SLOTS - len(spatial)) + spatial
        reduce = reduce + [0.0] * (_REDUCE_SLOTS - len(reduce))
        return np.concatenate([one_hot, np.array([*scalars, *spatial, *reduce], np.float32)])


def _log(value: float) -> float:
    """log2(1 + value), bounded so that absurd inputs stay finite."""
    return log2(1 + min(max(value, 0.0), 2.0**60))
