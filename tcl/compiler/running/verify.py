"""Verification: a package's results against onnxruntime's on the model as the user wrote it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tcl.compiler.frontend.inputs import (
    broken_inputs,
    extreme_inputs,
    random_inputs,
    read_inputs,
    save_inputs,
    zero_inputs,
)
from tcl.compiler.frontend.precision import QUANTISED, coarsest_type
from tcl.compiler.frontend.reader import saved_onnx
from tcl.compiler.frontend.reference import Reference
from tcl.compiler.running.loader import Package, load
from tcl.compiler.running.remote import RemotePackage, run_on_board
from tcl.compiler.tensors import TensorSpec
from tcl.devices.device import Rpc
from tcl.errors import WorkFailed, WrongResults
from tcl.processes import has_crashed, run_module, why_failed

if TYPE_CHECKING:
    from tcl.compiler.frontend.model import OnnxModel

TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, QUANTISED: 5e-2, "int8": 1.0, "uint8": 1.0}
"""Largest error allowed, by the output's dtype, or by the type that the model computes in where that is coarser.

Floats: relative to the largest magnitude of the expected output (sums are taken in another order). 8-bit
integers, which come from rounding floats: one step; of quantised models, relative as well. All other dtypes must be
equal.
"""
_TIMEOUT_SECONDS = 1800.0
_BROKEN, _EXTREME = "nan", "extreme"
_TINY = 1e-38


@dataclass(frozen=True)
class Verification:
    """How close a package is to onnxruntime.

    Attributes
    ----------
    max_abs
        Largest absolute difference over all outputs and inputs tried.
    max_rel
        Largest difference relative to the largest magnitude of its output; what the tolerance bounds for
        floats.
    tolerance
        The tolerance for each output dtype.
    inputs
        The kinds of inputs tried.
    nan_agrees
        Whether NaN and infinities in the input reach the same places of the output. Reported, not demanded:
        engines differ in what a maximum makes of NaN. None where no input is a float.
    extreme_agrees
        The same for the largest and smallest numbers of the input's type, where sums overflow in one order and
        not in another.
    """

    max_abs: float
    max_rel: float
    tolerance: dict[str, float]
    inputs: tuple[str, ...]
    nan_agrees: bool | None
    extreme_agrees: bool | None

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {**asdict(self), "inputs": list(self.inputs)}


def verify(
    folder: Path,
    model: OnnxModel,
    threads: int = 1,
    tolerances: Mapping[str, float] | None = None,
    rpc: Rpc | None = None,
) -> Verification:
    """Compare a package with onnxruntime on random, zero, large, extreme and broken inputs.

    The package runs in a process of its own, so that a crash is a result and not the end.

    Parameters
    ----------
    folder
        The package.
    model
        What it was compiled from.
    threads
        For onnxruntime; the package uses its device's.
    tolerances
        Overrides of `TOLERANCES`.
    rpc
        The board to run the package on; None: this machine.

    Raises
    ------
    BadInput
        When the package is damaged, or not for this machine.
    DeviceLost
        When the board cannot be reached, or goes away meanwhile.
    WrongResults
        When the package crashes, or an output differs by more than the tolerance; the message names the worst
        output.
    WorkFailed
        When the package could not be run for another reason, for want of memory for instance.
    """
    limits = {**TOLERANCES, **(tolerances or {})}
    feeds = {
        "random": random_inputs(model.inputs, seed=0),
        "random again": random_inputs(model.inputs, seed=1),
        "zeros": zero_inputs(model.inputs),
        "large": random_inputs(model.inputs, seed=2, scale=10.0),
    }
    if any(spec.dtype.startswith("float") for spec in model.inputs):
        feeds[_BROKEN] = broken_inputs(model.inputs, seed=3)
        feeds[_EXTREME] = extreme_inputs(model.inputs, seed=4)
    expected = _expected(model, threads, feeds)
    actual = _run_apart(folder, model.inputs, model.outputs, feeds, rpc)
    reported = {
        kind: _same_places(expected.pop(kind), actual.pop(kind))
        for kind in (_BROKEN, _EXTREME)
        if kind in feeds
    }
    coarsest = coarsest_type(model.original)
    bounds = {spec.dtype: _bound(spec.dtype, coarsest, limits) for spec in model.outputs}
    max_abs = max_rel = 0.0
    for kind in expected:
        for spec in model.outputs:
            limit, is_relative = bounds[spec.dtype]
            absolute, relative = difference(expected[kind][spec.name], actual[kind][spec.name])
            error = relative if is_relative else absolute
            if not error <= limit:  # also when it is NaN
                raise WrongResults(
                    f"the compiled model disagrees with onnxruntime: output {spec.name!r} ({spec.dtype})"
                    f" differs by {error:.3g} on {kind} inputs, allowed is {limit:g}; nothing was exported"
                )
            max_abs, max_rel = max(max_abs, absolute), max(max_rel, relative)
    tolerance = {dtype: limit for dtype, (limit, _) in sorted(bounds.items())}
    return Verification(
        max_abs, max_rel, tolerance, tuple(expected), reported.get(_BROKEN), reported.get(_EXTREME)
    )


def _expected(
    model: OnnxModel, threads: int, feeds: Mapping[str, dict[str, np.ndarray]]
) -> dict[str, dict[str, np.ndarray]]:
    """onnxruntime's results; its copy of the weights is gone when the package loads its own."""
    with saved_onnx(model.original, model.path.parent) as path:
        reference = Reference(path, threads)
        return {kind: reference(feed) for kind, feed in feeds.items()}


