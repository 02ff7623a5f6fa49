"""The job `compile`: an ONNX model and a device in, a verified package out.

Steps: read and lower the model → fetch the cost model → tune → build, verify and write the package → record the run.
"""

import statistics
import tempfile
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcl.console import note
from tcl.devices.device import Device
from tcl.devices.host import check_reachable, why_unreachable
from tcl.devices.store import DeviceStore
from tcl.errors import WorkFailed, WrongResults
from tcl.jobs.checks import time_on, verify_on
from tcl.jobs.compile_report import TUNED, UNTUNED, CompileReport
from tcl.jobs.dataset import alone_on, known_records
from tcl.jobs.fallback import replace_wrong
from tcl.jobs.programs import Network, read_network
from tcl.jobs.tuning import recall, search, settle, task_rows
from tcl.settings import Settings

if TYPE_CHECKING:
    from tcl.compiler.packaging.manifest import Manifest, TaskRow
    from tcl.compiler.programs.tasks import TuningTask
    from tcl.records.record import MeasureRecord
    from tcl.registry.versions import ModelVersion
    from tcl.search.task import Model
    from tcl.search.tuning import TaskOutcome

_KEPT_RECORDS = 8  # of each program go into the package
_ROUNDS = 3  # processes that time each contender


@dataclass(frozen=True)
class CompileArguments:
    """What `tcl compile` is asked to do.

    Attributes
    ----------
    model
        The ONNX file.
    device
        Name of a recorded device.
    output
        The package's folder.
    shapes
        Values of ``--shape``.
    alias, version
        Which cost model; `version` counts where both are given.
    compare_untuned
        Whether the untuned program is built and timed too.
    force
        Use a champion that the gate refuses; the package records why it was refused.
    """

    model: str
    device: str
    output: str
    shapes: tuple[str, ...] = ()
    alias: str = "champion"
    version: int | None = None
    compare_untuned: bool = False
    force: bool = False


@dataclass(frozen=True)
class Chosen:
    """The cost model of a compile.

    Attributes
    ----------
    version
        Its registered version.
    overruled
        Why the gate had refused it, where `force` went on.
    """

    version: "ModelVersion"
    overruled: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tuned:
    """Schedules of a network's programs.

    Attributes
    ----------
    traces
        By PrimFunc of the lowered module.
    rows
        The per-task table.
    runners_up
        The next best schedules, by workload key.
    """

    traces: dict[str, str]
    rows: "tuple[TaskRow, ...]"
    runners_up: dict[str, list[str]] = field(default_factory=dict)


def run(arguments: CompileArguments, settings: Settings) -> CompileReport:
    """Do all steps in this process."""
    device, network = read(arguments, settings)
    chosen = resolve(arguments, settings)
    tuned = tune(network, device, chosen, settings)
    report = package(network, device, chosen, tuned, arguments, settings)
    record(report, settings)
    return report


def read(arguments: CompileArguments, settings: Settings) -> tuple[Device, Network]:
    """Check what can be checked early, then read and lower the model."""
    from tcl.compiler.packaging.package import check_target
    from tcl.compiler.targets import check_compiler

    device = DeviceStore(settings.devices_dir).get(arguments.device)
    if settings.tuning.trials:
        check_reachable(device)
    check_compiler(device.target)
    check_target(Path(arguments.output))
    return device, read_network(arguments.model, arguments.shapes, device)


