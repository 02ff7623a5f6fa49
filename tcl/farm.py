"""Other machines' processors: where candidates are built and features are made, besides this host."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextvars import ContextVar
from typing import TypeVar

R = TypeVar("R")


class Farm:
    """A number of processes, on any hosts, where the same version of this package is installed.

    Parameters
    ----------
    executor
        Runs module-level functions there.
    slots
        How many of them at a time.
    """

    def __init__(self, executor: Executor, slots: int) -> None:
        self.executor = executor
        self.slots = slots


_farm: ContextVar[Farm | None] = ContextVar("farm", default=None)


@contextlib.contextmanager
def farmed_out(farm: Farm | None) -> Iterator[None]:
    """Within the block, let `farm` do what can be done elsewhere; None leaves it to this host."""
    token = _farm.set(farm)
    try:
        yield
    finally:
        _farm.reset(token)


def current_farm() -> Farm | None:
    """Return the farm of the block that this is called in."""
    return _farm.get()


def spread(function: Callable[..., R], *arguments: Iterable[object]) -> Iterator[R]:
    """Like `map`, on the farm where there is one; the results come in the order of the arguments."""
    farm = current_farm()
    return map(function, *arguments) if farm is None else farm.executor.map(function, *arguments)
