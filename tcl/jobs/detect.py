"""Recognise this host, and targets by their name."""

from typing import Any

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


def describe_target(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A target by its name in TVM, such as ``cuda`` or ``nvidia/nvidia-h100``: its JSON, and facts about the GPU."""
    from tcl.compiler.targets import describe

    return describe(name)
