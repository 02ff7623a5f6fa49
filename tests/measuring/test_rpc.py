import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tcl.devices.device import Device, Rpc
from tcl.errors import WorkFailed
from tcl.measuring.engine import MeasuringEngine
from tcl.measuring.types import MeasureOptions, MeasureRequest

Sample = Callable[[int], list[MeasureRequest]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port: int, seconds: float = 120.0) -> None:
    """Wait until something listens on the port."""
    end = time.monotonic() + seconds
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < end, f"nothing listens on port {port}"
        time.sleep(0.1)


def start(module: str, *arguments: str) -> subprocess.Popen:
    # TVM starts in a fraction of the time without torch.
    code = (
        f"import sys, runpy; sys.modules['torch'] = None; runpy.run_module({module!r}, run_name='__main__')"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.fixture
def board(device: Device) -> Iterator[Device]:
    """The device behind a tracker and a server on the loopback interface."""
    port, server_port = free_port(), free_port()
    loopback = "--host=127.0.0.1"
    tracker = start("tvm.exec.rpc_tracker", loopback, f"--port={port}", f"--port-end={port + 1}")
    address = f"--tracker=127.0.0.1:{port}"
    ports = (f"--port={server_port}", f"--port-end={server_port + 1}")
    server = start("tvm.exec.rpc_server", loopback, address, "--key=board", *ports)
    try:
        wait_for(port)
        yield replace(device, name="board", rpc=Rpc("127.0.0.1", port, "board"))
    finally:
        for process in (server, tracker):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.slow
def test_a_board_measures_and_survives_a_candidate_that_hangs(
    board: Device, matmul: Sample, plants: dict[str, MeasureRequest], options: MeasureOptions
) -> None:
    good = matmul(3)
    with MeasuringEngine(board, options) as engine:
        results = list(engine.measure(good))
        (hung,) = engine.measure([plants["hang"]])
        results += engine.measure(good[:1])
    assert len(results) == 4
    for result in results:
        assert result.error is None and result.run_seconds
        assert result.reference_seconds is not None and result.reference_seconds > 0
    assert hung.error == "timeout: the run took too long"


@pytest.mark.slow
def test_a_board_that_is_not_there_is_waited_for_and_then_named(
    device: Device, matmul: Sample, options: MeasureOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tcl.measuring.engine._RECONNECT_SECONDS", 0.01)
    gone = replace(device, name="pi", rpc=Rpc("127.0.0.1", free_port(), "pi"))
    with MeasuringEngine(gone, options) as engine, pytest.raises(WorkFailed, match="waiting for device pi"):
        next(engine.measure(matmul(1)))
