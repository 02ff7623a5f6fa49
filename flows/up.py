"""The flow `up`: from an ONNX file to a package on this host."""

from prefect import flow

from flows.compile import compile
from flows.distill import distill
from flows.measure import measure
from flows.tasks import show
from tcl.jobs import up as job
from tcl.jobs.up import UpArguments, UpReport
from tcl.settings import Settings, load_settings


@flow(name="up")
def up(arguments: UpArguments, settings: Settings | None = None) -> UpReport:
    """Detect this host, then measure, distill and compile what is not done yet."""
    report = job.run(arguments, settings or load_settings(), job.Steps(measure, distill, compile))
    show(report.table(), "up")
    return report
