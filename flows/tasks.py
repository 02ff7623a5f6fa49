"""What the flows share: how a step becomes a task, and how results are shown in Prefect."""

import logging
import re
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import Task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

from tcl.errors import TclError, WorkFailed
from tcl.jobs.tables import Table

P = ParamSpec("P")
R = TypeVar("R")
_RETRIES = 2
_RETRY_SECONDS = 5.0


def step(function: Callable[P, R], *, retry: bool = False) -> Task[P, R]:
    """Make a job's step a Prefect task.

    Steps hand each other live objects and find out themselves what is done already, so nothing is cached.

    Parameters
    ----------
    function
        The step.
    retry
        Whether another attempt may help: for steps that talk to a remote store or a registry server.
    """
    return Task(
        function,
        cache_policy=NO_CACHE,
        retries=_RETRIES if retry else 0,
        retry_delay_seconds=_RETRY_SECONDS,
        retry_condition_fn=_failed_work if retry else None,
    )


def show(table: Table, name: str) -> None:
    """Show a table in Prefect as the artifact `name`."""
    key = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    create_table_artifact(key=key, table=table.to_dicts(), description=table.title)


def _failed_work(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Tell whether a step failed at its work; bad input stays bad."""
    try:
        state.result()
    except WorkFailed:
        return True
    except Exception:
        return False
    return False


class _OneLine(logging.Filter):
    """Leaves the traceback out where an error is meant for people."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(record.exc_info[1], TclError):
            record.exc_info = None
        return True


for _name in ("prefect.flow_runs", "prefect.task_runs"):
    logging.getLogger(_name).addFilter(_OneLine())
