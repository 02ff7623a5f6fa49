"""`tcl run`: run or benchmark a package."""

from pathlib import Path

import click

from tcl.cli.command import Report, command
from tcl.errors import BadInput


@command("run")
@click.argument("package", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--input", "feed", type=click.Path(path_type=Path), help="Inputs as .npz; default: random ones."
)
@click.option("--output", "result", type=click.Path(path_type=Path), help="Write the outputs as .npz.")
@click.option("--benchmark", is_flag=True, help="Time the package, and onnxruntime beside it.")
def entry(package: Path, feed: Path | None, result: Path | None, benchmark: bool) -> Report:
    """Run the package in DIR once, or time it."""
    from tcl.jobs.run import benchmark_package, run_package

    if not benchmark:
        done = run_package(package, feed, result)
        lines = [
            f"{output['name']}: {output['dtype']} {'x'.join(map(str, output['shape'])) or 'scalar'}"
            for output in done["outputs"]
        ]
        return Report(done, lines + ([f"written to {result}"] if result else []))
    if feed or result:
        raise BadInput("--benchmark takes random inputs and keeps no outputs; leave out --input and --output")
    report = benchmark_package(package)
    return Report(report.to_json(), [report.note], [report.table()])
