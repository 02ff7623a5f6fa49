"""Child processes that end with the process that started them, however that one ends."""

import contextlib
import ctypes
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import FrameType

_PR_SET_PDEATHSIG = 1


def run_module(
    module: str, arguments: Sequence[str], timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a module as a program in a process of its own and wait for it.

    Parameters
    ----------
    module, arguments
        As in ``python -m MODULE ARGUMENT...``.
    timeout
        Seconds after which it is killed.

    Raises
    ------
    subprocess.TimeoutExpired
        When it was killed.
    """
    command = [sys.executable, "-m", "tcl.processes", str(os.getpid()), module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when its parent, the process `parent`, ends."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it has ended already
        os._exit(1)


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Within the block SIGTERM, by which service managers and `kill` end a program, raises `KeyboardInterrupt`.

    So what the program has opened elsewhere is closed, as after Ctrl-C.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
