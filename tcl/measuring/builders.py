"""The build workers as one: jobs in, artifacts out, and a pause button."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tcl.measuring.pool import Worker, WorkerPool, readable
from tcl.measuring.types import MeasureRequest


@dataclass(eq=False)
class Job:
    """A request on its way through the engine.

    Attributes
    ----------
    folder
        Holds the job's artifact and nothing else.
    trace
        The full trace once built, the request's before.
    artifact, args
        Path of the compiled candidate; dtype and shape of each of its arguments.
    error
        Why it failed, if it did.
    timings
        (runs, reference runs) in seconds, one pair for each time it was measured.
    """

    request: MeasureRequest
    folder: Path
    trace: str
    artifact: str = ""
    args: list[Any] = field(default_factory=list)
    error: str | None = None
    timings: list[tuple[list[float], list[float]]] = field(default_factory=list)

    def discard(self) -> None:
        """Remove the job's files."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Builders:
    """Kept build workers.

    Parameters
    ----------
    pool
        Where the workers come from.
    count
        How many.
    settings
        Their settings.
    timeout
        Seconds after which a build is given up; pauses do not count.
    archive
        Whether artifacts are linked on the device instead of here.
    """

    def __init__(
        self, pool: WorkerPool, count: int, settings: dict[str, Any], timeout: float, archive: bool
    ) -> None:
        self._pool = pool
        self._timeout = timeout
        self._archive = archive
        self._idle = [pool.spawn("build", settings) for _ in range(count)]
        self._busy: dict[Worker, Job] = {}
        self._deadlines: dict[Worker, float] = {}
        self._folders = 0

    @property
    def has_idle(self) -> bool:
        """Whether a job can be started at once."""
        return bool(self._idle)

    @property
    def is_busy(self) -> bool:
        """Whether a build is under way."""
        return bool(self._busy)

    def new_job(self, request: MeasureRequest) -> Job:
        """Make a job with a folder of its own."""
        self._folders += 1
        folder = self._pool.wait_until_ready() / f"candidate-{self._folders}"
        folder.mkdir()
        return Job(request, folder, request.trace)

    def start(self, job: Job) -> None:
        """Give the job to an idle worker."""
        request = job.request
        worker = self._idle.pop()
        worker.send(
            {
                "op": "build",
                "workload": request.workload,
                "program": request.program,
                "target": request.target,
                "trace": request.trace,
                "folder": str(job.folder),
                "archive": self._archive,
            }
        )
        self._busy[worker] = job
        self._deadlines[worker] = time.monotonic() + self._timeout

    def wait(self) -> list[Job]:
        """Wait for builds to end; return the ended jobs, each with its artifact or its error."""
        first_deadline = min(self._deadlines[worker] for worker in self._busy)
        done = readable(self._busy, first_deadline - time.monotonic())
        overdue = [worker for worker in self._busy if self._deadlines[worker] < time.monotonic()]
        return [self._take(worker) for worker in dict.fromkeys([*done, *overdue])]

    def build_reference(self, target: dict[str, Any], cores: int, vector_bits: int) -> dict[str, Any]:
        """Build the reference kernel; return the worker's answer."""
        folder = self._pool.wait_until_ready() / "reference"
        folder.mkdir()
        worker = self._idle.pop()
        worker.send(
            {
                "op": "reference",
                "target": target,
                "cores": cores,
                "vector_bits": vector_bits,
                "folder": str(folder),
                "archive": self._archive,
            }
        )
        answer, worker = self._pool.answer(worker, time.monotonic() + self._timeout, "build")
        self._idle.append(worker)
        return answer

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop all builds, with the processes they have started, for the block."""
        start = time.monotonic()
        for worker in self._busy:
            worker.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for worker in self._busy:
                worker.signal(signal.SIGCONT)
                self._deadlines[worker] += time.monotonic() - start

    def cancel(self) -> None:
        """Drop all builds that are under way."""
        for worker, job in self._busy.items():
            self._pool.end(worker)
            self._idle.append(self._pool.spawn(worker.role, worker.settings))
            job.discard()
        self._busy.clear()

    def forget(self) -> None:
        """Forget all builds, when the pool ends them."""
        self._busy.clear()

    def _take(self, worker: Worker) -> Job:
        job = self._busy.pop(worker)
        answer, worker = self._pool.answer(worker, self._deadlines.pop(worker), "build")
        self._idle.append(worker)
        job.trace = answer.get("trace", job.trace)
        job.artifact = answer.get("artifact", "")
        job.args = answer.get("args", [])
        job.error = answer.get("error")
        return job
