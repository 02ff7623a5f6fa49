"""`tcl models`: the registered cost models of all devices, and their promotion."""

from dataclasses import asdict

import click

from tcl.cli.command import Group, Report, command
from tcl.cli.options import WholeNumber
from tcl.devices.device import check_name
from tcl.jobs.tables import Table
from tcl.settings import load_settings


class _ListByDefault(Group):
    """A group that lists when no command is named, with the list's options."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in context.help_option_names):
            args = ["list", *args]
        return super().parse_args(context, args)


@click.group(cls=_ListByDefault)
def entry() -> None:
    """Show the registered cost models (without a command: list them); promote a version."""


@command("list")
def show_all() -> Report:
    """Show all versions of all devices: metrics, aliases, data hash, parent."""
    from tcl.registry.registry import Registry

    versions = Registry(load_settings()).list()
    rows = [
        (
            version.name,
            version.version,
            ", ".join(version.aliases),
            version.metrics.get("top_1"),
            version.metrics.get("top_5"),
            version.tags.get("data_hash", "")[:12],
            version.tags.get("parent_version"),
        )
        for version in versions
    ]
    columns = ("model", "version", "aliases", "top-1", "top-5", "data", "parent")
    return Report(
        {"models": [asdict(version) for version in versions]},
        tables=[Table("Cost models", columns, rows)] if rows else [],
        lines=[] if rows else ["no cost model is registered; tcl distill --device NAME makes one"],
    )


@command("promote")
@click.argument("name", metavar="NAME|DEVICE")
@click.argument("version", type=WholeNumber(1))
@click.option("--alias", default="champion", show_default=True, help="The alias to move.")
def promote(name: str, version: int, alias: str) -> Report:
    """Give a VERSION of a registered model the alias that `tcl compile` uses."""
    from tcl.registry.gate import examine
    from tcl.registry.registry import Registry
    from tcl.registry.versions import CHAMPION, KNOWLEDGE_BASE, model_owner

    owner = model_owner(name) or name
    if owner != KNOWLEDGE_BASE:
        check_name(owner)
    registry = Registry(load_settings())
    promoted = registry.promote(owner, version, alias)
    lines = [f"{promoted.name} version {promoted.version} is now {alias}"]
    refused: tuple[str, ...] = ()
    if alias == CHAMPION and promoted.owner != KNOWLEDGE_BASE:
        bound = registry.settings.promotion.metric_bound
        refused = examine(promoted, registry.versions(promoted.owner), bound).reasons
    if refused:
        lines.append(f"compiling will refuse it without --force: {'; '.join(refused)}")
    return Report({"model": asdict(promoted), "refused": list(refused)}, lines)


@command("ui")
@click.option("--port", type=WholeNumber(1, 65535), default=5000, show_default=True)
def ui(port: int) -> Report:
    """Serve MLflow's pages on this machine only, until Ctrl-C.

    With `mlflow.tracking_uri` set to the server's address, promotions in these pages are followed at once.
    """
    from tcl.registry.webhooks import serve_ui

    serve_ui(load_settings(), port)
    return Report({})  # the server has taken this process's place


entry.add_command(show_all)
entry.add_command(promote)
entry.add_command(ui)
