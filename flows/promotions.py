"""The flow `promotions`: packages of subscribed models follow the champions.

`tcl serve` runs it on a schedule and, where MLflow's server tells of promotions, at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import EntrypointType, RunnerDeployment

from flows.compile import compile
from flows.deploy import host_queue
from flows.tasks import show, show_link
from tcl.jobs import promotions as job
from tcl.jobs.promotion_watch import told
from tcl.jobs.promotions import PromotionsArguments, PromotionsReport
from tcl.settings import Settings, load_settings

_AT_ONCE = "promotion"


@flow(name="promotions")
def promotions(
    arguments: PromotionsArguments | None = None, settings: Settings | None = None
) -> PromotionsReport:
    """Compile subscribed models again for devices whose champion changed."""
    arguments, settings = arguments or PromotionsArguments(), settings or load_settings()
    report = job.run(arguments, settings, compile)
    show(report.table(), f"promotions {arguments.device or ''}")
    for name, address in job.pages(report, settings).items():
        show_link(address, name, name)
    report.require()
    return report


def deployments(settings: Settings) -> list[RunnerDeployment]:
    """Return what to serve: the look on a schedule, and the one that a promotion asks for.

    In a work pool each host has its own: its subscriptions and packages lie in its project folder.
    """
    # A look that is due while the last one still compiles is left out; one that a promotion asks for waits its turn.
    left_out = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)
    module = EntrypointType.MODULE_PATH  # a flow is found on every host, wherever its files are
    interval = timedelta(seconds=settings.promotion.poll_seconds)
    return [
        RunnerDeployment.from_flow(
            promotions,
            _name(promotions.name, settings),
            interval=interval,
            concurrency_limit=left_out,
            entrypoint_type=module,
            work_queue_name=host_queue(settings),
        ),
        RunnerDeployment.from_flow(
            promotions,
            _name(_AT_ONCE, settings),
            concurrency_limit=1,
            entrypoint_type=module,
            work_queue_name=host_queue(settings),
        ),
    ]


def _name(deployment: str, settings: Settings) -> str:
    queue = host_queue(settings)
    return deployment if queue is None else f"{deployment}-{queue}"


@contextmanager
def following(settings: Settings) -> Iterator[None]:
    """Start a run of the served deployment for each promotion that MLflow's server tells of, during the block."""

    def start(device: str) -> None:
        with get_client(sync_client=True) as client:
            deployment = client.read_deployment_by_name(f"{promotions.name}/{_name(_AT_ONCE, settings)}")
            client.create_flow_run_from_deployment(
                deployment.id, parameters={"arguments": {"device": device}}, name=f"promotion {device}"
            )

    with told(settings, start):
        yield
