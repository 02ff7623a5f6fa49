"""What the flows share: how a step becomes a task, and how results are shown in Prefect."""

import logging
import re
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from prefect import Task
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State, TaskRun
from prefect.runtime import flow_run
from prefect.states import Running

from tcl.console import note
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
    create_table_artifact(key=_key(name), table=table.to_dicts(), description=table.title)


def show_text(markdown: str, name: str, title: str) -> None:
    """Show a Markdown text in Prefect as the artifact `name`."""
    create_markdown_artifact(markdown, key=_key(name), description=title)


def show_link(address: str, name: str, text: str) -> None:
    """Show a link to a page in MLflow as the artifact `name`."""
    create_link_artifact(address, link_text=text, key=_key(name), description="Page in MLflow")


def _key(name: str) -> str:
    """An artifact's name as Prefect allows it."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def show_waiting(reason: str | None) -> None:
    """Show in Prefect that the flow run waits for a device, or that it goes on; see `tcl.devices.patience`."""
    state: State[Any] = Running() if reason is None else Running(name="Waiting for device", message=reason)
    note(reason or "the device is back")
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(UUID(flow_run.id), state, force=True)


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