def _bound(dtype: str, coarsest: str | None, limits: Mapping[str, float]) -> tuple[float, bool]:
    """The error that an output may have, and whether that is relative."""
    limit, floor = limits.get(dtype, 0.0), limits.get(coarsest or "", 0.0)
    if dtype.startswith("float"):
        return max(limit, floor), True
    if coarsest == QUANTISED and dtype in ("int8", "uint8"):
        return floor, True
    return limit, False


def difference(expected: np.ndarray, actual: np.ndarray) -> tuple[float, float]:
    """Return the largest difference of two arrays, absolute and relative to the largest magnitude expected.

    Equal infinities, and NaN in the same place, do not differ; other NaN and infinities, and other shapes or
    dtypes, differ infinitely.
    """
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return np.inf, np.inf
    if expected.size == 0:
        return 0.0, 0.0
    left, right = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(left)
    if (
        not np.array_equal(left[~finite], right[~finite], equal_nan=True)
        or not np.isfinite(right[finite]).all()
    ):
        return np.inf, np.inf
    absolute = float(np.abs(left[finite] - right[finite]).max(initial=0.0))
    scale = float(np.abs(left[finite]).max(initial=0.0))
    return absolute, absolute / max(scale, _TINY) if absolute else 0.0


def _same_places(expected: dict[str, np.ndarray], actual: dict[str, np.ndarray]) -> bool:
    return all(
        np.array_equal(np.isfinite(values), np.isfinite(actual[name]))
        for name, values in expected.items()
        if np.issubdtype(values.dtype, np.floating)
    )


def _run_apart(
    folder: Path,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    feeds: Mapping[str, dict[str, np.ndarray]],
    rpc: Rpc | None,
) -> dict[str, dict[str, np.ndarray]]:
    """Run the package on each feed in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="tcl-verify-") as scratch:
        for index, feed in enumerate(feeds.values()):
            save_inputs(Path(scratch, f"in{index}.npz"), inputs, feed)
        arguments = [str(folder), scratch, str(len(feeds)), json.dumps(rpc and asdict(rpc))]
        try:
            done = run_module("tcl.compiler.running.verify", arguments, _TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            raise WorkFailed(
                f"the compiled model did not finish within {_TIMEOUT_SECONDS:g} s when it was verified"
            ) from None
        if has_crashed(done):
            raise WrongResults(
                f"the compiled model crashed when it was verified ({why_failed(done)}); nothing was exported"
            )
        if done.returncode:
            raise WorkFailed(
                f"the compiled model could not be verified ({why_failed(done)}); nothing was exported"
            )
        return {
            kind: read_inputs(Path(scratch, f"out{index}.npz"), outputs) for index, kind in enumerate(feeds)
        }


def _main(folder: str, scratch: str, count: str, rpc: str) -> None:
    def run(package: Package | RemotePackage) -> None:
        for index in range(int(count)):
            results = package(read_inputs(Path(scratch, f"in{index}.npz"), package.inputs))
            save_inputs(Path(scratch, f"out{index}.npz"), package.outputs, results)

    board = json.loads(rpc)
    if board is None:
        run(load(folder))
    else:
        run_on_board(board, lambda: run(RemotePackage(folder, board, _TIMEOUT_SECONDS)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
