"""When a benchmark ran, and on what."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Collection


@functools.cache
def machine() -> str:
    """The machine in a few words."""
    from tcl.devices.device import cpu_name
    from tcl.devices.host import detect_host

    facts = detect_host().facts
    return f"{cpu_name(facts)}, {facts['cores']} cores"


def today() -> str:
    """The day in UTC, as it is kept with a measurement."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def period(days: Collection[str]) -> str:
    """From the first to the last of the days that measurements are of; today where there are none."""
    first, last = min(days, default=today()), max(days, default=today())
    return first if first == last else f"{first} to {last}"
