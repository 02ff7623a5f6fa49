"""`tcl bench`: benchmarks, and the networks they use."""

from pathlib import Path

import click

from tcl.cli.command import Report, command


@click.group()
def entry() -> None:
    """Benchmarks of learning and tuning, and the networks that they use."""


@command("export")
@click.argument("names", metavar="NETWORK...", nargs=-1, required=True)
@click.option(
    "-o", "--output", default=".", type=click.Path(path_type=Path), help="Folder for the ONNX files."
)
def export(names: tuple[str, ...], output: Path) -> Report:
    """Write benchmark networks with seeded random weights as ONNX files."""
    from tcl.bench.networks import export as write

    files = [str(write(name, output)) for name in names]
    return Report({"files": files}, files)


entry.add_command(export)
