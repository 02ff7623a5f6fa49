"""What a person sees while work goes on: notes and progress, always on standard error.

Standard output belongs to results, so that `--json` prints one JSON object and nothing else.
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@cache
def stderr() -> "Console":
    """Return the console on standard error; made at first use."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def note(message: str) -> None:
    """Print one line on standard error, as it is."""
    stderr().print(message, markup=False, soft_wrap=True)


@contextlib.contextmanager
def progress(what: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Show a bar for the block when standard error is a terminal, and one line at its end in any case.

    Parameters
    ----------
    what
        What is done, e.g. "measuring".
    total
        Steps in all; None when unknown.

    Yields
    ------
    Callable
        ``advance(steps=1, detail="")``: so many steps are done; `detail` stands behind the bar.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
    )
    with Progress(*columns, console=stderr()) as bars:
        task = bars.add_task(what, total=total, detail="")

        def advance(steps: int = 1, detail: str = "") -> None:
            bars.update(task, advance=steps, detail=detail)

        yield advance
