"""Whether a schedule changes what its program computes: both are run on the same inputs and compared."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tcl.compiler.packaging.linking import export
from tcl.compiler.running.remote import run_on_board
from tcl.compiler.running.rpc import open_session
from tcl.compiler.running.verify import TOLERANCES, difference
from tcl.compiler.targets import device_of, target_of
from tcl.devices.device import Device
from tcl.errors import WorkFailed, WrongResults
from tcl.processes import has_crashed, run_module, why_failed

_TIMEOUT_SECONDS = 300.0
_PLAIN, _SCHEDULED, _ABOUT = "plain.so", "scheduled", "about.json"
_PLAIN_RAN = "the program without a schedule ran"  # a crash after that is the schedule's fault


def fault_of(program: Any, device: Device, trace: str, tolerances: Mapping[str, float]) -> str | None:
    """Compare a scheduled program, on its device, with the same program as it is, on this machine.

    They run in a process of their own, so that a crash is a result too.

    Parameters
    ----------
    program
        A module with the one function ``main``.
    device
        What the schedule is for.
    trace
        The schedule, as JSON text.
    tolerances
        Overrides of `tcl.compiler.running.verify.TOLERANCES`.

    Returns
    -------
    str or None
        What is wrong with the schedule's results; None when they agree.

    Raises
    ------
    DeviceLost
        When the board cannot be reached, or goes away meanwhile.
    WorkFailed
        When the comparison fails for another reason than the schedule, for want of memory or of a C compiler for
        instance.
    """
    import tvm
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo

    with tempfile.TemporaryDirectory(prefix="tcl-check-") as folder:
        export(tvm.build(program, target="llvm"), Path(folder, _PLAIN))
        try:
            built = _build_scheduled(program, device, trace)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # of TVM's code generator, whatever it meets
            lines = str(error).strip().splitlines()
            return f"does not compile: {lines[-1] if lines else type(error).__name__}"
        scheduled = _export_scheduled(built, device, Path(folder))
        infos = [info.as_json() for info in ArgInfo.from_entry_func(program)]
        about = {
            "arguments": [[str(dtype), [int(extent) for extent in shape]] for _, dtype, shape in infos],
            "limits": {**TOLERANCES, **tolerances},
            "scheduled": scheduled,
            "target": device.target,
            "board": device.rpc and asdict(device.rpc),
        }
        Path(folder, _ABOUT).write_text(json.dumps(about))
        return _run_apart(folder)


def _build_scheduled(program: Any, device: Device, trace: str) -> Any:
    """Compile the scheduled program."""
    import tvm

    from tcl.compiler.programs.build import schedule_program

    target = target_of(device.target)
    return tvm.build(schedule_program(program, target, trace), target=target)


def _export_scheduled(built: Any, device: Device, folder: Path) -> str:
    """Write the scheduled program into the folder; returns the file's name."""
    from tvm.support import tar

    if device.rpc is None:
        export(built, folder / f"{_SCHEDULED}.so")
        return f"{_SCHEDULED}.so"
    export(built, folder / f"{_SCHEDULED}.tar", tar.tar)  # linked on the board
    return f"{_SCHEDULED}.tar"


def _run_apart(folder: str) -> str | None:
    """Run and compare in a process of its own, and tell the schedule's faults from the process's."""
    try:
        done = run_module("tcl.compiler.measuring.schedule_check", [folder], _TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        if _PLAIN_RAN.encode() in (error.stdout or b""):
            return f"does not finish within {_TIMEOUT_SECONDS:g} s"
        raise WorkFailed(f"checking a schedule's results took more than {_TIMEOUT_SECONDS:g} s") from None
    except WrongResults as error:
        return f"crashes ({error})"
    if not done.returncode:
        return json.loads(done.stdout.splitlines()[-1])
    if _PLAIN_RAN in done.stdout and has_crashed(done):
        return f"crashes ({why_failed(done)})"
    raise WorkFailed(f"a schedule's results could not be checked ({why_failed(done)})")


def _main(folder: str) -> None:
    """Print the fault of the schedule in a folder, as JSON."""
    from tcl.compiler.bootstrap import import_tvm

    about = json.loads(Path(folder, _ABOUT).read_text())
    tvm = import_tvm()
    rng = np.random.default_rng(0)
    values = [_draw(rng, dtype, shape) for dtype, shape in about["arguments"]]
    plain = tvm.runtime.load_module(str(Path(folder, _PLAIN)))
    expected = _results(plain, values, tvm.cpu())
    print(_PLAIN_RAN, flush=True)

    def compare() -> None:
        module, place = _load_scheduled(Path(folder, about["scheduled"]), about)
        actual = _results(module, values, place)
        print(json.dumps(_fault(expected, actual, about["limits"])))

    if about["board"] is None:
        compare()
    else:
        run_on_board(about["board"], compare)


def _load_scheduled(path: Path, about: Mapping[str, Any]) -> tuple[Any, Any]:
    """Load the scheduled program on its device; returns it and TVM's device."""
    import tvm

    if about["board"] is None:
        return tvm.runtime.load_module(str(path)), device_of(about["target"])
    session = open_session(about["board"], _TIMEOUT_SECONDS)
    session.upload(str(path), path.name)
    return session.load_module(path.name), session.cpu()


def _results(module: Any, values: list[np.ndarray], place: Any) -> list[np.ndarray]:
    import tvm

    tensors = [tvm.runtime.tensor(value, device=place) for value in values]
    module["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]


def _fault(expected: list[np.ndarray], actual: list[np.ndarray], limits: Mapping[str, float]) -> str | None:
    for ours, theirs in zip(expected, actual, strict=True):
        absolute, relative = difference(ours, theirs)
        error = relative if ours.dtype.kind == "f" else absolute
        if not error <= limits.get(str(ours.dtype), 0.0):
            return f"gives wrong results (off by {error:.3g})"
    return None


def _draw(rng: np.random.Generator, dtype: str, shape: list[int]) -> np.ndarray:
    """Zeros and ones where the values may be indices or masks."""
    values = rng.standard_normal(shape) if dtype.startswith("float") else rng.integers(2, size=shape)
    return values.astype(dtype)


if __name__ == "__main__":
    _main(sys.argv[1])
