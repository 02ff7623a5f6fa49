"""The flow `distill`: a device's cost model from its versioned records, evaluated and registered."""

from prefect import flow

from flows.farm import farm
from flows.limits import KNOWLEDGE_BASE, only_one
from flows.tasks import show, show_link, show_text, step
from tcl.jobs import distill as job
from tcl.jobs.distill import DistillArguments, DistillReport
from tcl.settings import Settings, load_settings

prepare_data = step(job.prepare, retry=True)
find_learnt = step(job.find_learnt, retry=True)
learn = step(job.learn)
register = step(job.register, retry=True)


@flow(name="distill", flow_run_name="distill {arguments.device}")
def distill(arguments: DistillArguments, settings: Settings | None = None) -> DistillReport:
    """Learn a device's records, unless a model of exactly these records is registered."""
    settings = settings or load_settings()
    with only_one(KNOWLEDGE_BASE), job.one_at_a_time(settings):
        data = prepare_data(arguments, settings)
        known = None if arguments.again else find_learnt(data.device.name, data.data_hash, settings)
        if known is not None:
            return job.already_learnt(known)
        with farm(settings):
            result = learn(data, arguments, settings)
        report = register(data, result, settings)
    show(report.table(), f"distill-{arguments.device}")
    card, page = job.card(report, settings)
    show_text(card, f"model-card-{arguments.device}", "Model card")
    show_link(
        page,
        f"cost-model-{arguments.device}",
        f"{report.model.name} version {report.model.version} in MLflow",
    )
    return report
