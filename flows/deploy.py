"""Where deployments run: as processes of this host alone, or on all hosts that serve a work pool.

Nothing but the names of flows and their parameters goes through Prefect: the code is what is installed on a host,
data comes through DVC and cost models through MLflow.
"""

import asyncio
import contextlib
import logging
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists
from prefect.runner import Runner
from prefect.workers.process import ProcessWorker

from tcl.settings import Settings

_POLL_SECONDS = 2.0


@dataclass(frozen=True)
class Deployed:
    """Deployments that Prefect knows.

    Attributes
    ----------
    ids
        By name.
    work
        Takes their runs, as processes on this host, until interrupted.
    """

    ids: dict[str, UUID]
    work: Callable[[], None]


def host_queue(settings: Settings) -> str | None:
    """Name of this host's own queue in the work pool; None without a pool.

    What concerns the project folder of one host, such as the packages in it, waits there and not for any host.
    """
    return _host(settings) if settings.serve.work_pool else None


def deploy(deployments: Sequence[RunnerDeployment], settings: Settings) -> Deployed:
    """Make deployments known to Prefect, in the work pool where one is set; the same again changes nothing.

    Parameters
    ----------
    deployments
        What to deploy; each must have an entry point that names a module, since hosts keep their files in places
        of their own.
    """
    if settings.serve.work_pool is None:
        return _on_this_host(deployments)
    return _in_pool(deployments, settings, settings.serve.work_pool)


def _on_this_host(deployments: Sequence[RunnerDeployment]) -> Deployed:
    runner = Runner(name="tcl", query_seconds=_POLL_SECONDS, prefetch_seconds=_POLL_SECONDS, limit=None)
    # It notes each look at a run that waits.
    logging.getLogger("prefect.runner.state_proposer").setLevel(logging.WARNING)
    ids: dict[str, Any] = {item.name: runner.add_deployment(item) for item in deployments}
    return Deployed(ids, lambda: asyncio.run(runner.start()))


def _in_pool(deployments: Sequence[RunnerDeployment], settings: Settings, pool: str) -> Deployed:
    with (
        get_client(sync_client=True) as client,
        contextlib.suppress(ObjectAlreadyExists),  # another host was faster
    ):
        client.create_work_pool(WorkPoolCreate(name=pool, type=ProcessWorker.type))
    ids: dict[str, Any] = {item.name: item.apply(work_pool_name=pool) for item in deployments}
    own = [ids[item.name] for item in deployments if item.work_queue_name]
    return Deployed(ids, partial(_work_in_pool, settings, pool, own))


def _work_in_pool(settings: Settings, pool: str, own: Sequence[UUID]) -> None:
    """Take runs that any host may do and those of this host alone; nobody else would take these later."""
    host = _host(settings)
    queues = ["default", host]
    worker = ProcessWorker(work_pool_name=pool, name=host, work_queues=queues, limit=settings.serve.runs)
    with get_client(sync_client=True) as client:
        for deployment in own:
            client.resume_deployment(deployment)
        try:
            asyncio.run(worker.start())
        finally:
            with contextlib.suppress(Exception):  # where the API is gone, nothing is scheduled either
                for deployment in own:
                    client.pause_deployment(deployment)


def _host(settings: Settings) -> str:
    """This host and project folder, in characters that Prefect allows in names."""
    return re.sub(r"[^\w.-]", "-", f"{socket.gethostname()}-{settings.root.name}")
