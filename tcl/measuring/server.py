"""The fork server: a child process that has imported TVM once and forks workers in milliseconds.

Started by `tcl.measuring.pool.WorkerPool` as ``python -m tcl.measuring.server SOCKET TARGET``. It owns the
folder of temporary files. When the engine's process ends, however it ends, the server kills its workers,
removes the folder and ends too; when the server is killed, the kernel kills the workers.

Requests on the control socket (each one packet of JSON):

* ``{"op": "spawn", "role": "build" | "run", "settings": {...}}`` with the worker's socket attached
  → ``{"pid": ...}``
* ``{"op": "reap", "pid": ...}`` waits for that worker's end → ``{"signal": number or null, "log": its last
  words}``
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from tcl.measuring.channel import Channel
from tcl.processes import die_with

PACKET_BYTES = 1 << 16
_LOG_BYTES = 2000


def main(descriptor: int, target: dict[str, Any]) -> None:
    """Serve until the engine is gone."""
    control = socket.socket(fileno=descriptor)
    parent = os.getppid()
    root = Path(tempfile.mkdtemp(prefix="tcl-measuring-"))
    children: set[int] = set()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    die_with(parent, signal.SIGTERM)  # also while TVM is being loaded
    try:
        try:
            _answer(control, target, root, parent, children)
        finally:  # the engine's end shows at the socket and as a signal: the later one must not cut the clean-up short
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    finally:
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)
        shutil.rmtree(root, ignore_errors=True)


def _answer(
    control: socket.socket, target: dict[str, Any], root: Path, parent: int, children: set[int]
) -> None:
    """Load TVM, then start and end workers as the engine asks, until it is gone."""
    from tcl.compiler.measuring import workers

    workers.preload(target)
    gc.freeze()  # workers share the pages of what is loaded by now
    with contextlib.suppress(BrokenPipeError, ConnectionError):
        _send(control, {"root": str(root)})
        while os.getppid() == parent:
            if not select.select([control], [], [], 2.0)[0]:
                continue
            packet, descriptors, _, _ = socket.recv_fds(control, PACKET_BYTES, 1)
            if not packet:
                break
            request = json.loads(packet)
            if request["op"] == "spawn":
                pid = _spawn(control, root, descriptors[0], request["role"], request["settings"])
                children.add(pid)
                _send(control, {"pid": pid})
            else:
                _, status = os.waitpid(request["pid"], 0)
                children.discard(request["pid"])
                number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
                _send(control, {"signal": number, "log": _last_words(_log_path(root, request["pid"]))})


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    control.send(json.dumps(message).encode())


def _spawn(control: socket.socket, root: Path, descriptor: int, role: str, settings: dict[str, Any]) -> int:
    server = os.getpid()
    pid = os.fork()
    if pid:
        os.close(descriptor)
        with contextlib.suppress(OSError):  # the child does it too, whoever comes first
            os.setpgid(pid, pid)
        return pid
    try:
        os.setpgid(0, 0)
        control.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with(server)
        _redirect_output(_log_path(root, os.getpid()))
        _limit_memory(settings["memory_bytes"])
        _serve(Channel(socket.socket(fileno=descriptor)), role, settings)
    except BaseException as error:  # nothing of the server's may run in the child
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def _serve(channel: Channel, role: str, settings: dict[str, Any]) -> None:
    from tcl.compiler.measuring import workers

    handle = (workers.BuildWorker if role == "build" else workers.run_worker)(settings)
    while (message := channel.receive()) is not None:
        channel.send(handle(message))


def _log_path(root: Path, pid: int) -> Path:
    return root / f"worker-{pid}.log"


def _redirect_output(path: Path) -> None:
    log = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _last_words(path: Path) -> str:
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _LOG_BYTES))
            return log.read().decode(errors="replace")
    except OSError:
        return ""
    finally:
        path.unlink(missing_ok=True)


def _limit_memory(extra: int) -> None:
    """Let this process map `extra` bytes more than it has mapped by now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + extra
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