def resolve(arguments: CompileArguments, settings: Settings) -> Chosen:
    """Find the cost model and fetch its files; a champion has to pass the gate.

    A device that nothing was learnt for goes by the knowledge base, which knows devices by their descriptors.
    """
    from tcl.registry.gate import champion
    from tcl.registry.registry import Registry
    from tcl.registry.versions import CHAMPION, KNOWLEDGE_BASE

    registry = Registry(settings)
    is_default = arguments.version is None and arguments.alias == CHAMPION
    if is_default and not registry.versions(arguments.device) and registry.versions(KNOWLEDGE_BASE):
        note(f"{arguments.device} has no cost model of its own yet: going by the knowledge base")
        chosen = Chosen(registry.resolve(KNOWLEDGE_BASE))
    elif is_default:
        chosen = Chosen(*champion(registry, arguments.device, force=arguments.force))
    else:
        chosen = Chosen(registry.resolve(arguments.device, alias=arguments.alias, version=arguments.version))
    registry.fetch(chosen.version)
    return chosen


def tune(network: Network, device: Device, chosen: Chosen, settings: Settings) -> Tuned:
    """Search schedules for the network's programs with a registered cost model; see `tune_with`."""
    from tcl.costmodel.checkpoint import load_model
    from tcl.registry.registry import Registry

    model, _ = load_model(Registry(settings).fetch(chosen.version))
    return tune_with(model, network, device, settings)


def tune_with(model: "Model", network: Network, device: Device, settings: Settings) -> Tuned:
    """Search schedules for the network's programs with a cost model, measuring the settings' trials."""
    with alone_on(device.name, settings) if settings.tuning.trials else nullcontext():
        known = recall(network.tasks, device, settings)
        settled = settle(search(network.tasks, model, device, known, settings), known)
    traces: dict[str, str] = {}
    for index, task in enumerate(network.tasks):
        outcome, reason = settled[index]
        outcome = _applicable(task, outcome, device)
        settled[index] = outcome, reason
        if outcome.trace is not None:
            traces.update(dict.fromkeys(task.functions, outcome.trace))
    runners_up = {outcome.task.workload.key: outcome.ranking for outcome, _ in settled}
    return Tuned(traces, task_rows(network.tasks, settled), runners_up)


def package(
    network: Network,
    device: Device,
    chosen: Chosen,
    tuned: Tuned,
    arguments: CompileArguments,
    settings: Settings,
) -> CompileReport:
    """Build, verify against onnxruntime, time, and only then put the package in place.

    A schedule that makes the results wrong is replaced by the next best one.
    """
    try:
        return _package(network, device, chosen, tuned, arguments, settings)
    except WrongResults:
        note("the results are wrong: looking for the schedule at fault")
        found = replace_wrong(network.tasks, tuned.traces, tuned.rows, tuned.runners_up, device, settings)
        if found is None:
            raise
        return _package(network, device, chosen, Tuned(*found), arguments, settings)


def _package(
    network: Network,
    device: Device,
    chosen: Chosen,
    tuned: Tuned,
    arguments: CompileArguments,
    settings: Settings,
) -> CompileReport:
    from tcl.compiler.packaging.manifest import Manifest
    from tcl.compiler.packaging.package import write_package
    from tcl.compiler.programs.build import apply_schedules, build_executable
    from tcl.compiler.targets import target_of

    target, model = target_of(device.target), network.model
    note("building")
    executable = build_executable(apply_schedules(network.mod, target, tuned.traces), target)
    manifest = Manifest(
        model=str(model.path.absolute()),
        onnx_sha256=model.sha256,
        device=device,
        inputs=model.inputs,
        outputs=model.outputs,
        values=model.values,
        tvm_version=installed_version("apache-tvm"),
        cost_model={"name": chosen.version.name, "version": chosen.version.version},
        forced=chosen.overruled,
        data_hash=chosen.version.tags.get("data_hash"),
        tasks=tuned.rows,
        trials=settings.tuning.trials,
    )

    def complete(folder: Path, written: "Manifest") -> "Manifest":
        if (reason := why_unreachable(device)) is not None:
            note(f"neither verifying nor timing: {device.name} is {reason}")
            return written
        written = replace(written, verification=verify_on(folder, model, device, settings))
        return replace(written, latency=_latencies(folder, network, device, written, arguments, settings))

    with tempfile.TemporaryDirectory(prefix="tcl-compile-") as scratch:
        records = _export_records(network, device, settings, Path(scratch))
        manifest = write_package(arguments.output, executable, manifest, records, complete)
    return CompileReport(arguments.output, manifest)


