"""What every command shares: `--json`, a clean standard output, errors as one sentence, interruption."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import click

from tcl.cli.main import INTERRUPTED
from tcl.cli.surroundings import sentence_of
from tcl.errors import TclError, WorkFailed
from tcl.jobs.tables import Table
from tcl.processes import sigterm_as_interrupt
from tcl.scratch import scratch_folder

_PIPE_WIDTH = 160


@dataclass(frozen=True)
class Report:
    """The result of a command.

    Attributes
    ----------
    data
        What ``--json`` prints.
    lines, tables
        What a person reads instead: the tables, then the lines.
    """

    data: dict[str, Any]
    lines: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


class Command(click.Command):
    """A command whose function returns a `Report`; it gets a ``--json`` flag.

    Parameters
    ----------
    kept
        What an interruption keeps and how to go on, for commands that work for long.
    """

    def __init__(self, *args: Any, kept: str = "nothing was changed", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kept = kept
        self.params.append(
            click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object instead.")
        )

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        with _usage_as_json(args):
            return super().parse_args(context, args)

    def invoke(self, context: click.Context) -> None:
        as_json = context.params.pop("as_json")
        try:
            with sigterm_as_interrupt(), _quiet_stdout(), scratch_folder():
                report = super().invoke(context)
        except KeyboardInterrupt:
            _fail(f"interrupted: {self.kept}", INTERRUPTED, as_json)
        except TclError as error:
            _fail(str(error), error.exit_code, as_json)
        except OSError as error:
            if (sentence := sentence_of(error)) is None:
                raise
            _fail(sentence, WorkFailed.exit_code, as_json)
        else:
            _print(report, as_json)


class Group(click.Group):
    """A group of commands that reports an unknown one as its commands report their usage errors."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        with _usage_as_json(args):
            return super().resolve_command(context, args)


@contextlib.contextmanager
def _usage_as_json(args: list[str]) -> Iterator[None]:
    """Print a usage error as JSON where that is asked for; click shows it with the usage and ends the process."""
    as_json = "--json" in args
    try:
        yield
    except click.UsageError as error:
        if as_json:
            _print_error(error.format_message(), error.exit_code)
        raise


def command(name: str, **attributes: Any) -> Callable[[Callable[..., Report]], click.Command]:
    """Make a function that returns a `Report` a command."""
    return click.command(name, cls=Command, **attributes)


def _fail(message: str, code: int, as_json: bool) -> None:
    click.echo(f"tcl: {message}", err=True)
    if as_json:
        _print_error(message, code)
    sys.exit(code)


def _print_error(message: str, code: int) -> None:
    click.echo(json.dumps({"error": message, "exit_code": code}))


def _print(report: Report, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.data, allow_nan=False))
        return
    if report.tables:
        from rich.console import Console

        console = Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
        for table in report.tables:
            console.print(table.title, markup=False)
            console.print(table.render())
    for line in report.lines:
        click.echo(line)


@contextlib.contextmanager
def _quiet_stdout() -> Iterator[None]:
    """Send what libraries and their child processes print on standard output to standard error."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
