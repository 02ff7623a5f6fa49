"""The flows `reconcile` and `continual-distillation`: one step, for all devices or for the one an event names."""

from prefect import flow

from flows.distill import distill
from flows.tasks import show
from tcl.jobs import reconcile as job
from tcl.jobs.reconcile import ReconcileArguments, ReconcileReport
from tcl.settings import Settings, load_settings


@flow(name="reconcile")
def reconcile(
    arguments: ReconcileArguments | None = None, settings: Settings | None = None
) -> ReconcileReport:
    """Learn the records of all devices that no registered cost model was made of."""
    report = job.run(arguments or ReconcileArguments(), settings or load_settings(), distill)
    show(report.table(), "reconcile")
    return report


@flow(name="continual-distillation", flow_run_name="continual-distillation {device}")
def continual_distillation(device: str, data_hash: str | None = None) -> ReconcileReport:
    """Learn a device's records, unless a registered cost model was made of them.

    `data_hash` says in Prefect which records the event told of; what is learnt is the newest, which may be more.
    """
    report = job.run(ReconcileArguments(device), load_settings(), distill)
    show(report.table(), f"continual-distillation-{device}")
    return report
