"""`tcl distill`: train a device's cost model and register it."""

import click

from tcl.cli.command import Report, command
from tcl.cli.execute import run_job
from tcl.cli.options import WholeNumber, device_option
from tcl.jobs.distill import DistillArguments


@command("distill", kept="the last finished epoch is kept; the same command again goes on from there")
@device_option
@click.option("--epochs", type=WholeNumber(1), help="Most epochs; setting learning.epochs.")
@click.option("--seed", type=int, help="Setting learning.seed.")
@click.option("--again", is_flag=True, help="Learn even when a model of the same records is registered.")
def entry(device: str, epochs: int | None, seed: int | None, again: bool) -> Report:
    """Train or distil a device's cost model from its versioned records and register a version."""
    overrides = {"learning.epochs": epochs, "learning.seed": seed}
    result = run_job("distill", DistillArguments(device, again=again), overrides)
    return Report(result.to_json(), result.lines(), [result.table()])
