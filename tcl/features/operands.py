"""Which axes of a block index its data and its weights, by the field's names and layouts of operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcl.features.tracker import Tile


def operand_sides(name: str, axes: int) -> list[str]:
    """For each spatial axis of a block, the operands it indexes: d (data), w (weight), or both."""
    name = name.lower()
    if "depthwise" in name:
        return ["dw" if axis in (1, 4) else "d" for axis in range(axes)]
    if "nhwc" in name:
        return ["w" if axis == axes - 1 else "d" for axis in range(axes)]
    if name.startswith(("conv", "group")):
        return ["w" if axis in (1, 4) else "d" for axis in range(axes)]
    if any(word in name for word in ("pool", "softmax", "reduce", "elementwise")):
        return ["d"] * axes
    if "batch_matmul" in name:
        return ["dw"] * (axes - 2) + ["d", "w"][-axes:]
    return ["d"] * (axes - 1) + ["w"] if axes else []


class Operands:
    """Which axes index the data and the weights of a block, by the field's names and layouts of operators."""

    def __init__(self, name: str, spatial: list[Tile], reduce: list[Tile]) -> None:
        self.name, self.spatial, self.reduce = name.lower(), spatial, reduce
        self.sides = operand_sides(name, len(spatial))
        self.depthwise = "depthwise" in self.name or self.name.startswith("pool")
        first = 1 if "nhwc" in self.name else 2
        kernel = 0 if self.depthwise or "nhwc" in self.name else 1
        self.window: dict[int, Tile] = {}
        """The kernel's axis that slides along a spatial axis, by the latter's position."""
        if self.name.startswith(("conv", "depthwise", "group", "pool")) and len(spatial) >= 4:
            self.window = dict(zip((first, first + 1), reduce[kernel : kernel + 2], strict=False))

    def elements(self, levels: list[int], steps: list[int]) -> tuple[Any, Any]:
        """log2 of the elements of the data and of the weights that some levels touch; 0 where there are no weights."""
        data: Any = 0.0
        weights: Any = 0.0
        for axis, (tile, side) in enumerate(zip(self.spatial, self.sides, strict=True)):
            part = part_of(tile, levels)
            if "w" in side:
                weights = weights + part
            if "d" in side:
                data = data + (self._slid(axis, part, steps) if axis in self.window else part)
        sliding = list(self.window.values())
        for tile in self.reduce:
            weights = weights + part_of(tile, steps)
            if not any(tile is other for other in sliding):
                data = data + part_of(tile, steps)
        return data, weights if any("w" in side for side in self.sides) else 0.0

    def rows(self, levels: list[int], steps: list[int]) -> tuple[Any, Any]:
        """log2 of the elements of the data and of the weights that lie together in memory."""
        last = len(self.spatial) - 1
        along = part_of(self.spatial[-1], levels)
        deepest = part_of(self.reduce[-1], steps) if self.reduce else along
        if last in self.window:
            return self._slid(last, along, steps), sum((part_of(tile, steps) for tile in self.reduce), 0.0)
        return deepest if self.sides[-1] == "w" else along, along

    def _slid(self, axis: int, part: Any, steps: list[int]) -> Any:
        return log_of(power_of(part) + power_of(part_of(self.window[axis], steps)) - 1)


def part_of(tile: Tile, levels: list[int]) -> Any:
    """log2 of the extent of some levels of an axis together."""
    return sum(tile.logs[level] for level in levels)


def power_of(log: Any) -> Any:
    """What a bounded log2 stands for."""
    return np.exp2(np.clip(log, -40, 40))


def log_of(number: Any) -> Any:
    """log2, bounded from below."""
    return np.log2(np.maximum(number, 1e-9))
