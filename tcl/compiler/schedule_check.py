"""Whether a schedule changes what its program computes: both are run on the same inputs and compared."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tcl.compiler.verify import TOLERANCES, difference
from tcl.processes import run_module

_TIMEOUT_SECONDS = 300.0
_PLAIN, _SCHEDULED, _ARGUMENTS = "plain.so", "scheduled.so", "arguments.json"


def fault_of(program: Any, target: Any, trace: str, tolerances: Mapping[str, float]) -> str | None:
    """Compare a scheduled program with the same program as it is.

    They run in a process of their own, so that a crash is a result too.

    Parameters
    ----------
    program
        A module with the one function ``main``.
    target
        Of this machine.
    trace
        The schedule, as JSON text.
    tolerances
        Overrides of `tcl.compiler.verify.TOLERANCES`.

    Returns
    -------
    str or None
        What is wrong with the schedule's results; None when they agree.
    """
    import tvm
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo

    from tcl.compiler.build import schedule_program

    with tempfile.TemporaryDirectory(prefix="tcl-check-") as folder:
        try:
            for name, module in ((_PLAIN, program), (_SCHEDULED, schedule_program(program, target, trace))):
                tvm.build(module, target=target).export_library(str(Path(folder, name)))
        except Exception as error:  # of TVM's code generator, whatever it meets
            lines = str(error).strip().splitlines()
            return f"does not compile: {lines[-1] if lines else type(error).__name__}"
        infos = [info.as_json() for info in ArgInfo.from_entry_func(program)]
        arguments = [[str(dtype), [int(extent) for extent in shape]] for _, dtype, shape in infos]
        limits = {**TOLERANCES, **tolerances}
        Path(folder, _ARGUMENTS).write_text(json.dumps({"arguments": arguments, "limits": limits}))
        try:
            done = run_module("tcl.compiler.schedule_check", [folder], _TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return f"does not finish within {_TIMEOUT_SECONDS:g} s"
    if done.returncode:
        return "crashes"
    return json.loads(done.stdout.splitlines()[-1])


def _main(folder: str) -> None:
    """Print the fault of the schedule in a folder, as JSON."""
    from tcl.compiler.bootstrap import import_tvm

    tvm = import_tvm()
    about = json.loads(Path(folder, _ARGUMENTS).read_text())
    rng = np.random.default_rng(0)
    values = [_draw(rng, dtype, shape) for dtype, shape in about["arguments"]]
    results = []
    for name in (_PLAIN, _SCHEDULED):
        tensors = [tvm.runtime.tensor(value) for value in values]
        tvm.runtime.load_module(str(Path(folder, name)))["main"](*tensors)
        results.append([tensor.numpy() for tensor in tensors])
    fault = None
    for expected, actual in zip(*results, strict=True):
        absolute, relative = difference(expected, actual)
        error = relative if expected.dtype.kind == "f" else absolute
        if not error <= about["limits"].get(str(expected.dtype), 0.0):
            fault = f"gives wrong results (off by {error:.3g})"
    print(json.dumps(fault))


def _draw(rng: np.random.Generator, dtype: str, shape: list[int]) -> np.ndarray:
    """Zeros and ones where the values may be indices or masks."""
    values = rng.standard_normal(shape) if dtype.startswith("float") else rng.integers(2, size=shape)
    return values.astype(dtype)


if __name__ == "__main__":
    _main(sys.argv[1])
