"""Recognise this host, and targets by their name."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tcl.devices.device import NAME_LENGTH, Device, is_other_cpu
from tcl.devices.host import builtin_variants, detect_host
from tcl.devices.store import DeviceStore
from tcl.settings import Settings


def detect_devices(settings: Settings, name: str | None = None) -> list[Device]:
    """Record this host and its built-in variants; the host itself comes first.

    A name that was not asked for and belongs to another CPU already, as names of a fleet may, gets the CPU's appended.

    Raises
    ------
    BadInput
        When `name` stands for another device.
    """
    store = DeviceStore(settings.devices_dir)
    known = {device.name: device for device in store.list()}
    devices = []
    for device in builtin_variants(detect_host(name)):
        other = known.get(device.name)
        if other and device.name != name and is_other_cpu(other.facts, device.facts):
            device = replace(device, name=_with_cpu(device))
        store.add(device)
        devices.append(device)
    return devices


def _with_cpu(device: Device) -> str:
    cpu = re.sub(r"[^a-z0-9]+", "-", device.facts["cpu_model"].lower()).strip("-")
    return f"{device.name}-{cpu}"[:NAME_LENGTH]


def check_target(target: Mapping[str, Any]) -> None:
    """Refuse the JSON of a target that TVM, or LLVM, does not know."""
    from tcl.compiler.targets import target_of

    target_of(target)


def describe_target(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A target by its name in TVM, such as ``cuda`` or ``nvidia/nvidia-h100``: its JSON, and facts about the GPU."""
    from tcl.compiler.targets import describe

    return describe(name)
