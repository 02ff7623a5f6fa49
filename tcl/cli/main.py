"""Entry point of the `tcl` command. It imports inside of its guard: an interruption may come that early."""

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        sys.exit(_run(words))
    except KeyboardInterrupt:  # before a command began, or after its end: commands say what they keep
        message = "interrupted"
        print(f"tcl: {message}", file=sys.stderr)
        if "--json" in words:
            import json

            print(json.dumps({"error": message, "exit_code": INTERRUPTED}))
        sys.exit(INTERRUPTED)


def _run(words: Sequence[str]) -> int | None:
    import click

    from tcl.cli.commands import cli

    try:
        return cli.main(words, prog_name="tcl", standalone_mode=False)
    except click.Abort as error:  # click's word for an interruption, and for a read beyond the end of a file
        raise error.__cause__ or KeyboardInterrupt from None
    except click.ClickException as error:
        error.show()
        return error.exit_code
