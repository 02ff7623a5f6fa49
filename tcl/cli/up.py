"""`tcl up`: the whole road on this host."""

from tcl.cli.command import Report, command
from tcl.cli.execute import run_job
from tcl.cli.options import model_argument, package_option, shapes_option, trials_option
from tcl.jobs.up import UpArguments


@command("up", kept="every finished step and measurement is kept; the same command again goes on from there")
@model_argument
@shapes_option
@trials_option
@package_option
def entry(model: str, shapes: tuple[str, ...], trials: int | None, output: str) -> Report:
    """Compile an ONNX MODEL on this host: detect, measure, distill and compile what is not done yet."""
    result = run_job("up", UpArguments(model, output, shapes), {"tuning.trials": trials})
    return Report(result.to_json(), result.lines(), [result.table()])
