"""The job `measure`: tensor programs of ONNX models measured on a device and versioned.

Steps: extract the programs → choose candidates → build and run them → version the dataset.
"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

from tcl.console import note, progress
from tcl.devices.device import Device
from tcl.devices.host import check_reachable
from tcl.devices.store import DeviceStore
from tcl.errors import WorkFailed
from tcl.jobs.dataset import FEWEST_PROGRAMS, alone_on, dataset, open_journal, take_over_tuning, to_record
from tcl.jobs.tables import Table, duration
from tcl.settings import Settings

if TYPE_CHECKING:
    from tcl.compiler.programs.tasks import TuningTask
    from tcl.jobs.sampler import Sampler
    from tcl.measuring.types import MeasureOptions, MeasureRequest, MeasureResult
    from tcl.versioning.versions import DataVersion

SAMPLERS = ("rdu", "random")


@dataclass(frozen=True)
class MeasureArguments:
    """What `tcl measure` is asked to do.

    Attributes
    ----------
    models
        ONNX files.
    device
        Name of a recorded device.
    shapes
        Values of ``--shape``.
    budget
        Measurements in all, those that the dataset holds already included; None: the settings' fraction of each pool.
    budget_seconds
        Time after which measuring stops; None: no limit.
    sampler
        One of `SAMPLERS`.
    """

    models: tuple[str, ...]
    device: str
    shapes: tuple[str, ...] = ()
    budget: int | None = None
    budget_seconds: float | None = None
    sampler: str = "rdu"


@dataclass
class ProgramReport:
    """What was measured of one program."""

    name: str
    workload: str
    pool: int
    known: int
    measured: int = 0
    failed: int = 0
    best_seconds: float | None = None


@dataclass
class Plan:
    """The candidates to measure, interleaved over the programs so that any cut leaves all of them covered."""

    programs: dict[str, ProgramReport]
    requests: "list[MeasureRequest]" = field(default_factory=list)


@dataclass(frozen=True)
class MeasureReport:
    """The result of the job.

    Attributes
    ----------
    device
        Name of the device.
    programs
        One entry for each tensor program.
    seconds
        Wall-clock time of measuring; zero when nothing was left to measure.
    version
        The dataset's version; None when nothing changed.
    """

    device: str
    programs: list[ProgramReport]
    seconds: float
    version: "DataVersion | None"

    @property
    def measured(self) -> int:
        """Measurements made, failures included."""
        return sum(program.measured for program in self.programs)

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {
            "device": self.device,
            "measured": self.measured,
            "failed": sum(program.failed for program in self.programs),
            "seconds": self.seconds,
            "programs": [asdict(program) for program in self.programs],
            "version": asdict(self.version) if self.version else None,
        }

    def table(self) -> Table:
        """One row for each program."""
        rows = [
            (p.name, p.pool, p.known, p.measured, p.failed, duration(p.best_seconds)) for p in self.programs
        ]
        columns = ("program", "pool", "known before", "measured", "failed", "best")
        return Table(f"Measured on {self.device}", columns, rows)

    def lines(self) -> list[str]:
        """What a person should know besides the table."""
        lines = [f"{self.measured} candidates measured in {self.seconds:.0f} s"]
        barren = [p.name for p in self.programs if p.measured and p.failed == p.measured and not p.known]
        if barren:
            lines.append(f"no candidate succeeded for {', '.join(barren)}")
        if self.version:
            lines.append(f"dataset version {self.version.hash}")
            if self.version.to_commit:
                lines.append(f"to share it: git add {' '.join(self.version.to_commit)} && git commit")
        return lines


def run(arguments: MeasureArguments, settings: Settings) -> MeasureReport:
    """Do all steps in this process."""
    device = open_device(arguments, settings)
    tasks = extract(arguments, device)
    with alone_on(device.name, settings):
        plan = choose(tasks, device, arguments, settings)
        seconds = measure(plan, tasks, device, arguments, settings)
    return MeasureReport(device.name, list(plan.programs.values()), seconds, version(arguments, settings))


def open_device(arguments: MeasureArguments, settings: Settings) -> Device:
    """Look up the device, and bring the dataset to the version that belongs to this checkout."""
    from tcl.compiler.targets import check_compiler
    from tcl.versioning.dataset import DatasetVersions

    device = DeviceStore(settings.devices_dir).get(arguments.device)
    check_reachable(device)
    if device.rpc is None:  # a board links for itself
        check_compiler(device.target)  # or its lack would be recorded as every candidate's failure
    DatasetVersions(settings).pull()
    open_journal(settings, "measure", device.name, dataset(settings))
    take_over_tuning(settings, device.name)
    return device


def extract(arguments: MeasureArguments, device: Device) -> "list[TuningTask]":
    """Take the models apart into the programs worth tuning."""
    from tcl.jobs.programs import extract_programs

    return extract_programs(arguments.models, arguments.shapes, device)


def choose(
    tasks: "Sequence[TuningTask]", device: Device, arguments: MeasureArguments, settings: Settings
) -> Plan:
    """Fill each program's pool and choose from it what the dataset lacks."""
    from tcl.jobs.pool import draw_pool
    from tcl.jobs.sampler import Wish, open_sampler
    from tcl.measuring.types import MeasureRequest

    traces = _known_traces(tasks, device, settings)
    sampler: Sampler = open_sampler(arguments.sampler, device, settings)
    plan, queues, wishes, pools = Plan({}), [], [], []
    with progress("drawing candidates", len(tasks)) as advance:
        for index, task in enumerate(tasks):
            pool = draw_pool(task, device, settings.measure.pool_size, settings.measure.seed)
            wanted = _quota(arguments.budget, index, len(tasks), len(pool), settings.measure.fraction)
            pools.append(pool)
            wishes.append(Wish(pool, wanted, traces.get(task.workload.key, [])))
            advance(detail=task.workload.name)
    for task, pool, wish, chosen in zip(tasks, pools, wishes, sampler.choose(wishes), strict=True):
        workload = task.workload
        plan.programs[workload.key] = ProgramReport(workload.name, workload.key, len(pool), len(wish.known))
        queues.append(
            [
                MeasureRequest(
                    workload.key, workload.program, device.target, pool.trace(number), sampler.origin
                )
                for number in chosen
            ]
        )
    plan.requests = [request for request in chain(*zip_longest(*queues)) if request is not None]
    return plan


