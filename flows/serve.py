"""`tcl serve`: deployments of the flows, and a runner that starts their runs as processes on this host."""

import os
from contextlib import nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

from flows.server import address_of, running_server
from tcl.console import note
from tcl.devices.store import DeviceStore
from tcl.files import atomic_json, locked
from tcl.settings import Settings

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment


def serve(settings: Settings, address: str | None) -> None:
    """Serve the flows until Ctrl-C or SIGTERM, and leave no process behind.

    Parameters
    ----------
    settings
        The project's settings; the flows read them anew, from the project folder.
    address
        The Prefect API to use; None: a server of the project's own.

    Raises
    ------
    BadInput
        When the port of the project's own server is taken.
    WorkFailed
        When that server does not start, or another process serves this project.
    """
    from flows.environment import prepare

    prepare(settings, address or address_of(settings.serve.port))
    os.environ["TCL_ROOT"] = str(settings.root)
    os.chdir(settings.root)  # what runs are given as paths is relative to the project
    with (
        locked(settings.state_dir / "serve.lock", 0, "`tcl serve` of this project"),
        nullcontext(address) if address else running_server(settings, settings.serve.port) as api,
    ):
        atomic_json(settings.served_api, {"address": api, "pid": os.getpid()})
        try:
            _run(settings)
        finally:
            settings.served_api.unlink(missing_ok=True)


def _run(settings: Settings) -> None:
    """Create limits and deployments, look at once for what came meanwhile, and start runs until interrupted."""
    from prefect.client.orchestration import get_client

    from flows import promotions
    from flows.deploy import deploy
    from flows.limits import KNOWLEDGE_BASE, device_limit, ensure_limits

    devices = [device.name for device in DeviceStore(settings.devices_dir).list()]
    ensure_limits([KNOWLEDGE_BASE, *map(device_limit, devices)])
    deployed = deploy(_deployments(settings), settings)
    with get_client(sync_client=True) as client:
        client.create_flow_run_from_deployment(deployed.ids["reconcile"], name="reconcile at the start")
    note(f"serving {', '.join(deployed.ids)}; Ctrl-C stops")
    with promotions.following(settings):
        deployed.work()


def _deployments(settings: Settings) -> "list[RunnerDeployment]":
    from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
    from prefect.deployments.runner import EntrypointType, RunnerDeployment

    from flows import promotions
    from flows.compile import compile
    from flows.events import on_new_records
    from flows.measure import measure
    from flows.reconcile import continual_distillation, reconcile

    # Runs that the schedule made while nobody served would come all at once: one is enough.
    one_is_enough = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)
    module = EntrypointType.MODULE_PATH  # a flow is found on every host, wherever its files are
    return [
        RunnerDeployment.from_flow(measure, measure.name, entrypoint_type=module),
        RunnerDeployment.from_flow(
            continual_distillation,
            continual_distillation.name,
            entrypoint_type=module,
            triggers=[on_new_records()],
            concurrency_limit=1,
        ),
        RunnerDeployment.from_flow(compile, compile.name, entrypoint_type=module),
        RunnerDeployment.from_flow(
            reconcile,
            reconcile.name,
            entrypoint_type=module,
            interval=timedelta(seconds=settings.serve.reconcile_seconds),
            concurrency_limit=one_is_enough,
        ),
        *promotions.deployments(settings),
    ]
