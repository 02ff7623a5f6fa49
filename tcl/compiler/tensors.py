"""Names, shapes and dtypes of a model's inputs and outputs, and the check of what a user feeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tcl.errors import BadInput

DTYPES = frozenset(
    {"bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64"}
    | {"uint8", "uint16", "uint32", "uint64"}
)
"""Element types of inputs and outputs that are compiled."""
MOST_ELEMENTS = 1 << 32
"""Elements that a tensor may have: 16 GiB of float32, more than any network has in one."""


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a model.

    Attributes
    ----------
    name
        As in the ONNX file, whatever characters it has.
    shape
        Static extents; ``()`` is a scalar.
    dtype
        NumPy's name of the element type, e.g. ``float32``.
    high
        Of integer inputs that index a table, such as token ids: the table's extent. Values from ``-high`` to
        ``high - 1`` are valid; the compiled program does not check them.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    high: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the spec as a JSON object; `from_json` reads it back."""
        return {**asdict(self), "shape": list(self.shape)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TensorSpec:
        """Read what `to_json` returned.

        Raises
        ------
        KeyError, TypeError, ValueError
            When it is something else.
        """
        name, shape, high = value["name"], tuple(value["shape"]), value.get("high")
        if not all(type(extent) is int and extent >= 0 for extent in shape) or is_too_large(shape):
            raise ValueError(f"no tensor has the shape {list(shape)}")
        if value["dtype"] not in DTYPES:
            raise ValueError(f"no tensor has the dtype {value['dtype']!r}")
        if not isinstance(name, str) or type(high) not in (int, type(None)):
            raise ValueError("a tensor's name is a text, and what it indexes a number")
        name.encode()
        return cls(name, shape, value["dtype"], high)

    def __str__(self) -> str:
        return f"{self.name!r} {self.dtype}[{'x'.join(str(extent) for extent in self.shape)}]"


def is_too_large(shape: Sequence[int]) -> bool:
    """Whether a tensor has more than `MOST_ELEMENTS`."""
    return math.prod(shape) > MOST_ELEMENTS


def check_feed(specs: Sequence[TensorSpec], feed: Mapping[str, Any]) -> list[np.ndarray]:
    """Return the arrays of `feed` in the order of `specs`, C-contiguous.

    Parameters
    ----------
    specs
        The inputs of the model.
    feed
        An array (or anything that is one by ``np.asarray``) for each input, by its original name.

    Raises
    ------
    BadInput
        When an input is missing, unknown, of another shape or dtype, or indexes beyond a table. Nothing is
        cast or broadcast.
    """
    names = [spec.name for spec in specs]
    for name in feed:
        if name not in names:
            raise BadInput(f"the model has no input {name!r}; its inputs are {_listing(specs)}")
    arrays = []
    for spec in specs:
        if spec.name not in feed:
            raise BadInput(f"the input {spec.name!r} is missing; the inputs are {_listing(specs)}")
        array = np.asarray(feed[spec.name])
        if array.dtype != np.dtype(spec.dtype):
            raise BadInput(f"the input {spec.name!r} must have dtype {spec.dtype}, not {array.dtype}")
        if array.shape != spec.shape:
            raise BadInput(f"the input {spec.name!r} must have shape {spec.shape}, not {array.shape}")
        if (
            spec.high is not None
            and array.size
            and not (-spec.high <= array.min() and array.max() < spec.high)
        ):
            raise BadInput(
                f"the input {spec.name!r} holds {array.min()} to {array.max()}, but it indexes {spec.high}"
                f" entries; its values must lie in [-{spec.high}, {spec.high - 1}]"
            )
        # ascontiguousarray would turn a scalar into a vector of one.
        arrays.append(np.require(array, requirements="C"))
    return arrays


def _listing(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(map(str, specs)) or "none"
