"""`tcl run`: run, benchmark or profile a package."""

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
@click.option("--profile", is_flag=True, help="Time each kernel of the package, beside the machine's peak.")
def entry(package: Path, feed: Path | None, result: Path | None, benchmark: bool, profile: bool) -> Report:
    """Run the package in DIR once, or time it, or its kernels."""
    if (benchmark or profile) and (feed or result):
        raise BadInput(
            "--benchmark and --profile take random inputs and keep no outputs; leave out --input and --output"
        )
    if benchmark and profile:
        raise BadInput("--benchmark and --profile would disturb each other; give one of them")
    if profile:
        return _profile(package)
    if benchmark:
        return _benchmark(package)
    from tcl.jobs.run import run_package

    done = run_package(package, feed, result)
    lines = [
        f"{output['name']}: {output['dtype']} {'x'.join(map(str, output['shape'])) or 'scalar'}"
        for output in done["outputs"]
    ]
    return Report(done, lines + ([f"written to {result}"] if result else []))


def _benchmark(package: Path) -> Report:
    from tcl.jobs.run import benchmark_package

    report = benchmark_package(package)
    return Report(report.to_json(), [report.note], [report.table()])


def _profile(package: Path) -> Report:
    from tcl.jobs.profile import profile_package

    report = profile_package(package)
    return Report(report.to_json(), report.lines(), [report.table()])
