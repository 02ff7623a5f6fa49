"""What the tests of reading ONNX files have in common."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tcl.compiler.bootstrap import import_tvm
from tcl.compiler.frontend.inputs import random_inputs
from tcl.compiler.frontend.model import OnnxModel, import_relax, read_onnx
from tcl.compiler.frontend.reader import saved_onnx
from tcl.compiler.frontend.reference import Reference
from tcl.compiler.running.verify import difference
from tcl.devices.host import detect_host
from tcl.errors import BadInput


def run(read: OnnxModel, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Compile with default schedules and run in this process."""
    tvm = import_tvm()
    executable = tvm.relax.build(import_relax(read), tvm.target.Target(detect_host().target))
    machine = tvm.relax.VirtualMachine(executable, tvm.cpu())
    result = machine["main"](*[tvm.runtime.tensor(feed[spec.name]) for spec in read.inputs])
    return [part.numpy() for part in ([result] if len(read.outputs) == 1 else result)]


def assert_agrees(
    read: OnnxModel, feed: dict[str, np.ndarray] | None = None, tolerance: float = 1e-4
) -> None:
    feed = feed or random_inputs(read.inputs, seed=0)
    with saved_onnx(read.original, read.path.parent) as path:
        expected = Reference(path, threads=1)(feed)
    assert list(expected) == [spec.name for spec in read.outputs]
    for spec, actual in zip(read.outputs, run(read, feed), strict=True):
        assert actual.shape == spec.shape and actual.dtype == np.dtype(spec.dtype)
        assert difference(expected[spec.name], actual)[1] <= tolerance


def refusal(path: Path, **pins: object) -> str:
    with pytest.raises(BadInput) as caught:
        read_onnx(path, **pins)  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    return message
