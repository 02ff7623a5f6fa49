"""What happens inside the measuring engine's build and run workers.

A worker answers JSON messages with JSON messages (see `tcl.measuring.server`, which forks it). A failure is
an answer with ``error``: ``"<cause>: <detail>"``, cause build, run, crash or memory.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

from tcl.compiler.bootstrap import import_tvm
from tcl.compiler.measuring.places import LocalPlace, RemotePlace
from tcl.compiler.measuring.reference import gpu_reference_module, reference_module
from tcl.compiler.running.rpc import SESSION_ENDED
from tcl.compiler.targets import target_of
from tcl.devices.host import is_gpu
from tcl.errors import DeviceLost
from tcl.processes import OUT_OF_MEMORY

_BUILD_NICENESS = 10
_KEPT_WORKLOADS = 64
_DETAIL_CHARACTERS = 300
_LAZY_SECONDS = 0.01  # what a first call may pay for page faults and thread start

Message = dict[str, Any]


def preload(target: Message) -> None:
    """Import all that workers for `target` need, so that forked ones start with it."""
    import_tvm(target)
    import tvm.rpc
    import tvm.s_tir.meta_schedule
    import tvm.support.tar  # noqa: F401

    import tcl.compiler.programs.prefetch
    import tcl.compiler.programs.traces  # noqa: F401


class BuildWorker:
    """Applies schedule traces and compiles the results.

    Messages: ``{"op": "build", "workload", "program", "target", "trace", "folder", "archive"}`` and
    ``{"op": "reference", "target", "cores", "vector_bits", "folder", "archive"}``. The answer holds
    ``artifact`` (a path in the given folder, which serves this artifact alone), ``args`` (dtype and shape of
    each argument) and, for builds, ``trace`` (the full one).
    """

    def __init__(self, settings: Message) -> None:
        os.nice(_BUILD_NICENESS)
        self._contexts: OrderedDict[tuple[str, str], Any] = OrderedDict()

    def __call__(self, message: Message) -> Message:
        from tcl.compiler.programs.prefetch import insert_prefetches
        from tcl.compiler.programs.traces import plain_json, replay

        answer: Message = {}
        try:
            target = target_of(message["target"])
            if message["op"] == "reference":
                module = (
                    gpu_reference_module()
                    if is_gpu(message["target"])
                    else reference_module(message["cores"], message["vector_bits"])
                )
            else:
                schedule = replay(self._context(message, target), message["trace"])
                module = insert_prefetches(schedule.mod, target, ["main"])
                answer["trace"] = json.dumps(plain_json(schedule.trace.as_json()), separators=(",", ":"))
            return answer | _build(module, target, Path(message["folder"]), message["archive"])
        except Exception as error:
            return answer | {"error": _describe("build", error)}

    def _context(self, message: Message, target: Any) -> Any:
        from tvm.s_tir.meta_schedule.database import Workload

        from tcl.compiler.programs.traces import tuning_context

        key = (message["workload"], json.dumps(message["target"], sort_keys=True))
        if key not in self._contexts:
            program = Workload.from_json(json.loads(message["program"])).mod
            self._contexts[key] = tuning_context(program, target)
            if len(self._contexts) > _KEPT_WORKLOADS:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(key)
        return self._contexts[key]


def _build(module: Any, target: Any, folder: Path, archive: bool) -> Message:
    import tvm
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock
    from tvm.support import tar

    arguments = [info.as_json() for info in ArgInfo.from_entry_func(module, remove_preproc=True)]
    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
    built = tvm.build(module, target=target)
    if archive:  # linked on the device
        path = folder / "candidate.tar"
        built.export_library(str(path), fcompile=tar.tar)
    else:
        path = folder / "candidate.so"
        built.export_library(str(path))
    return {
        "artifact": str(path),
        "args": [[str(dtype), [int(extent) for extent in shape]] for _, dtype, shape in arguments],
    }


def _describe(cause: str, error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any(sign in str(error) for sign in OUT_OF_MEMORY) or isinstance(error, MemoryError):
        cause = "memory"
    elif SESSION_ENDED in str(error):
        cause = "crash"
    return f"{cause}: {type(error).__name__}: {lines[-1] if lines else 'no message'}"[:_DETAIL_CHARACTERS]


class RunWorker:
    """Loads artifacts and times them.

    One message: ``{"artifact", "args", "repeats", "budget", "hopeless", "limit"}``. The answer holds ``run_seconds``
    and ``reference_seconds``, a list of times each; ``lost`` instead says why a remote device cannot be reached. The
    other, ``{"ping"}``, asks just that. Each timed run is a single call right after one of the
    reference kernel. So a candidate meets what it meets in a network: awake threads, and caches whose first
    levels another kernel has just filled.
    """

    def __init__(self, place: LocalPlace | RemotePlace) -> None:
        self._place = place

    def __call__(self, message: Message) -> Message:
        try:
            if "ping" in message:
                assert isinstance(self._place, RemotePlace)
                self._place.ping()
                return {}
            module = self._place.load(message["artifact"])
            arguments = self._place.inputs.make(message["args"])
            seconds = self._time_once(module, arguments)
            if message["hopeless"] < seconds < _LAZY_SECONDS:
                seconds = min(seconds, self._time_once(module, arguments))
            if seconds > message["limit"]:
                return {"error": f"timeout: one run took {seconds:.3g} s"}
            if seconds > message["hopeless"]:
                repeats = 1
            else:
                repeats = max(1, min(message["repeats"], int(message["budget"] / seconds)))
            run, reference = self._place.time(module, arguments, repeats)
            if not all(0 < seconds < math.inf for seconds in run):
                return {"error": f"run: the device's clock gave {min(run)} s for a run"}
            return {"run_seconds": run, "reference_seconds": reference}
        except DeviceLost as error:
            return {"lost": str(error)}
        except Exception as error:
            return {"error": _describe("run", error)}

    def _time_once(self, module: Any, arguments: list[Any]) -> float:
        function = module["main"]
        start = time.perf_counter()
        function(*arguments)
        self._place.device.sync()
        return time.perf_counter() - start


def run_worker(settings: Message) -> RunWorker:
    """Make the run worker for a device.

    `settings`: ``cores`` (threads), ``reference`` (artifact), ``reference_args`` and ``rpc`` (None, or host,
    port, key and timeout).
    """
    return RunWorker(LocalPlace(settings) if settings["rpc"] is None else RemotePlace(settings))
