"""The `tcl` command in processes that are forked from one which holds its libraries already.

Loading torch, TVM and MLflow takes most of the time of a small command, and the tests give hundreds. Such a process
differs from one of the shell's in nothing else: it has a folder, an environment and outputs of its own, and runs the
entry point of the `tcl` program once. What libraries read from the environment while they are loaded is the server's;
`Project.run` in `command_line.py` gives commands that depend on it to the real program.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

LIBRARIES = (
    "torch",
    "mlflow.artifacts",
    "mlflow.store.tracking.sqlalchemy_store",
    "mlflow.store.model_registry.sqlalchemy_store",
    "mlflow.tracking",
    "onnx",
    "pyarrow.parquet",
    "rich.console",
    "scipy.optimize",
)
_REQUEST_BYTES = 1 << 20
_STARTING = threading.Lock()


def clean_environment() -> dict[str, str]:
    """The variables of this process without the tester's own settings and services."""
    foreign = ("TCL_", "MLFLOW_", "DVC_", "PREFECT_")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


def run(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], timeout: float
) -> tuple[int, str, str]:
    """Run a command; returns its exit code, output and errors."""
    request = {"arguments": list(arguments), "cwd": str(cwd), "environment": dict(environment)}
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection,
    ):
        connection.settimeout(timeout)
        with _STARTING:
            address = _server()
        connection.connect(address)
        socket.send_fds(connection, [json.dumps(request).encode()], [out.fileno(), err.fileno()])
        code = int(connection.recv(64))
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


@functools.cache
def _server() -> str:
    """Start the server when it is first needed, until this process ends; returns its socket."""
    address = str(Path(tempfile.mkdtemp(prefix="tcl-tests-")) / "socket")
    process = subprocess.Popen(
        [sys.executable, __file__, address],
        stdin=subprocess.PIPE,  # whose end tells the server that this process is gone
        stdout=subprocess.PIPE,
        env=clean_environment() | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    atexit.register(_stop, process, address)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return address


def _stop(process: subprocess.Popen[bytes], address: str) -> None:
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()
    Path(address).unlink()
    Path(address).parent.rmdir()


def _serve(address: str) -> None:
    _load()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _answer(connection)
        connection.close()
        while _ended():
            pass


def _load() -> None:
    """Load what most commands use, with the variables that they would set themselves."""
    from tcl.compiler.bootstrap import import_tvm
    from tcl.registry import store

    os.environ.update(store._ENVIRONMENT)
    for name in LIBRARIES:
        importlib.import_module(name)
    import_tvm()


def _ended() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _answer(connection: socket.socket) -> NoReturn:
    """Run one command in a process of its own and send its exit code."""
    content, outputs, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, 2)
    process = os.fork()
    if process == 0:
        connection.close()
        _command(json.loads(content), outputs)
    _, status = os.waitpid(process, 0)
    connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _command(request: dict[str, Any], outputs: list[int]) -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for descriptor, output in enumerate(outputs, start=1):
        os.dup2(output, descriptor)
    tempfile.tempdir = None
    sys.argv = ["tcl", *request["arguments"]]
    code = 1
    try:
        importlib.import_module("tcl.cli.main").main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
