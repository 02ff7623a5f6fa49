"""What happens inside the measuring engine's build and run workers.

A worker answers JSON messages with JSON messages (see `tcl.measuring.server`, which forks it). A failure is
an answer with ``error``: ``"<cause>: <detail>"``, cause build, run, crash or memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any, Protocol

from tcl.compiler.bootstrap import import_tvm
from tcl.compiler.reference import reference_module

_BUILD_NICENESS = 10
_KEPT_WORKLOADS = 64
_KEPT_INPUT_BYTES = 256 << 20
_DETAIL_CHARACTERS = 300
_REFERENCE_HOOK = "tcl.measuring.reference"
_REMOTE_FLUSH_BYTES = 4 << 20

Message = dict[str, Any]


def preload(target: Message) -> None:
    """Import all that workers for `target` need, so that forked ones start with it."""
    import_tvm(target)
    import tvm.rpc
    import tvm.s_tir.meta_schedule
    import tvm.support.tar  # noqa: F401


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
        answer: Message = {}
        try:
            target = _target(message["target"])
            if message["op"] == "reference":
                module = reference_module(message["cores"], message["vector_bits"])
            else:
                module, answer["trace"] = self._schedule(message)
            return answer | _build(module, target, Path(message["folder"]), message["archive"])
        except Exception as error:
            return answer | {"error": _describe("build", error)}

    def _schedule(self, message: Message) -> tuple[Any, str]:
        from tvm.s_tir import Schedule, Trace

        context = self._context(message)
        trace = json.loads(message["trace"])
        schedule = Schedule(context.mod, debug_mask="none", seed=1)
        Trace.apply_json_to_schedule(trace, schedule)
        if not any(instruction[0] == "EnterPostproc" for instruction in trace[0]):
            schedule.enter_postproc()
            for step in context.space_generator.postprocs:
                if not step.apply(schedule):
                    name = type(step).__name__
                    raise ValueError(f"post-processing ({name}) rejects the schedule")
        return schedule.mod, json.dumps(_plain(schedule.trace.as_json()))

    def _context(self, message: Message) -> Any:
        """Return the workload's tuning context, whose post-processors are those of its design space."""
        from tvm.s_tir import meta_schedule

        key = (message["workload"], json.dumps(message["target"], sort_keys=True))
        if key not in self._contexts:
            workload = meta_schedule.database.Workload.from_json(json.loads(message["program"]))
            self._contexts[key] = meta_schedule.TuneContext(
                workload.mod,
                target=_target(message["target"]),
                space_generator="post-order-apply",
                num_threads=1,
            )
            if len(self._contexts) > _KEPT_WORKLOADS:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(key)
        return self._contexts[key]


def _target(value: Message) -> Any:
    import tvm

    return tvm.target.Target(value)


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


