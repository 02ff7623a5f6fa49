"""A Prefect server on the loopback interface, with its database in the project folder."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tcl.console import note
from tcl.errors import WorkFailed
from tcl.ports import HOST, require_free
from tcl.settings import Settings

_START_SECONDS = 300.0
_STOP_SECONDS = 30.0
_SLOT_WAIT_SECONDS = "5"  # between two looks of a run that waits for its deployment's turn


def address_of(port: int) -> str:
    """The server's API."""
    return f"http://{HOST}:{port}/api"


@contextmanager
def running_server(settings: Settings, port: int) -> Iterator[str]:
    """Run a server on a port for the block; yields its API's address. It ends with this process, however that ends.

    `flows.environment.prepare` comes first: the server reads the same variables.

    Raises
    ------
    BadInput
        When its port is taken.
    WorkFailed
        When it does not start.
    """
    require_free(port, "choose another with --port, or set PREFECT_API_URL to the Prefect API there")
    log = settings.prefect_home / "server.log"
    arguments = ["server", "start", "--host", HOST, "--port", str(port)]
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tcl.processes", str(os.getpid()), "prefect", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ
            | {
                "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": _SLOT_WAIT_SECONDS,
                "PREFECT_UI_API_URL": address_of(port),
            },
            start_new_session=True,  # Ctrl-C is for us: the runs stop first, then the server
        )
    try:
        note(f"starting a Prefect server at http://{HOST}:{port} (log {log})")
        _await(process, address_of(port), log)
        yield address_of(port)
    finally:
        if process.poll() is None:
            _send_the_rest()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _send_the_rest() -> None:
    """Let Prefect send the logs and events that it holds: without a server it would try for a minute at exit."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=_STOP_SECONDS)


def _await(process: "subprocess.Popen[bytes]", address: str, log: object) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise WorkFailed(f"the Prefect server ended when it was started; its log {log} says why")
        try:
            urllib.request.urlopen(f"{address}/health", timeout=5).close()
            return
        except OSError:
            time.sleep(0.3)
    raise WorkFailed(f"the Prefect server did not answer within {_START_SECONDS:g} s; its log is {log}")
