"""The commands of `tcl`, loaded only when they are called for."""

import importlib

import click

from tcl import __version__
from tcl.cli.command import Group

# command -> (module, short help). The help stands here so that `tcl --help` imports none of the modules.
COMMANDS = {
    "up": ("tcl.cli.up", "Compile a model on this host: detect, measure, distill and compile, as needed."),
    "device": ("tcl.cli.device", "Detect, add and show the devices to compile for."),
    "measure": ("tcl.cli.measure", "Measure tensor programs of ONNX models on a device."),
    "import": ("tcl.cli.importing", "Import tuning logs of Ansor or MetaSchedule as measure records."),
    "data": ("tcl.cli.data", "Show and fetch the measure records and their versions."),
    "distill": ("tcl.cli.distill", "Train a device's cost model from its records and register it."),
    "models": ("tcl.cli.models", "Show the registered cost models; promote a version."),
    "compile": ("tcl.cli.compile", "Compile an ONNX model for a device into a verified package."),
    "serve": (
        "tcl.cli.serve",
        "Serve the flows: new records are learnt as they come, runs start in Prefect.",
    ),
    "reconcile": ("tcl.cli.reconcile", "Learn the records that no cost model has learnt yet."),
    "subscribe": ("tcl.cli.subscribe", "Choose the models that are compiled again at each promotion."),
    "promotions": ("tcl.cli.promotions", "Compile subscribed models for new champions."),
    "run": ("tcl.cli.run", "Run or benchmark a package."),
    "bench": ("tcl.cli.bench", "Benchmarks of learning and tuning."),
}


class LazyGroup(Group):
    """A group that imports a command's module when the command is called."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return importlib.import_module(COMMANDS[name][0]).entry

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Settings: tcl.toml in the project folder, environment variables TCL_*, then flags.",
)
@click.version_option(__version__, prog_name="tcl")
def cli() -> None:
    """Compile ONNX models fast for many devices with a learned cost model."""
