"""Where candidates run: on this machine, or on a board behind a TVM RPC tracker."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tcl.compiler.running.priority import raise_priority
from tcl.compiler.running.rpc import BIG_CORES, await_board, open_session
from tcl.compiler.targets import device_of

_KEPT_INPUT_BYTES = 256 << 20
_REFERENCE_HOOK = "tcl.measuring.reference"
_RPC_FLUSH_BYTES = 4 << 20
_RPC_REFERENCE_REPEATS = 5


class Inputs:
    """Seeded random arguments on one device, kept for the next candidate up to a bound."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._kept: dict[tuple[str, tuple[int, ...], int], Any] = {}
        self._bytes = 0

    def make(self, specifications: list[Any]) -> list[Any]:
        """Return one tensor for each ``[dtype, shape]``; no two share memory."""
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

        block = np.random.default_rng(seed).random(1 << 16)
        if not dtype.startswith(("float", "bfloat")):
            block = block * 2  # zeros and ones: right for masks, and small enough for indices
        values = np.resize(block.astype(dtype), shape)
        self._bytes += values.nbytes
        return tvm.runtime.tensor(values, device=self._device)


class LocalPlace:
    """This machine, with the device's thread count, on so many of its cores.

    Parameters
    ----------
    settings
        Those of `tcl.compiler.measuring.workers.run_worker`.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        cores = settings["cores"]
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
        os.environ["TVM_NUM_THREADS"] = str(cores)  # TVM's default is half of an x86 machine's
        raise_priority()
        import tvm

        self.device = device_of(settings["target"])
        self.inputs = Inputs(self.device)
        self._reference = self.load(settings["reference"])["main"]
        self._arguments = Inputs(self.device).make(settings["reference_args"])
        self._seconds: list[float] = []
        tvm.register_global_func(_REFERENCE_HOOK, self._run_reference, override=True)

    def load(self, path: str) -> Any:
        """Load a shared library."""
        import tvm

        return tvm.runtime.load_module(path)

    def time(self, module: Any, arguments: list[Any], repeats: int) -> tuple[list[float], list[float]]:
        """Time `repeats` single runs, each right after the reference kernel; seconds of both."""
        self._seconds.clear()
        evaluator = module.time_evaluator(
            "main", self.device, number=1, repeat=repeats, f_preproc=_REFERENCE_HOOK
        )
        return list(evaluator(*arguments).results), list(self._seconds)

    def _run_reference(self, *_: Any) -> None:
        self._reference(*self._arguments)  # the timed call must not see what the candidate left in the caches
        self.device.sync()  # a GPU's calls return at once
        start = time.perf_counter()
        self._reference(*self._arguments)
        self.device.sync()
        self._seconds.append(time.perf_counter() - start)


class RemotePlace:
    """A board behind an RPC tracker: each candidate gets a session, and so a process on the board, of its
    own.

    The board runs nothing of ours, so the reference kernel cannot be called between the timed runs: it is
    timed before and after them, and a flush cools the caches instead.

    Parameters
    ----------
    settings
        Those of `tcl.compiler.measuring.workers.run_worker`.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._session: Any = None
        self._reference: Any = None
        self.device: Any = None
        self.inputs: Any = None

    def load(self, path: str) -> Any:
        """Open a session, upload the archives of the reference kernel and of the candidate; the board links
        them.

        Raises
        ------
        DeviceLost
            When the tracker does not answer or has no free server with the device's key.
        """
        self._disconnect()
        rpc = self._settings["rpc"]
        self._session = open_session(rpc, rpc["timeout"])
        self._session.get_function("runtime.config_threadpool")(BIG_CORES, self._settings["cores"])
        self.device = self._session.cpu()
        self.inputs = Inputs(self.device)
        self._reference = self._upload(self._settings["reference"])
        return self._upload(path)

    def time(self, module: Any, arguments: list[Any], repeats: int) -> tuple[list[float], list[float]]:
        """Time `repeats` single runs, and the reference kernel before and after them; seconds of both."""
        reference = self._time_reference()
        evaluator = module.time_evaluator(
            "main", self.device, number=1, repeat=repeats, cache_flush_bytes=_RPC_FLUSH_BYTES
        )
        seconds = list(evaluator(*arguments).results)
        return seconds, reference + self._time_reference()

    def _time_reference(self) -> list[float]:
        arguments = self.inputs.make(self._settings["reference_args"])
        evaluator = self._reference.time_evaluator(
            "main", self.device, number=1, repeat=_RPC_REFERENCE_REPEATS
        )
        return list(evaluator(*arguments).results)

    def _upload(self, path: str) -> Any:
        name = "-".join(Path(path).parts[-2:])
        self._session.upload(path, name)
        return self._session.load_module(name)

    def ping(self) -> None:
        """Give the board up and wait until it is free again.

        Raises
        ------
        DeviceLost
            When it is away.
        """
        self._disconnect()
        await_board(self._settings["rpc"])

    def _disconnect(self) -> None:
        """Drop all that lives on the board: the session ends with the last of it, and the board is free."""
        self._session = None
        self._reference = None
        self.device = None
        self.inputs = None