def _plain(value: Any) -> Any:
    """Turn TVM's containers into what the json module writes."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "value"):  # IntImm, FloatImm
        return value.value
    return [_plain(item) for item in value]


def _describe(cause: str, error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if lines else "no message"
    out_of_memory = isinstance(error, MemoryError) or any(
        sign in str(error) for sign in ("bad_alloc", "Cannot allocate memory", "out of memory")
    )
    return f"{'memory' if out_of_memory else cause}: {type(error).__name__}: {text}"[:_DETAIL_CHARACTERS]


class _Place(Protocol):
    """Where candidates run."""

    device: Any

    def load(self, path: str) -> Any: ...

    def time(self, function: Any, arguments: list[Any], repeats: int) -> tuple[list[float], list[float]]: ...


class RunWorker:
    """Loads artifacts and times them.

    One message: ``{"artifact", "args", "repeats", "budget", "hopeless"}``. The answer holds ``run_seconds``
    and ``reference_seconds``, a list of times each. Each timed run is a single call right after one of the
    reference kernel. So a candidate meets what it meets in a network: awake threads, and caches whose first
    levels another kernel has just filled.
    """

    def __init__(self, place: _Place) -> None:
        self._place = place
        self._inputs = _Inputs(place)

    def __call__(self, message: Message) -> Message:
        try:
            module = self._place.load(message["artifact"])
            arguments = self._inputs.make(message["args"])
            seconds = _time_once(module, arguments, self._place.device)
            if seconds > message["hopeless"]:  # a first call pays for page faults: be sure
                seconds = min(seconds, _time_once(module, arguments, self._place.device))
            hopeless = seconds > message["hopeless"]
            repeats = 1 if hopeless else max(1, min(message["repeats"], int(message["budget"] / seconds)))
            run, reference = self._place.time(module, arguments, repeats)
            return {"run_seconds": run, "reference_seconds": reference}
        except ConnectionError as error:
            return {"lost": str(error)}
        except Exception as error:
            return {"error": _describe("run", error)}


def run_worker(settings: Message) -> RunWorker:
    """Make the run worker for a device.

    `settings`: ``cores`` (threads), ``reference`` (artifact), ``reference_args`` and ``rpc`` (None, or host,
    port, key and timeout).
    """
    if settings["rpc"] is not None:
        from tcl.compiler.remote import RemotePlace

        return RunWorker(RemotePlace(settings))
    return RunWorker(_Here(settings))


class _Here:
    """This machine."""

    def __init__(self, settings: Message) -> None:
        cores = settings["cores"]
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
        os.environ["TVM_NUM_THREADS"] = str(cores)
        _raise_priority()
        import tvm

        self.device = tvm.cpu()
        self._reference = self.load(settings["reference"])["main"]
        self._arguments = _Inputs(self).make(settings["reference_args"])
        self._seconds: list[float] = []
        tvm.register_global_func(_REFERENCE_HOOK, self._run_reference, override=True)

    def load(self, path: str) -> Any:
        import tvm

        return tvm.runtime.load_module(path)

    def time(self, module: Any, arguments: list[Any], repeats: int) -> tuple[list[float], list[float]]:
        self._seconds.clear()
        evaluator = module.time_evaluator(
            "main", self.device, number=1, repeat=repeats, f_preproc=_REFERENCE_HOOK
        )
        return list(evaluator(*arguments).results), list(self._seconds)

    def _run_reference(self, *_: Any) -> None:
        self._reference(
            *self._arguments
        )  # the timed call must not depend on what the candidate left in the caches
        start = time.perf_counter()
        self._reference(*self._arguments)
        self._seconds.append(time.perf_counter() - start)


def _raise_priority() -> None:
    """Run before all other processes where this is permitted, and among them where it is not.

    A real-time class, since many systems weigh niceness only within one terminal session. Of each second the
    kernel keeps a part for the others, so that even a candidate that hangs leaves the engine the time to end
    it.
    """
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))


def _time_once(module: Any, arguments: list[Any], device: Any) -> float:
    function = module["main"]
    start = time.perf_counter()
    function(*arguments)
    device.sync()
    return time.perf_counter() - start


class _Inputs:
    """Seeded random arguments, kept for the next candidate up to a bound."""

    def __init__(self, place: _Place) -> None:
        self._place = place
        self._kept: dict[tuple[str, tuple[int, ...], int], Any] = {}
        self._bytes = 0

    def make(self, specifications: list[Any]) -> list[Any]:
        """Return one tensor for each ``[dtype, shape]``."""
        if self._bytes > _KEPT_INPUT_BYTES:
            self._kept.clear()
            self._bytes = 0
        tensors = []
        for position, (dtype, shape) in enumerate(specifications):
            key = (dtype, tuple(shape), position)
            if key not in self._kept:
                self._kept[key] = self._tensor(dtype, shape, position)
            tensors.append(self._kept[key])
        return tensors

    def _tensor(self, dtype: str, shape: list[int], seed: int) -> Any:
        import numpy as np
        import tvm

        count = int(np.prod(shape, dtype=np.float64))
        block = np.random.default_rng(seed).random(min(count, 1 << 16))
        if not dtype.startswith(("float", "bfloat")):
            block = block * 2  # zeros and ones: right for masks, and small enough for indices
        values = np.resize(block.astype(dtype), shape)
        self._bytes += values.nbytes
        return tvm.runtime.tensor(values, device=self._place.device)
