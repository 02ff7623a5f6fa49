"""The flow `measure`: tensor programs measured on a device, as a new version of the dataset."""

from prefect import flow

from flows.tasks import show, step
from tcl.jobs import measure as job
from tcl.jobs.measure import MeasureArguments, MeasureReport
from tcl.settings import Settings, load_settings

open_device = step(job.open_device, retry=True)
extract_programs = step(job.extract)
choose_candidates = step(job.choose)
measure_candidates = step(job.measure)
version_dataset = step(job.version, retry=True)


@flow(name="measure")
def measure(arguments: MeasureArguments, settings: Settings | None = None) -> MeasureReport:
    """Measure what the dataset lacks of some models' programs on a device."""
    settings = settings or load_settings()
    device = open_device(arguments, settings)
    tasks = extract_programs(arguments, device)
    plan = choose_candidates(tasks, device, arguments, settings)
    seconds = measure_candidates(plan, tasks, device, arguments, settings)
    version = version_dataset(arguments, settings)
    report = MeasureReport(device.name, list(plan.programs.values()), seconds, version)
    show(report.table(), f"measure-{device.name}")
    return report
