"""Errors a user is meant to read: one sentence each, with the exit code of the command that meets them."""

import traceback
from typing import Any

_SHOWN = 60


class TclError(Exception):
    """Base of every error that ends a command with one line instead of a traceback."""

    exit_code = 1


class BadInput(TclError):
    """The user's input or usage is wrong; the message says what, where and what to do."""

    exit_code = 2


class WorkFailed(TclError):
    """The input was right but the work did not succeed."""

    exit_code = 1


class WrongResults(WorkFailed):
    """A compiled program computes something else than its model, or crashes."""


class DeviceLost(WorkFailed):
    """A device cannot be reached; what was measured is kept, and the work goes on when it is back."""


def in_one_line(error: Exception) -> str:
    """Say what failed where other work goes on; of a bug, the traceback goes to standard error."""
    if isinstance(error, TclError | OSError):
        return str(error)
    traceback.print_exception(error)
    return f"unexpected {type(error).__name__}: {error}"


def shown(value: Any) -> str:
    """Return how a message names a wrong value: in one line, and cut when it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
