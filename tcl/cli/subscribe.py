"""`tcl subscribe`: ONNX models that are compiled again whenever their device gets a new champion."""

from dataclasses import asdict
from pathlib import Path

import click

from tcl.cli.command import Group, Report, command
from tcl.cli.options import device_option, model_argument, shapes_option, trials_option
from tcl.settings import load_settings


class _AddByDefault(Group):
    """A group that subscribes the model when no command is named, and lists when there is no model either."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not set(args) - {"--json"}:
            args = ["list", *args]
        elif args[0] not in self.commands and args[0] not in context.help_option_names:
            args = ["add", *args]
        return super().parse_args(context, args)


@click.group(cls=_AddByDefault)
def entry() -> None:
    """Compile models again at each promotion: tcl subscribe MODEL.onnx --device NAME."""


@command("add")
@model_argument
@device_option
@shapes_option
@trials_option
@click.option("-o", "--output", metavar="DIR", help="Folder of the package; default: packages/DEVICE/MODEL.")
def add(model: str, device: str, shapes: tuple[str, ...], trials: int | None, output: str | None) -> Report:
    """Subscribe an ONNX MODEL to a device's champions; `tcl promotions` makes its packages."""
    from tcl.jobs.subscriptions import subscribe

    added = subscribe(load_settings(), model, device, output, shapes, trials)
    return Report(
        {"subscription": asdict(added)},
        [f"{added.model} follows the champions of {added.device}; its package goes to {added.output}"],
    )


@command("list")
def show_all() -> Report:
    """Show the subscribed models."""
    from tcl.jobs.subscriptions import subscriptions, table

    found = subscriptions(load_settings())
    return Report(
        {"subscriptions": [asdict(item) for item in found]},
        [] if found else ["no model is subscribed; tcl subscribe MODEL.onnx --device NAME subscribes one"],
        [table(found)] if found else [],
    )


@command("remove")
@model_argument
@device_option
def remove(model: str, device: str) -> Report:
    """End a subscription; the package stays."""
    from tcl.jobs.subscriptions import unsubscribe

    removed = unsubscribe(load_settings(), Path(model), device)
    return Report({"subscription": asdict(removed)}, [f"{removed.model} no longer follows {removed.device}"])


entry.add_command(add)
entry.add_command(show_all)
entry.add_command(remove)
