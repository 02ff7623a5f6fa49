"""A package on its device: verified and timed, here or on the board, which is waited for when it is away."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcl.console import note
from tcl.devices.device import Device
from tcl.devices.patience import patiently
from tcl.settings import Settings

if TYPE_CHECKING:
    from tcl.compiler.frontend.model import OnnxModel


def verify_on(folder: Path, model: "OnnxModel", device: Device, settings: Settings) -> dict[str, Any]:
    """Compare a package with onnxruntime; see `tcl.compiler.running.verify.verify`."""
    from tcl.compiler.running.verify import verify

    note("verifying against onnxruntime")
    return patiently(
        device.name,
        settings.measure.device_wait,
        lambda: verify(folder, model, device.num_cores, asdict(settings.verify), device.rpc),
    ).to_json()


def time_on(
    packages: Mapping[str, Path], model: "OnnxModel | None", device: Device, rounds: int, settings: Settings
) -> dict[str, dict[str, Any]]:
    """Time packages and, on this machine and with a model, onnxruntime beside them, in turn."""
    from tcl.compiler.running.latency import benchmark

    note("timing")
    beside = model if device.rpc is None else None
    timed = patiently(
        device.name,
        settings.measure.device_wait,
        lambda: benchmark(packages, beside, rounds, device.rpc),
    )
    return {name: latency.to_json() for name, latency in timed.items()}
