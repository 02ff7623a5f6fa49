"""Recognise this host."""

from tcl.devices.device import Device
from tcl.devices.host import builtin_variants, detect_host
from tcl.devices.store import DeviceStore
from tcl.settings import Settings


def detect_devices(settings: Settings, name: str | None = None) -> list[Device]:
    """Record this host and its built-in variants; the host itself comes first."""
    devices = builtin_variants(detect_host(name))
    store = DeviceStore(settings.devices_dir)
    for device in devices:
        store.add(device)
    return devices
