"""Build workers on other machines: requests out, artifacts back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tcl.errors import WorkFailed
from tcl.farm import Farm
from tcl.measuring.builders import Builders, Job
from tcl.measuring.pool import WorkerPool
from tcl.measuring.types import MeasureOptions, MeasureRequest, half_of_memory

_kept = threading.local()


@dataclass(frozen=True)
class Built:
    """What a builder sends back; attributes as those of `Job`, with the artifact's content."""

    trace: str
    content: bytes = b""
    args: list[Any] = field(default_factory=list)
    error: str | None = None


class FarmBuilders:
    """The same to the engine as `Builders`; builds never disturb the timing here, so there is nothing to pause.

    Parameters
    ----------
    farm
        Where candidates are built.
    local
        Build workers of this host, for the reference kernel and the folders.
    options
        Limits of a build.
    archive
        Whether artifacts are linked on the device.
    """

    def __init__(self, farm: Farm, local: Builders, options: MeasureOptions, archive: bool) -> None:
        self._farm = farm
        self._local = local
        self._limits = (options.memory_bytes, options.build_timeout, archive, version("apache-tvm"))
        self._name = "candidate.tar" if archive else "candidate.so"
        self._busy: dict[Future[Built], Job] = {}

    @property
    def has_idle(self) -> bool:
        """Whether a job can be started at once."""
        return len(self._busy) < self._farm.slots

    @property
    def is_busy(self) -> bool:
        """Whether a build is under way."""
        return bool(self._busy)

    def new_job(self, request: MeasureRequest) -> Job:
        """Make a job with a folder of its own."""
        return self._local.new_job(request)

    def start(self, job: Job) -> None:
        """Send the job's request to the farm."""
        self._busy[self._farm.executor.submit(build_candidate, job.request, *self._limits)] = job

    def wait(self) -> list[Job]:
        """Wait for builds to end; return the ended jobs, each with its artifact or its error.

        Raises
        ------
        WorkFailed
            When the farm is gone or has another TVM.
        """
        done, _ = wait(self._busy, return_when=FIRST_COMPLETED)
        return [self._take(future) for future in done]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Change nothing."""
        yield

    def cancel(self) -> None:
        """Drop all builds that are under way."""
        for future, job in self._busy.items():
            future.cancel()
            job.discard()
        self._busy.clear()

    def forget(self) -> None:
        """Forget all builds."""
        self._busy.clear()

    def _take(self, future: Future[Built]) -> Job:
        job = self._busy.pop(future)
        try:
            built = future.result()
        except Exception as error:  # a candidate's own failure is in `built`
            job.discard()
            reason = " ".join(str(error).split()) or type(error).__name__
            raise WorkFailed(f"the farm of builders failed: {reason}") from error
        job.trace, job.args, job.error = built.trace, built.args, built.error
        if built.error is None:
            path = job.folder / self._name  # named here: no builder chooses where it is written
            path.write_bytes(built.content)
            path.chmod(0o755)
            job.artifact = str(path)
        return job


def build_candidate(
    request: MeasureRequest, memory_bytes: int | None, timeout: float, archive: bool, tvm: str
) -> Built:
    """Build one candidate in this process's kept build worker; called on the farm.

    Raises
    ------
    WorkFailed
        When the TVM installed here is not `tvm`, whose candidates are wanted.
    """
    if (here := version("apache-tvm")) != tvm:
        raise WorkFailed(f"a builder has apache-tvm {here}, not {tvm}; install the same on all hosts")
    job = (builders := _builders(request.target, memory_bytes, timeout, archive)).new_job(request)
    try:
        builders.start(job)
        builders.wait()
        if job.error is not None:
            return Built(job.trace, error=job.error)
        return Built(job.trace, Path(job.artifact).read_bytes(), job.args)
    finally:
        job.discard()


def _builders(target: dict[str, Any], memory: int | None, timeout: float, archive: bool) -> Builders:
    """The build worker of this thread; another target, which loads other parts of TVM, takes its place."""
    wanted = (repr(target), memory, timeout, archive)
    if getattr(_kept, "made_for", None) != wanted:
        if hasattr(_kept, "pool"):
            _kept.pool.close()
        _kept.pool = WorkerPool(target)
        _kept.pool.wait_until_ready()
        limits = {"memory_bytes": memory or half_of_memory()}
        _kept.builders = Builders(_kept.pool, 1, limits, timeout, archive)
        _kept.made_for = wanted
    return _kept.builders
