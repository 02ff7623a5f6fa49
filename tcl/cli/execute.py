"""Where a job runs: as a Prefect flow when a Prefect API answers, in this process otherwise."""

import importlib
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
    address = settings.prefect.api_url or os.environ.get("PREFECT_API_URL")
    if address and _answers(address):
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


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address.rstrip('/')}/health", timeout=_TIMEOUT_SECONDS) as response:
            return response.status == 200
    except (OSError, ValueError):
        return False
