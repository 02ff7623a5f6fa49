"""The engine's side of the fork server: start workers, talk to them, end them and learn why they ended."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tcl
from tcl.errors import WorkFailed
from tcl.measuring.channel import Channel
from tcl.measuring.server import PACKET_BYTES

_END_SECONDS = 5.0
_SERVED = 300  # messages after which a worker is replaced, since TVM's memory grows with each
_DETAIL_CHARACTERS = 200

_BACKTRACE = ("!!!", "Stack trace:", "File ", "[bt]")  # how TVM's own signal handler writes


class Worker:
    """A build or run worker: a process group of its own that answers JSON messages.

    Attributes
    ----------
    role, settings
        What it was spawned with; a replacement gets the same.
    pid
        Its process, and its process group.
    channel
        The connection; readable when an answer waits or when the worker has ended.
    served
        Messages sent so far.
    """

    def __init__(self, role: str, settings: dict[str, Any], pid: int, channel: Channel) -> None:
        self.role = role
        self.settings = settings
        self.pid = pid
        self.channel = channel
        self.served = 0

    def send(self, message: dict[str, Any]) -> None:
        """Hand the worker a message; a worker that has ended shows when its answer is awaited."""
        self.served += 1
        with contextlib.suppress(BrokenPipeError, ConnectionError):
            self.channel.send(message)

    def signal(self, number: int) -> None:
        """Send a signal to the worker and the processes it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


class WorkerPool:
    """The fork server and its workers.

    Parameters
    ----------
    target
        TVM target as JSON; the server loads what this target needs.

    Attributes
    ----------
    folder
        Folder for the artifacts, removed with the pool; known after `wait_until_ready`.
    """

    def __init__(self, target: dict[str, Any]) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as the server
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        source = str(Path(tcl.__file__).parent.parent)
        path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tcl.measuring.server", str(theirs.fileno()), json.dumps(target)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                # Worker threads are counted per device; numpy needs none. Ctrl-C is the engine's to handle.
                env=os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
        self.folder: Path | None = None

    def wait_until_ready(self) -> Path:
        """Wait until the server has loaded TVM; return the folder for artifacts.

        Raises
        ------
        WorkFailed
            When the server ends instead.
        """
        if self.folder is None:
            self.folder = Path(self._receive()["root"])
        return self.folder

    def spawn(self, role: str, settings: dict[str, Any]) -> Worker:
        """Fork a worker; `role` is ``"build"`` or ``"run"``, `settings` are those of its class."""
        ours, theirs = socket.socketpair()
        request = {"op": "spawn", "role": role, "settings": settings}
        with theirs:
            socket.send_fds(self._control, [json.dumps(request).encode()], [theirs.fileno()])
            pid = self._receive()["pid"]
        return Worker(role, settings, pid, Channel(ours))

    def end(self, worker: Worker) -> tuple[int | None, str]:
        """Kill a worker, dead or alive.

        Returns
        -------
        tuple
            The signal that ended it (``SIGKILL`` when it still lived, None when it left by itself) and the
            end of what it wrote to its standard error.
        """
        worker.signal(signal.SIGKILL)
        worker.channel.close()
        self._control.send(json.dumps({"op": "reap", "pid": worker.pid}).encode())
        answer = self._receive()
        return answer["signal"], answer["log"]

    def answer(self, worker: Worker, deadline: float, what: str) -> tuple[dict[str, Any], Worker]:
        """Take a worker's answer; replace the worker when there is none, and when it has served its time.

        Parameters
        ----------
        deadline
            Point of `time.monotonic` to wait until; may be over, an answer that waits is still taken.
        what
            What the worker does, for the error message: "build" or "run".

        Returns
        -------
        tuple
            The answer, or ``{"error": "<cause>: <detail>"}``, and the worker to use from now on.
        """
        answer = None
        if readable([worker], deadline - time.monotonic()):
            answer = worker.channel.receive()
            if answer is not None and worker.served < _SERVED:
                return answer, worker
            number, log = self.end(worker)
            answer = answer or {"error": cause_of_end(number, log)}
        else:
            self.end(worker)
            answer = {"error": f"timeout: the {what} took too long"}
        return answer, self.spawn(worker.role, worker.settings)

    def close(self) -> None:
        """End the server, which ends its workers and removes its folder."""
        self._control.close()
        try:
            self._server.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._server.terminate()
            self._server.wait()
        self._log.close()
        if self.folder is not None:  # the server was killed
            shutil.rmtree(self.folder, ignore_errors=True)

    def _receive(self) -> dict[str, Any]:
        packet = self._control.recv(PACKET_BYTES)
        if packet:
            return json.loads(packet)
        self._server.wait(_END_SECONDS)
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        raise WorkFailed(f"the measuring server ended: {lines[-1] if lines else 'killed'}")


def readable(workers: Iterable[Worker], seconds: float) -> list[Worker]:
    """Wait at most so long until a worker has an answer or has ended; return all such workers."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.channel, selectors.EVENT_READ, worker)
        return [key.data for key, _ in selector.select(max(0.0, seconds))]


def cause_of_end(number: int | None, log: str) -> str:
    """Say in ``"<cause>: <detail>"`` why a worker ended by itself.

    A worker that nobody of ours killed and that still died of SIGKILL met the system's out-of-memory killer.
    """
    lines = [line.strip() for line in log.splitlines()]
    lines = [line for line in lines if line and not line.startswith(_BACKTRACE)]
    words = f" ({lines[-1][:_DETAIL_CHARACTERS]})" if lines else ""
    if any(sign in log for sign in ("bad_alloc", "out of memory", "MemoryError", "Cannot allocate memory")):
        return f"memory: the worker ran out of memory{words}"
    if number == signal.SIGKILL:
        return "memory: the operating system killed the worker (signal 9)"
    if number is None:
        return f"crash: the worker ended{words}"
    return f"crash: signal {number}{words}"
