"""The flow `measure`: tensor programs measured on a device, as a new version of the dataset."""

from prefect import flow

from flows.events import announce
from flows.farm import farm
from flows.limits import device_limit, only_one
from flows.tasks import show, show_waiting, step
from tcl.devices.patience import told_to
from tcl.jobs import measure as job
from tcl.jobs.dataset import alone_on
from tcl.jobs.measure import MeasureArguments, MeasureReport
from tcl.settings import Settings, load_settings
from tcl.versioning.dataset import DatasetVersions

open_device = step(job.open_device, retry=True)
extract_programs = step(job.extract)
choose_candidates = step(job.choose)
measure_candidates = step(job.measure)
version_dataset = step(job.version, retry=True)


@flow(name="measure", flow_run_name="measure {arguments.device}")
def measure(arguments: MeasureArguments, settings: Settings | None = None) -> MeasureReport:
    """Measure what the dataset lacks of some models' programs on a device."""
    settings = settings or load_settings()
    device = open_device(arguments, settings)
    tasks = extract_programs(arguments, device)
    with (
        only_one(device_limit(device.name)),
        alone_on(device.name, settings),
        told_to(show_waiting),
        farm(settings),
    ):
        plan = choose_candidates(tasks, device, arguments, settings)
        seconds = measure_candidates(plan, tasks, device, arguments, settings)
    version = version_dataset(arguments, settings)
    if version.changed:
        announce(device.name, DatasetVersions(settings).device_hash(device.name))
    report = MeasureReport(device.name, list(plan.programs.values()), seconds, version)
    show(report.table(), f"measure-{device.name}")
    return report
