"""Fuzzing: a few inputs of each kind in the test suite, thousands with `make fuzz`.

Every input must end in a result or in one sentence (`TclError`) within ten seconds, and nothing may be written outside
the working folder.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tcl.errors import TclError

sys.path.insert(0, str(Path(__file__).parent.parent / "compiler"))  # its small ONNX models

SECONDS = 10
_COMMON: dict[str, Any] = {
    "deadline": SECONDS * 1000,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}
_EXAMPLES = os.environ.get("FUZZ_EXAMPLES")
FUZZED = settings(max_examples=int(_EXAMPLES or 15), derandomize=_EXAMPLES is None, **_COMMON)
"""What every test here is decorated with."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGES = {"os.mkdir", "os.remove", "os.rmdir"}
_seconds: dict[str, list[float]] = defaultdict(list)  # of each input, by kind
_watch: list[Callable[[str, tuple[Any, ...]], None]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    for look in _watch:
        look(event, arguments)


sys.addaudithook(_hook)  # for good: Python cannot take one away


class Folder:
    """A working folder below one that must not change."""

    def __init__(self, outside: Path) -> None:
        self.outside = outside
        self.path = outside / "work"
        self.path.mkdir()
        (outside / "secret").write_bytes(b"x" * 4096)
        self._allowed = [str(self.path), tempfile.gettempdir(), "/dev/", "/proc/", "/memfd"]

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Let the block fail in one sentence; no other error, and no change outside the working folder."""
        strays: list[str] = []

        def look(event: str, arguments: tuple[Any, ...]) -> None:
            paths: list[Any] = []
            if event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING:
                paths = [arguments[0]]
            elif event in ("os.rename", "os.link", "os.symlink"):
                paths = [arguments[1]]
            elif (
                event in _CHANGES and arguments[-1] == -1
            ):  # otherwise the path is relative to an open folder
                paths = [arguments[0]]
            strays.extend(
                f"{event} {path!r}"
                for path in paths
                if isinstance(path, str | bytes) and not self._is_inside(os.fsdecode(path))
            )

        _watch.append(look)
        began = time.monotonic()
        try:
            with contextlib.suppress(TclError):
                yield
        finally:
            _watch.pop()
            kind, _, stage = os.environ["PYTEST_CURRENT_TEST"].partition(" ")
            if stage == "(call)":  # not the right input that a fixture tries
                _seconds[kind].append(time.monotonic() - began)
        assert not strays
        assert sorted(p.name for p in self.outside.iterdir()) == ["secret", "work"]
        assert (self.outside / "secret").read_bytes() == b"x" * 4096

    def _is_inside(self, name: str) -> bool:
        path = str(Path(name).resolve())
        return path.startswith(tuple(self._allowed)) and not (
            path.startswith(str(self.outside)) and not path.startswith(str(self.path))
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("outside"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """With `make fuzz`: how many inputs of each kind were tried, and what the slowest took."""
    if _EXAMPLES is None:
        return
    for kind, seconds in sorted(_seconds.items()):
        terminalreporter.write_line(f"{len(seconds)} inputs, the slowest {max(seconds):.2f} s: {kind}")
    everything = [value for seconds in _seconds.values() for value in seconds]
    terminalreporter.write_line(f"{len(everything)} inputs in all, the slowest {max(everything):.2f} s")