def record(report: CompileReport, settings: Settings) -> str:
    """Record the compile as an MLflow run; returns the run's id."""
    from tcl.registry.registry import Registry

    manifest = report.manifest
    latencies = {
        f"{name}_seconds": value["median_seconds"] for name, value in (manifest.latency or {}).items()
    }
    verification = manifest.verification or {}
    errors = {f"verification_{key}": verification[key] for key in ("max_abs", "max_rel") if verification}
    return Registry(settings).log_compile(
        manifest.device.name,
        Path(manifest.model).name,
        Path(report.package),
        params={**asdict(settings.tuning), "target": manifest.device.target},
        metrics={**latencies, **errors},
        tasks=[asdict(row) for row in manifest.tasks],
        tags={
            "cost_model": "{name} version {version}".format_map(manifest.cost_model or {}),
            "forced": "; ".join(manifest.forced),
            "data_hash": manifest.data_hash or "",
            "onnx_sha256": manifest.onnx_sha256,
        },
    )


def page(run_id: str, settings: Settings) -> str:
    """Address of a compile's run in MLflow, which keeps the package."""
    from tcl.registry.pages import run_page

    return run_page(settings, run_id)


def _applicable(task: "TuningTask", outcome: "TaskOutcome", device: Device) -> "TaskOutcome":
    """Take the next best schedule where the best does not apply, as a predicted one may not."""
    from tcl.compiler.programs.build import schedule_program
    from tcl.compiler.targets import target_of

    if outcome.status not in ("predicted", "default") or outcome.trace is None:
        return outcome
    for trace in (outcome.trace, *outcome.ranking):
        try:
            schedule_program(task.mod, target_of(device.target), trace)
        except WorkFailed:
            continue
        return replace(outcome, trace=trace)
    return replace(outcome, status="default", trace=None)


def _latencies(
    folder: Path,
    network: Network,
    device: Device,
    manifest: "Manifest",
    arguments: CompileArguments,
    settings: Settings,
) -> dict[str, dict[str, Any]]:
    """Time the package, onnxruntime and, where asked, the program without any tuning."""
    from tcl.compiler.packaging.package import write_package
    from tcl.compiler.programs.build import build_executable
    from tcl.compiler.targets import target_of

    packages = {TUNED: folder}
    with tempfile.TemporaryDirectory(prefix="tcl-untuned-") as scratch:
        if arguments.compare_untuned:
            packages[UNTUNED] = Path(scratch) / "package"
            executable = build_executable(network.mod, target_of(manifest.device.target))
            write_package(packages[UNTUNED], executable, replace(manifest, tasks=()))
        rounds = _ROUNDS if manifest.trials else 1  # who wants no trials wants it soon
        return time_on(packages, network.model, device, rounds, settings)


def _export_records(network: Network, device: Device, settings: Settings, folder: Path) -> Path | None:
    """The fastest records of each program as a MetaSchedule database; None when nothing was measured."""
    from tcl.records.metaschedule import export_database
    from tcl.records.store import RecordStore

    workloads = {task.workload.key: task.workload for task in network.tasks}
    fastest: dict[str, list[MeasureRecord]] = {}
    for found in known_records(settings, device.name, set(workloads)):
        if found.error is None and found.run_seconds:
            fastest.setdefault(found.workload, []).append(found)
    records = [kept for found in fastest.values() for kept in sorted(found, key=_median)[:_KEPT_RECORDS]]
    if not records:
        return None
    store = RecordStore(folder / "store")
    store.append([workloads[key] for key in fastest], records)
    export_database(store, device, folder / "records")
    return folder / "records"


def _median(found: "MeasureRecord") -> float:
    return statistics.median(found.run_seconds)
