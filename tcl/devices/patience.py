"""Waiting for a device that is away."""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TypeVar

from tcl.console import note
from tcl.errors import DeviceLost

T = TypeVar("T")
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds


def _note(reason: str | None) -> None:
    note(reason or "the device is back")


_tell: ContextVar[Callable[[str | None], None]] = ContextVar("tell", default=_note)


@contextlib.contextmanager
def told_to(tell: Callable[[str | None], None]) -> Iterator[None]:
    """Within the block, call `tell` instead of noting on standard error that a device is waited for.

    It gets ``"waiting for device NAME: reason"`` after each attempt that failed, and None when the device is back.
    """
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)


def patiently(device: str, seconds: float, work: Callable[[], T]) -> T:
    """Do `work`; while it raises `DeviceLost`, do it again after longer and longer pauses.

    Parameters
    ----------
    device
        The device's name.
    seconds
        How long it is waited for.

    Raises
    ------
    DeviceLost
        When the time is over.
    """
    pause, end = _FIRST_PAUSE, None
    while True:
        try:
            result = work()
        except DeviceLost as error:
            end = end or time.monotonic() + seconds
            left = end - time.monotonic()
            reason = f"waiting for device {device}: {error}"
            if left <= 0:
                raise DeviceLost(f"{reason}; start it and give the same command again") from None
            _tell.get()(reason)
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            if end is not None:
                _tell.get()(None)
            return result