def measure(
    plan: Plan,
    tasks: "Sequence[TuningTask]",
    device: Device,
    arguments: MeasureArguments,
    settings: Settings,
) -> float:
    """Build and run the chosen candidates, keeping every result at once; returns the seconds it took.

    Raises
    ------
    WorkFailed
        When candidates were measured and not one succeeded.
    """
    from tcl.measuring.engine import MeasuringEngine

    if not plan.requests:
        note("the dataset holds all of this already; nothing to measure")
        return 0.0
    start = time.monotonic()
    store = dataset(settings)
    journal = open_journal(settings, "measure", device.name, store)
    workloads = {task.workload.key: task.workload for task in tasks}
    results: list[MeasureResult] = []
    try:
        with (
            MeasuringEngine(device, measure_options(settings)) as engine,
            progress(f"measuring on {device.name}", len(plan.requests)) as advance,
        ):
            for result in engine.measure(plan.requests):
                journal.append([workloads[result.request.workload]], [to_record(device.name, result)])
                results.append(result)
                _count(plan.programs[result.request.workload], result)
                advance(detail=result.error or "")
                if arguments.budget_seconds and time.monotonic() - start > arguments.budget_seconds:
                    note(f"stopped after {arguments.budget_seconds:g} s, as asked")
                    break
    finally:
        journal.fold(store)
    _refuse_total_failure(results, device.name)
    return time.monotonic() - start


def version(arguments: MeasureArguments, settings: Settings) -> "DataVersion":
    """Make the dataset a version; say when it is too small to learn from."""
    from tcl.versioning.dataset import DatasetVersions

    made = DatasetVersions(settings).version(f"Measure {arguments.device}")
    programs = len(dataset(settings).workloads(arguments.device))
    if programs < FEWEST_PROGRAMS:
        note(
            f"{arguments.device} has measurements of {programs} tensor program{'s' if programs > 1 else ''}, training"
            f" a cost model of its own needs {FEWEST_PROGRAMS}: measure more models"
        )
    return made


def measure_options(settings: Settings) -> "MeasureOptions":
    """The engine's options from the settings."""
    from tcl.measuring.types import MeasureOptions

    chosen = settings.measure
    return MeasureOptions(
        builders=chosen.build_workers,
        repeats=chosen.repeats,
        budget_seconds=chosen.candidate_seconds,
        build_timeout=chosen.build_timeout,
        run_timeout=chosen.run_timeout,
        device_wait=chosen.device_wait,
    )


def _known_traces(tasks: "Sequence[TuningTask]", device: Device, settings: Settings) -> dict[str, list[str]]:
    keys = {task.workload.key for task in tasks}
    traces: dict[str, list[str]] = {}
    for record in dataset(settings).records(device.name, keys):
        traces.setdefault(record.workload, []).append(record.trace)
    return traces


def _quota(budget: int | None, index: int, programs: int, pool: int, fraction: float) -> int:
    """Measurements that a program should have in the end; the sampler may move some to another."""
    if budget is None:
        return math.ceil(fraction * pool)
    return budget // programs + (index < budget % programs)


def _count(program: ProgramReport, result: "MeasureResult") -> None:
    import statistics

    program.measured += 1
    if result.error is not None:
        program.failed += 1
        return
    seconds = statistics.median(result.run_seconds)
    if program.best_seconds is None or seconds < program.best_seconds:
        program.best_seconds = seconds


def _refuse_total_failure(results: "Iterable[MeasureResult]", device: str) -> None:
    from tcl.measuring.types import summarise_failures

    results = list(results)
    if results and all(result.error is not None for result in results):
        raise WorkFailed(f"nothing could be measured on {device}: {summarise_failures(results)}")
