"""`tcl device`: detect this host, add other devices, show what is known."""

import json

import click

from tcl.cli.command import Group, Report, command
from tcl.devices.device import Device, parse_device, parse_rpc
from tcl.devices.host import on_this_host, why_unreachable
from tcl.devices.store import DeviceStore
from tcl.jobs.tables import Table
from tcl.settings import load_settings


@click.group(name="device", cls=Group)
def entry() -> None:
    """Detect, add and show the devices to compile for."""


@command("detect")
@click.option("--name", help="Name of the device; default: its CPU and cores, such as znver4-2c.")
def detect(name: str | None) -> Report:
    """Recognise this host and record it, with its variants of fewer instructions and cores."""
    from tcl.jobs.detect import detect_devices

    devices = detect_devices(load_settings(), name)
    return Report(
        {"device": devices[0].to_json(), "variants": [device.to_json() for device in devices[1:]]},
        tables=[_table("Recorded devices", devices)],
    )


@command("add")
@click.argument("name")
@click.option(
    "--target",
    required=True,
    help='TVM target as JSON, e.g. {"kind": "llvm", "num-cores": 4}; or a GPU: cuda, nvidia/nvidia-h100.',
)
@click.option("--rpc", metavar="HOST:PORT", help="Address of the TVM RPC tracker that reaches the device.")
@click.option("--key", help="Key of the device at the tracker.")
def add(name: str, target: str, rpc: str | None, key: str | None) -> Report:
    """Record a device by its TVM target, and how to reach it."""
    from tcl.jobs.detect import check_target, describe_target

    if target.lstrip().startswith("{"):
        device = on_this_host(parse_device(name, target, rpc, key))
        check_target(device.target)
    else:
        address = parse_rpc(name, rpc, key)
        described, facts = describe_target(target)
        device = Device(name, described, address, facts)
    _store().add(device)
    return Report({"device": device.to_json()}, [f"recorded {name}"])


@command("list")
def show_all() -> Report:
    """List the recorded devices."""
    devices = _store().list()
    return Report(
        {"devices": [device.to_json() for device in devices]},
        tables=[_table("Devices", devices)] if devices else [],
        lines=[] if devices else ["no device is recorded; tcl device detect records this host"],
    )


@command("show")
@click.argument("name")
def show(name: str) -> Report:
    """Show one device: target, how it is reached, facts."""
    device = _store().get(name)
    return Report({"device": device.to_json()}, [json.dumps(device.to_json(), indent=2)])


for _command in (detect, add, show_all, show):
    entry.add_command(_command)


def _store() -> DeviceStore:
    return DeviceStore(load_settings().devices_dir)


def _table(title: str, devices: list[Device]) -> Table:
    rows = [
        (
            device.name,
            str(device.target.get("mcpu") or device.target["kind"]),
            device.num_cores,
            _reached_by(device),
        )
        for device in devices
    ]
    return Table(title, ("name", "target", "cores", "reached by"), rows)


def _reached_by(device: Device) -> str:
    if device.rpc is not None:
        return f"{device.rpc.host}:{device.rpc.port} as {device.rpc.key}"
    reason = why_unreachable(device)
    return "this host" if reason is None else f"not at hand: {reason}"
