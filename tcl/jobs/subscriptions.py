"""Which ONNX models follow the champion of which device: `subscriptions.json` in the project folder."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tcl.devices.device import check_name
from tcl.devices.store import DeviceStore
from tcl.errors import BadInput
from tcl.files import atomic_json, locked
from tcl.jobs.tables import Table
from tcl.settings import Settings

_FORMAT = 1
_LOCK_SECONDS = 60.0


@dataclass(frozen=True)
class Subscription:
    """A model that is compiled again whenever a device gets a new champion.

    Attributes
    ----------
    model
        The ONNX file; relative to the project folder where it lies in it.
    device
        Name of a recorded device.
    output
        Where the package goes, relative in the same way.
    shapes
        Values of ``--shape``.
    trials
        Candidates measured at each compile; None: the setting ``tuning.trials``.
    """

    model: str
    device: str
    output: str
    shapes: tuple[str, ...] = ()
    trials: int | None = None

    @property
    def key(self) -> str:
        """Names the subscription in files: its model, and a hash of what makes it another package."""
        text = json.dumps([self.model, self.device, self.shapes, self.trials])
        return f"{Path(self.model).stem}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def subscribe(
    settings: Settings,
    model: Path | str,
    device: str,
    output: Path | str | None = None,
    shapes: tuple[str, ...] = (),
    trials: int | None = None,
) -> Subscription:
    """Add a subscription, or change the one of the same model and device.

    Raises
    ------
    BadInput
        When the device is unknown, the model cannot be read with these shapes, or the output folder is another
        subscription's or no package.
    """
    from tcl.compiler.frontend.model import read_onnx
    from tcl.compiler.frontend.shapes import parse_pins
    from tcl.compiler.packaging.package import check_target

    DeviceStore(settings.devices_dir).get(device)
    pins = parse_pins(shapes)
    folder = Path(output) if output else settings.root / "packages" / device / Path(model).stem
    check_target(folder)
    read_onnx(Path(model).expanduser(), *pins)
    new = Subscription(_inside(settings, model), device, _inside(settings, folder), shapes, trials)
    with _changed(settings) as known:
        others = [item for item in known if (item.model, item.device) != (new.model, new.device)]
        for item in others:
            if item.output == new.output:
                raise BadInput(f"{new.output} is the package of {item.model}; choose another folder with -o")
        known[:] = sorted([*others, new], key=lambda item: (item.device, item.model))
    return new


def unsubscribe(settings: Settings, model: Path | str, device: str) -> Subscription:
    """Remove a subscription and return it; its package stays.

    Raises
    ------
    BadInput
        When there is none of this model and device.
    """
    name = _inside(settings, model)
    with _changed(settings) as known:
        for item in known:
            if (item.model, item.device) == (name, device):
                known.remove(item)
                return item
        listed = ", ".join(f"{item.model} on {item.device}" for item in known) or "none"
        raise BadInput(f"{name} is not subscribed to {device}; subscribed are: {listed}")


def subscriptions(settings: Settings, device: str | None = None) -> list[Subscription]:
    """Return the subscriptions, of one device or of all, by device and model."""
    known = _read(settings.subscriptions_file)
    return [item for item in known if device in (None, item.device)]


def table(found: list[Subscription]) -> Table:
    """One row for each subscription."""
    rows = [(item.device, item.model, " ".join(item.shapes), item.trials, item.output) for item in found]
    return Table("Subscriptions", ("device", "model", "shapes", "trials", "package"), rows)


def _inside(settings: Settings, path: Path | str) -> str:
    """A path as the project keeps it, so that the project can be moved: one name for each file."""
    places = (Path(path).expanduser().absolute(), settings.root)
    absolute, root = (Path(os.path.normpath(place)) for place in places)  # links stay links
    return str(absolute.relative_to(root) if absolute.is_relative_to(root) else absolute)


@contextmanager
def _changed(settings: Settings) -> Iterator[list[Subscription]]:
    """Give the list to change; it is written when the block ends without an error."""
    lock = settings.state_dir / "subscriptions.lock"
    with locked(lock, _LOCK_SECONDS, "the list of subscriptions"):
        known = _read(settings.subscriptions_file)
        yield known
        atomic_json(
            settings.subscriptions_file,
            {"format_version": _FORMAT, "subscriptions": [asdict(item) for item in known]},
        )


def _read(path: Path) -> list[Subscription]:
    if not path.exists():
        return []
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
        if value["format_version"] != _FORMAT:
            raise ValueError(f"format {value['format_version']}, not {_FORMAT}")
        found = [Subscription(**{**item, "shapes": tuple(item["shapes"])}) for item in value["subscriptions"]]
        for item in found:
            check_name(item.device)  # it becomes a part of paths
            if not all(isinstance(field, str) for field in (item.model, item.output, *item.shapes)):
                raise ValueError("a model, output or shape is no text")
            if item.trials is not None and (type(item.trials) is not int or item.trials < 0):
                raise ValueError(f"trials are {item.trials!r}")
    except (ValueError, KeyError, TypeError, RecursionError, BadInput) as error:
        raise BadInput(f"{path}: this is no list of subscriptions ({error}); mend or delete it") from None
    return found
