"""`tcl reconcile`: learn the records that no cost model has learnt yet."""

import click

from tcl.cli.command import Report, command
from tcl.cli.execute import run_job
from tcl.jobs.reconcile import ReconcileArguments


@command("reconcile", kept="what was learnt is registered; the same command again goes on from there")
@click.option("--device", help="Look at this device only.")
def entry(device: str | None) -> Report:
    """Compare each device's records with the registered cost models, and distill those that are not learnt.

    Records that came by git are fetched first.
    """
    result = run_job("reconcile", ReconcileArguments(device), {})
    return Report(result.to_json(), result.lines(), [result.table()])
