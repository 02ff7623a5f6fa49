"""Boards on the loopback interface: a real tracker and real RPC servers, each pinned to a core."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from tcl.compiler.bootstrap import import_tvm
from tcl.compiler.running.rpc import await_board
from tcl.errors import DeviceLost

# TVM starts in a fraction of the time without torch.
_CODE = (
    "import os, runpy, sys\n"
    "sys.modules['torch'] = None\n"
    "core = int(sys.argv.pop(1))\n"
    "cores = sorted(os.sched_getaffinity(0))\n"
    "os.sched_setaffinity(0, {cores[core % len(cores)]})\n"
    "runpy.run_module(sys.argv.pop(1), run_name='__main__')\n"
)
HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


class Boards:
    """A tracker, and servers that register there under their keys."""

    def __init__(self) -> None:
        self.port = free_port()
        self._servers: dict[str, subprocess.Popen] = {}
        self._tracker = _start(0, "rpc_tracker", f"--port={self.port}", f"--port-end={self.port + 1}")
        wait_for(self.port)

    def start(self, key: str, core: int = 0) -> None:
        """Start the board `key` on the core with this number, and wait until the tracker knows it."""
        port = free_port()
        self._servers[key] = _start(
            core,
            "rpc_server",
            f"--tracker={HOST}:{self.port}",
            f"--key={key}",
            f"--port={port}",
            f"--port-end={port + 1}",
        )
        import_tvm()
        for _ in range(40):
            with contextlib.suppress(DeviceLost):
                return await_board({"host": HOST, "port": self.port, "key": key})
        raise AssertionError(f"the board {key} does not come up")

    def kill(self, key: str) -> None:
        """Cut the board's power."""
        _kill(self._servers.pop(key))

    def close(self) -> None:
        for server in self._servers.values():
            _kill(server)
        _kill(self._tracker)


@contextlib.contextmanager
def boards(*keys: str) -> Iterator[Boards]:
    """Boards with these keys, on a core each."""
    running = Boards()
    try:
        for core, key in enumerate(keys):
            running.start(key, core)
        yield running
    finally:
        running.close()


def wait_for(port: int, seconds: float = 300.0) -> None:
    """Wait until something listens on the port."""
    end = time.monotonic() + seconds
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        assert time.monotonic() < end, f"nothing listens on port {port}"
        time.sleep(0.1)


def _start(core: int, module: str, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", _CODE, str(core), f"tvm.exec.{module}", f"--host={HOST}", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _kill(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
