"""`tcl serve`: run the flows as a service."""

import contextlib
import os

import click

from tcl.cli.command import Report, command
from tcl.cli.execute import answers
from tcl.errors import WorkFailed
from tcl.settings import load_settings


@command("serve")
@click.option("--port", type=int, help="Loopback port of the Prefect server; setting serve.port.")
def entry(port: int | None) -> Report:
    """Serve the flows: new records of a device are learnt as they come, and runs can be started in Prefect.

    Uses the Prefect API that is set (PREFECT_API_URL), or starts a server on the loopback interface. Ctrl-C stops.
    """
    from flows.serve import serve

    settings = load_settings(overrides={"serve.port": port})
    address = settings.prefect.api_url or os.environ.get("PREFECT_API_URL")
    if address and not answers(address):
        raise WorkFailed(
            f"the Prefect API {address} does not answer; start it, or unset PREFECT_API_URL and prefect.api_url, and"
            " `tcl serve` starts one"
        )
    with contextlib.suppress(KeyboardInterrupt):
        serve(settings, address)
    return Report({"stopped": True}, ["stopped"])
