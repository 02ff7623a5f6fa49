"""The device files of a project: one `NAME.json` a device."""

import json
from collections.abc import Iterable
from pathlib import Path

from tcl.devices.device import Device, check_name, cpu_name, is_other_cpu
from tcl.errors import BadInput
from tcl.files import atomic_json


class DeviceStore:
    """Devices kept as JSON files in one folder.

    Parameters
    ----------
    folder
        The folder; made with the first device.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, device: Device) -> Device:
        """Record `device` and return what is recorded under its name.

        A device that is known with the same target, address and CPU stays as it is: its measurements were made
        under the facts recorded then.

        Raises
        ------
        BadInput
            When the name stands for another target, address or CPU.
        """
        path = self._path(device.name)
        if path.exists():
            known = self.get(device.name)
            if (known.target, known.rpc) != (device.target, device.rpc):
                raise BadInput(
                    f"device {device.name!r} exists with another target or address ({path}): its"
                    " measurements belong to that one, so choose another name"
                )
            if is_other_cpu(known.facts, device.facts):
                raise BadInput(
                    f"device {device.name!r} exists as the CPU {cpu_name(known.facts)!r} and this is"
                    f" {cpu_name(device.facts)!r} ({path}): its measurements belong to that one, so choose another name"
                )
            return known
        atomic_json(path, device.to_json())
        return device

    def has(self, name: str) -> bool:
        """Whether there is a file of the device."""
        return self._path(check_name(name)).exists()

    def get(self, name: str) -> Device:
        """Return a device.

        Raises
        ------
        BadInput
            When it is unknown (naming the known ones) or its file is broken.
        """
        check_name(name)
        path = self._path(name)
        if not path.exists():
            known = ", ".join(self._names()) or "none; `tcl device detect` records this host"
            raise BadInput(f"device {name!r} is unknown; known devices: {known}")
        try:
            device = Device.from_json(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, RecursionError, BadInput) as error:
            raise BadInput(f"{path}: {error}") from None
        if device.name != name:
            raise BadInput(f"{path}: describes device {device.name!r}; give file and device the same name")
        return device

    def list(self) -> list[Device]:
        """Return all devices, sorted by name.

        Raises
        ------
        BadInput
            When a device file is broken.
        """
        return [self.get(check_name(name, self._path(name))) for name in self._names()]

    def _names(self) -> Iterable[str]:
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"
