"""`tcl import`: tuning logs of other tools become measure records."""

from dataclasses import asdict
from pathlib import Path

import click

from tcl.cli.command import Report, command
from tcl.cli.execute import announce
from tcl.cli.options import device_option
from tcl.settings import load_settings


@command("import", kept="nothing was imported; give the same command again")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@device_option
@click.option("--format", "log_format", default="auto", show_default=True, help="ansor or metaschedule.")
@click.option("--tolerate", default=0.01, show_default=True, help="Largest share of broken lines.")
def entry(paths: tuple[Path, ...], device: str, log_format: str, tolerate: float) -> Report:
    """Import tuning logs (files or folders; plain, .gz, .xz or .zst) as records of a device.

    The same content again changes nothing.
    """
    from tcl.jobs.importing import import_records

    settings = load_settings()
    imported, version = import_records(paths, device, log_format, tolerate, settings)
    if version.changed:
        announce(device, settings)
    lines = [
        f"{imported.lines} lines of {imported.files} files: {imported.records} records, {imported.failures} failures,"
        f" {imported.broken} broken; {imported.new} are new, over {imported.workloads} workloads",
        *(f"broken: {line}" for line in imported.broken_lines),
        f"dataset version {version.hash}",
    ]
    return Report({"device": device, **asdict(imported), "version": asdict(version)}, lines)
