"""The flow `compile`: an ONNX model and a device in, a verified package out."""

from contextlib import nullcontext

from prefect import flow

from flows.farm import farm
from flows.limits import device_limit, only_one
from flows.tasks import show, show_link, show_waiting, step
from tcl.devices.patience import told_to
from tcl.jobs import compile as job
from tcl.jobs.compile import CompileArguments, CompileReport
from tcl.settings import Settings, load_settings

read_model = step(job.read)
resolve_cost_model = step(job.resolve, retry=True)
tune = step(job.tune)
write_package = step(job.package)
record_run = step(job.record, retry=True)


@flow(name="compile", flow_run_name="compile {arguments.model} for {arguments.device}")
def compile(arguments: CompileArguments, settings: Settings | None = None) -> CompileReport:
    """Compile a model for a device with its registered cost model."""
    settings = settings or load_settings()
    device, network = read_model(arguments, settings)
    chosen = resolve_cost_model(arguments, settings)
    measuring = only_one(device_limit(device.name)) if settings.tuning.trials else nullcontext()
    with told_to(show_waiting):
        with measuring, farm(settings):
            tuned = tune(network, device, chosen, settings)
        report = write_package(network, device, chosen, tuned, arguments, settings)
    run_id = record_run(report, settings)
    what = f"{network.model.path.stem} for {device.name}"
    for table in report.tables():
        show(table, f"{table.title} {what}")
    show_link(job.page(run_id, settings), f"run {what}", f"the package of {what}, as MLflow keeps it")
    return report
