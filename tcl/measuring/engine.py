"""The measuring engine: builds candidates in kept workers and times them one by one in an isolated one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import statistics
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from types import TracebackType
from typing import Any

from tcl.devices.device import Device
from tcl.devices.patience import patiently
from tcl.errors import BadInput, DeviceLost, WorkFailed
from tcl.farm import current_farm
from tcl.measuring.builders import Builders, Job
from tcl.measuring.farm_builders import FarmBuilders
from tcl.measuring.pool import Worker, WorkerPool
from tcl.measuring.storms import StormWatch
from tcl.measuring.types import MeasureOptions, MeasureRequest, MeasureResult, half_of_memory
from tcl.scratch import machine_folder

_BATCH = 16  # a candidate of a storm is timed again after so many others of its kind, or at the end
_SESSION_SECONDS = 10.0  # to reach a board, to send it a candidate, and to link it there
_LOCK_SECONDS, _LOCK_PAUSE = 600.0, 0.02  # a timing takes seconds
_DEADLY = 2  # a candidate that a board has gone away with so often is the cause


class MeasuringEngine:
    """Measures candidates on one device; use as a context manager.

    The processes start with the context and load TVM while the caller goes on. A candidate that crashes,
    hangs or takes too much memory costs itself only: it is reported with the cause, and its worker is
    replaced.

    Parameters
    ----------
    device
        Where to measure: this host, or a board behind a TVM RPC tracker.
    options
        How to measure.

    Raises
    ------
    BadInput
        From the constructor, when the device cannot be measured from here.
    """

    def __init__(self, device: Device, options: MeasureOptions | None = None) -> None:
        cores = len(os.sched_getaffinity(0))
        if device.target["kind"] != "llvm":
            raise BadInput(f'device {device.name}: only targets of kind "llvm" can be measured')
        if device.rpc is None and device.num_cores > cores:
            raise BadInput(
                f"device {device.name} has {device.num_cores} cores, this machine offers {cores}; "
                "lower its num-cores, or reach the device through RPC"
            )
        self._device = device
        self._options = options or MeasureOptions()
        self._farm = current_farm()
        self._builder_count = self._farm.slots if self._farm else self._options.builders or cores
        self._overlap = self._options.overlap or device.rpc is not None
        self._seconds = self._options.run_timeout + (0.0 if device.rpc is None else _SESSION_SECONDS)
        self._storms = StormWatch(self._options.storm_spread, self._options.storm_floor)
        self._best: dict[str, float] = {}
        self._pool: WorkerPool | None = None
        self._builders: Builders | FarmBuilders | None = None
        self._runner: Worker

    def __enter__(self) -> MeasuringEngine:
        self._pool = WorkerPool(self._device.target)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._builders is not None:
            self._builders.forget()  # an iterator that is dropped later finds nothing to cancel
        if self._pool is not None:
            self._pool.close()
        self._pool = self._builders = None

    def measure(self, requests: Iterable[MeasureRequest]) -> Iterator[MeasureResult]:
        """Build and time candidates, yielding each result as soon as it is there (not in the given order).

        Closing the iterator early drops the rest; the engine stays usable. One iterator at a time.

        Raises
        ------
        WorkFailed
            When the processes cannot be started.
        DeviceLost
            When the device has been away for longer than the options say. What was yielded before holds.
        """
        pool, builders = self._start()
        waiting = deque(requests)
        ready: deque[Job] = deque()
        stormy: deque[Job] = deque()
        try:
            while waiting or ready or stormy or builders.is_busy:
                while waiting and builders.has_idle and len(ready) <= self._builder_count:
                    builders.start(builders.new_job(waiting.popleft()))
                if len(stormy) >= _BATCH or not (waiting or ready or builders.is_busy):
                    ready.extend(stormy)
                    stormy.clear()
                if not ready:
                    ready.extend(builders.wait())
                    continue
                job = ready.popleft()
                if job.error is None and self._time(job, pool, builders) and self._in_storm(job):
                    stormy.append(job)
                    continue
                job.discard()
                yield self._result(job)
        finally:
            builders.cancel()
            for job in (*ready, *stormy):
                job.discard()

    def _start(self) -> tuple[WorkerPool, Builders | FarmBuilders]:
        """Start the workers once the server has loaded TVM; does nothing the second time."""
        if self._pool is None:
            raise RuntimeError("the engine is not open: use it in a with statement")
        if self._builders is not None:
            return self._pool, self._builders
        device, options = self._device, self._options
        self._pool.wait_until_ready()
        limits = {"memory_bytes": options.memory_bytes or half_of_memory()}
        remote = device.rpc is not None
        count = 1 if self._farm else self._builder_count  # a farm leaves the reference kernel to this host
        builders = Builders(self._pool, count, limits, options.build_timeout, archive=remote)
        reference = builders.build_reference(device.target, device.num_cores, device.vector_bits)
        if "error" in reference:
            raise WorkFailed(f"the reference kernel for device {device.name} failed: {reference['error']}")
        settings = {
            "cores": device.num_cores,
            "target": device.target,
            "reference": reference["artifact"],
            "reference_args": reference["args"],
            "rpc": None if device.rpc is None else asdict(device.rpc) | {"timeout": self._seconds},
        }
        self._runner = self._pool.spawn("run", limits | settings)
        self._builders = FarmBuilders(self._farm, builders, options, remote) if self._farm else builders
        return self._pool, self._builders

    def _time(self, job: Job, pool: WorkerPool, builders: Builders | FarmBuilders) -> bool:
        """Time a built job; tell whether it ran. Otherwise its error says why."""
        best = self._best.get(job.request.workload, float("inf"))
        message = {
            "artifact": job.artifact,
            "args": job.args,
            "repeats": self._options.repeats,
            "budget": self._options.budget_seconds,
            "hopeless": best * self._options.hopeless_factor,
            "limit": self._options.run_timeout,
        }
        with contextlib.ExitStack() as stack:
            if self._device.rpc is None:
                stack.enter_context(_only_timing_here())
            if not self._overlap:
                stack.enter_context(builders.paused())
            answer = self._run(pool, message)
        job.error = answer.get("error")
        if job.error is None:
            job.timings.append((answer["run_seconds"], answer["reference_seconds"]))
            self._best[job.request.workload] = min(best, statistics.median(answer["run_seconds"]))
        return job.error is None

    def _run(self, pool: WorkerPool, message: dict[str, Any]) -> dict[str, Any]:
        """Let the run worker do a message; one that was lost with its board is done again when that is back."""
        losses = 0

        def attempt() -> dict[str, Any]:
            nonlocal losses
            answer = self._ask(pool, message)
            if "lost" in answer:
                raise DeviceLost(answer["lost"])
            if self._device.rpc is not None and "error" in answer:
                gone = self._ask(pool, {"ping": True})
                if "lost" in gone and (losses := losses + 1) < _DEADLY:
                    raise DeviceLost(gone["lost"])
            return answer

        return patiently(self._device.name, self._options.device_wait, attempt)

    def _ask(self, pool: WorkerPool, message: dict[str, Any]) -> dict[str, Any]:
        self._runner.send(message)
        answer, self._runner = pool.answer(self._runner, time.monotonic() + self._seconds, "run")
        return answer

    def _in_storm(self, job: Job) -> bool:
        stormy = self._storms.is_storm(job.timings[-1][1])
        return stormy and len(job.timings) <= self._options.storm_retries

    def _result(self, job: Job) -> MeasureResult:
        """Report the job's calmest timing, or its failure."""
        runs: list[float] = []
        reference = None
        if job.error is None:
            runs, reference_runs = min(job.timings, key=lambda timing: statistics.median(timing[1]))
            reference = statistics.median(reference_runs)
        return MeasureResult(job.request, job.trace, tuple(runs), reference, job.error, time.time())


@contextlib.contextmanager
def _only_timing_here() -> Iterator[None]:
    """Keep other engines on this machine, of all projects and users, from timing meanwhile.

    What is locked is the folder of temporary files itself: every user may open it, and nobody can put a file or a link
    in its place. A process that dies frees the lock.

    Raises
    ------
    WorkFailed
        When somebody does not give it back.
    """
    path = machine_folder()
    folder, end = os.open(path, os.O_RDONLY | os.O_DIRECTORY), time.monotonic() + _LOCK_SECONDS
    try:
        while not _try_lock(folder):
            if time.monotonic() > end:
                raise WorkFailed(
                    f"another process has kept this machine from timing for more than {_LOCK_SECONDS:g} s: it holds"
                    f" the lock on {path}; `fuser -v {path}` names it"
                )
            time.sleep(_LOCK_PAUSE)
        yield
    finally:
        os.close(folder)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
