"""When a benchmark ran, and on what."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Collection
from typing import TYPE_CHECKING

from tcl.errors import BadInput

if TYPE_CHECKING:
    from tcl.devices.device import Device
    from tcl.settings import Settings


@functools.cache
def machine() -> str:
    """The machine in a few words."""
    from tcl.devices.device import cpu_name
    from tcl.devices.host import detect_host

    facts = detect_host().facts
    return f"{cpu_name(facts)}, {facts['cores']} cores"


def own_device(settings: Settings) -> Device:
    """The recorded device with measurements that this machine is, with all that it can do.

    Raises
    ------
    BadInput
        When there is none.
    """
    from tcl.devices.host import detect_host, is_reachable
    from tcl.devices.store import DeviceStore
    from tcl.records.store import RecordStore

    devices, measured = DeviceStore(settings.devices_dir), RecordStore(settings.data_dir).devices()
    own = detect_host()
    for device in map(devices.get, filter(devices.has, measured)):
        if device.rpc is None and device.target == own.target and is_reachable(device):
            return device
    raise BadInput(
        f"this machine ({own.name}) is none of the devices that have measurements ({', '.join(measured) or 'none'});"
        " measure some programs first: tcl device detect, then tcl measure MODEL... --device NAME"
    )


def today() -> str:
    """The day in UTC, as it is kept with a measurement."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def period(days: Collection[str]) -> str:
    """From the first to the last of the days that measurements are of; today where there are none."""
    first, last = min(days, default=today()), max(days, default=today())
    return first if first == last else f"{first} to {last}"
