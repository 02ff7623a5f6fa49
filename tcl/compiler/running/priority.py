"""Priority of processes that time programs."""

from __future__ import annotations

import contextlib
import os


def raise_priority() -> None:
    """Run before all other processes where this is permitted, and among them where it is not.

    A real-time class, since many systems weigh niceness only within one terminal session. The kernel keeps a
    part of each second for the others, so that whoever waits for a program that hangs gets the time to end it.
    """
    with contextlib.suppress(AttributeError, PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))
