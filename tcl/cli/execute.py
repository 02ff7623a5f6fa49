"""Where a job runs: as a Prefect flow when a Prefect API answers, in this process otherwise."""

import importlib
import json
import os
import urllib.request
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from tcl.console import note
from tcl.ports import free_port
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
    """Run a flow with the Prefect API at an address, or with one of its own that ends with this process."""
    from flows.environment import prepare
    from flows.server import running_server

    prepare(settings, address)
    with nullcontext(address) if address else running_server(settings, free_port()) as api:
        prepare(settings, api)
        return getattr(importlib.import_module(f"flows.{name}"), name)(arguments, settings)


def api_address(settings: Settings) -> str | None:
    """The Prefect API that is set, or else the one for which `tcl serve` runs in this project."""
    address = settings.prefect.api_url or os.environ.get("PREFECT_API_URL")
    if address:
        return address
    try:
        served = json.loads(settings.served_api.read_text(encoding="utf-8"))
        os.kill(served["pid"], 0)
        return str(served["address"])
    except (OSError, ValueError, KeyError, TypeError):  # none, one that was killed, or no such file
        return None


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
