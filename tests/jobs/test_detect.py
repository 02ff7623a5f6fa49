"""Recording this host where other hosts of a fleet are known."""

from __future__ import annotations

import json

import pytest

from tcl.devices.store import DeviceStore
from tcl.errors import BadInput
from tcl.jobs.detect import detect_devices
from tcl.settings import Settings


def make_another_host(settings: Settings, name: str) -> None:
    path = settings.devices_dir / f"{name}.json"
    content = json.loads(path.read_text())
    content["facts"]["cpu_model"] = "Another CPU"
    path.write_text(json.dumps(content))


def test_detect_devices_records_another_name_when_the_usual_one_is_of_another_cpu(settings: Settings):
    first = detect_devices(settings)
    assert detect_devices(settings) == first
    for device in first:
        make_another_host(settings, device.name)
    second = detect_devices(settings)
    assert detect_devices(settings) == second
    assert all(new.name.startswith(f"{old.name}-") for new, old in zip(second, first, strict=True))
    assert len(DeviceStore(settings.devices_dir).list()) == 2 * len(first)
    assert all(DeviceStore(settings.devices_dir).get(device.name) == device for device in second)


def test_detect_devices_refuses_a_name_when_it_is_of_another_cpu(settings: Settings):
    detect_devices(settings, "mine")
    make_another_host(settings, "mine")
    with pytest.raises(BadInput, match="'mine' exists as the CPU 'Another CPU "):
        detect_devices(settings, "mine")
