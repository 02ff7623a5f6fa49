"""Flows on several hosts: deployments in a work pool, and this host's worker of it.

Nothing but the names of flows and their parameters goes through Prefect: the code is what is installed on a host,
data comes through DVC and cost models through MLflow.
"""

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from typing import cast
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists
from prefect.workers.process import ProcessWorker

from tcl.settings import Settings


def deploy(deployments: Sequence[RunnerDeployment], pool: str) -> dict[str, UUID]:
    """Put deployments into a work pool, making it when it is absent; the same again changes nothing.

    Parameters
    ----------
    deployments
        What to deploy; each must have an entry point that names a module, since hosts keep their files in places
        of their own.
    pool
        The work pool's name.

    Returns
    -------
    dict of str to UUID
        Ids by name.
    """
    with (
        get_client(sync_client=True) as client,
        contextlib.suppress(ObjectAlreadyExists),  # another host was faster
    ):
        client.create_work_pool(WorkPoolCreate(name=pool, type=ProcessWorker.type))
    return {item.name: cast(UUID, item.apply(work_pool_name=pool)) for item in deployments}


def work(settings: Settings, pool: str) -> None:
    """Take flow runs from the pool, as processes on this host, until interrupted."""
    name = f"{socket.gethostname()}-{settings.root.name}"
    worker = ProcessWorker(work_pool_name=pool, name=name, limit=settings.serve.runs)
    asyncio.run(worker.start())
