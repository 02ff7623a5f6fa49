"""`tcl measure`: measure tensor programs of ONNX models on a device."""

import click

from tcl.cli.command import Report, command
from tcl.cli.execute import run_job
from tcl.cli.options import Number, WholeNumber, device_option, models_argument, shapes_option
from tcl.jobs.measure import SAMPLERS, MeasureArguments


@command(
    "measure",
    kept="the measurements made so far are kept; the same command again goes on from there",
)
@models_argument
@device_option
@shapes_option
@click.option("--budget", type=WholeNumber(1), help="Measurements in all, shared by the tensor programs.")
@click.option("--fraction", type=float, help="Share of each candidate pool; setting measure.fraction.")
@click.option("--budget-seconds", type=Number(0, open_below=True), help="Stop after this time.")
@click.option("--sampler", type=click.Choice(SAMPLERS), default="rdu", show_default=True, help="Who chooses.")
def entry(
    models: tuple[str, ...],
    device: str,
    shapes: tuple[str, ...],
    budget: int | None,
    fraction: float | None,
    budget_seconds: float | None,
    sampler: str,
) -> Report:
    """Measure tensor programs of ONNX MODELS on a device and version the records.

    Records that the dataset holds already count, so that the same command again only does what is missing.
    """
    arguments = MeasureArguments(models, device, shapes, budget, budget_seconds, sampler)
    result = run_job("measure", arguments, {"measure.fraction": fraction})
    return Report(result.to_json(), result.lines(), [result.table()])
