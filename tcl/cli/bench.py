"""`tcl bench`: benchmarks, and the networks they use."""

from pathlib import Path

import click

from tcl.cli.command import Group, Report, command
from tcl.cli.options import Number, WholeNumber


@click.group(cls=Group)
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


@command("learn", kept="the finished cells are kept; the same command again goes on from there")
@click.argument("studies", metavar="[STUDY]...", nargs=-1)
@click.option(
    "--logs", type=click.Path(path_type=Path), help="Folder of public Ansor logs, a folder for each device."
)
@click.option("--minutes", type=Number(0), help="Begin nothing more of a study after so many minutes.")
def learn(studies: tuple[str, ...], logs: Path | None, minutes: float | None) -> Report:
    """Compare samplers, networks and transfer on held-out workloads, by the studies of params.yaml.

    Without a STUDY, all whose data is there. Writes docs/results/learn.md.
    """
    from tcl.bench.learn import bench_learn
    from tcl.bench.learn_report import markdown
    from tcl.settings import load_settings

    results = bench_learn(load_settings(), studies, logs, minutes)
    return Report(results, markdown(results).splitlines())


@command("tune", kept="the finished cells are kept; the same command again goes on from there")
@click.argument("studies", metavar="[STUDY]...", nargs=-1)
@click.option(
    "--minutes",
    type=Number(0),
    help="Begin no search of a study after so many minutes; 0 only times packages and writes the results.",
)
def tune(studies: tuple[str, ...], minutes: float | None) -> Report:
    """Tune networks with TCL and with MetaSchedule's own cost models, by the studies of params.yaml.

    The device is this machine, which needs measurements of other programs. Without a STUDY, all.
    Writes docs/results/tune/DEVICE/report.md.
    """
    from tcl.bench.tune import bench_tune
    from tcl.bench.tune_report import markdown
    from tcl.settings import load_settings

    results = bench_tune(load_settings(), studies, minutes)
    return Report(results, markdown(results).splitlines())


@command("capacity", kept="the finished sizes are kept; the same command again goes on from there")
@click.option(
    "--records",
    "sizes",
    type=WholeNumber(1),
    multiple=True,
    help="A number of records; may be repeated, the smallest first. Default: 10^4, 10^5 and 10^6.",
)
@click.option("--devices", type=WholeNumber(1), default=200, help="Devices in the registry; default 200.")
def capacity(sizes: tuple[int, ...], devices: int) -> Report:
    """Measure time, memory and bytes with copies of the project's records, and with many devices."""
    from tcl.bench.capacity import SIZES, bench_capacity, lines
    from tcl.settings import load_settings

    results = bench_capacity(load_settings(), sizes or SIZES, devices)
    return Report(results, lines(results))


@command("import")
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--copies", type=WholeNumber(1), default=4, help="Import so many times as much, too; default 4."
)
def import_(logs: tuple[Path, ...], copies: int) -> Report:
    """Measure time and memory of importing LOGS of other tools."""
    from tcl.bench.importing import bench_import, lines
    from tcl.settings import load_settings

    results = bench_import(load_settings(), logs, copies)
    return Report(results, lines(results))


entry.add_command(capacity)
entry.add_command(export)
entry.add_command(import_)
entry.add_command(learn)
entry.add_command(tune)
