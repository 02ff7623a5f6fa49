"""Child processes that end with the process that started them, however that one ends."""

import contextlib
import ctypes
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import FrameType

import tcl.errors
from tcl.errors import TclError

OUT_OF_MEMORY = ("bad_alloc", "Cannot allocate memory", "out of memory", "MemoryError")
"""Signs of it in messages."""
_PR_SET_PDEATHSIG = 1
_EX_SOFTWARE = 70  # of a process whose last line on standard error is the `TclError` that ended it
_BY_OTHERS = (-signal.SIGKILL, -signal.SIGTERM)  # the system, which was out of memory, or a person
_CRASHES = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGABRT, -signal.SIGTRAP)


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
    TclError
        When that ended it: the same one.
    """
    command = [sys.executable, "-m", "tcl.processes", str(os.getpid()), module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode == _EX_SOFTWARE:
        name, message = json.loads(done.stderr.splitlines()[-1])
        raise getattr(tcl.errors, name)(message)
    return done


def has_crashed(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether a process ended by a fault of the program in it.

    Neither an exception nor a lack of memory is one, nor is an instruction that this CPU does not have.
    """
    return done.returncode in _CRASHES and not _is_starved(done)


def why_failed(done: subprocess.CompletedProcess[str]) -> str:
    """Say why a process failed: the last line of its messages, or the signal."""
    lines = done.stderr.strip().splitlines()
    reason = lines[-1] if lines else f"exit code {done.returncode}"
    if done.returncode < 0:
        reason = signal.Signals(-done.returncode).name
    if done.returncode == -signal.SIGILL:
        return f"{reason}: it has instructions that this CPU lacks, so it is for another machine"
    return f"{reason}: the machine has too little memory" if _is_starved(done) else reason


def _is_starved(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode in _BY_OTHERS or any(sign in done.stderr for sign in OUT_OF_MEMORY)


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
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except TclError as error:
        print(json.dumps([type(error).__name__, str(error)]), file=sys.stderr)
        sys.exit(_EX_SOFTWARE)
