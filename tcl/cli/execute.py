"""Where a job runs: as a Prefect flow when a Prefect API answers, in this process otherwise."""

import importlib
import json
import os
import urllib.request
from collections.abc import Mapping
from typing import Any

from tcl.console import note
from tcl.errors import WorkFailed
from tcl.settings import Settings, load_settings

_TIMEOUT_SECONDS = 3.0


def run_job(name: str, arguments: Any, overrides: Mapping[str, Any]) -> Any:
    """Run `tcl.jobs.<name>.run`, or the flow of the same name with the same steps and result.

    Parameters
    ----------
    name
        measure, distill, compile or up; `up` is always a flow.
    arguments
        The job's arguments.
    overrides
        Settings given by flags, as `tcl.settings.load_settings` takes them.
    """
    settings = load_settings(overrides=overrides)
    address = api_address(settings)
    if address and answers(address):
        note(f"running as a Prefect flow at {address}")
        return _run_flow(name, arguments, settings, address)
    reason = f"the Prefect API {address} does not answer" if address else "no Prefect API is set"
    if name == "up":
        note(f"running as a Prefect flow with a temporary API ({reason})")
        return _run_flow(name, arguments, settings, None)
    note(f"running in this process ({reason})")
    return importlib.import_module(f"tcl.jobs.{name}").run(arguments, settings)


def _run_flow(name: str, arguments: Any, settings: Settings, address: str | None) -> Any:
    from flows.environment import prepare

    prepare(settings, address)
    flow = getattr(importlib.import_module(f"flows.{name}"), name)
    try:
        return flow(arguments, settings)
    except RuntimeError as error:
        if "ephemeral Prefect API" not in str(error):
            raise
        raise WorkFailed(
            "the temporary Prefect API did not start in time; try again when the machine is less busy, or start an API"
            " with `prefect server start` and set PREFECT_API_URL"
        ) from error


def api_address(settings: Settings) -> str | None:
    """The Prefect API that is set, or else the one for which `tcl serve` runs in this project."""
    address = settings.prefect.api_url or os.environ.get("PREFECT_API_URL")
    if address:
        return address
    try:
        served = json.loads(settings.served_api.read_text(encoding="utf-8"))
        os.kill(served["pid"], 0)
    except (OSError, ValueError):  # none, or one that was killed
        return None
    return served["address"]


def announce(device: str, settings: Settings) -> None:
    """Tell the Prefect API, if one answers, that a dataset version holds new records of a device."""
    address = api_address(settings)
    if not address or not answers(address):
        return
    from flows.environment import prepare

    prepare(settings, address)
    from flows.events import announce
    from tcl.versioning.dataset import DatasetVersions

    announce(device, DatasetVersions(settings).device_hash(device))


def answers(address: str) -> bool:
    """Tell whether a Prefect API answers there."""
    try:
        with urllib.request.urlopen(f"{address.rstrip('/')}/health", timeout=_TIMEOUT_SECONDS) as response:
            return response.status == 200
    except (OSError, ValueError):
        return False
