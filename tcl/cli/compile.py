"""`tcl compile`: an ONNX model and a device in, a verified package out."""

import click

from tcl.cli.command import Report, command
from tcl.cli.execute import run_job
from tcl.cli.options import (
    WholeNumber,
    device_option,
    model_argument,
    package_option,
    shapes_option,
    trials_option,
)
from tcl.errors import BadInput
from tcl.jobs.compile import CompileArguments


@command("compile", kept="the trials made so far are kept; the same command again goes on from there")
@model_argument
@device_option
@shapes_option
@trials_option
@package_option
@click.option("--alias", type=click.Choice(["champion", "challenger"]), help="Cost model; default: champion.")
@click.option("--version", type=WholeNumber(1), help="Version of the cost model.")
@click.option("--force", is_flag=True, help="Use a champion that the gate refuses; the package records why.")
def entry(
    model: str,
    device: str,
    shapes: tuple[str, ...],
    trials: int | None,
    output: str,
    alias: str | None,
    version: int | None,
    force: bool,
) -> Report:
    """Compile an ONNX MODEL for a device: tune by the registered cost model, verify, write a package."""
    if alias and version:
        raise BadInput("give either --alias or --version, not both")
    arguments = CompileArguments(model, device, output, shapes, alias or "champion", version, force=force)
    result = run_job("compile", arguments, {"tuning.trials": trials})
    return Report(result.to_json(), result.lines(), result.tables())
