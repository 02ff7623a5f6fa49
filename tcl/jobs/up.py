"""The job `up`: from an ONNX file to a package on this host, doing only what is not done yet.

Steps: detect this host → measure → distill → compile. Each of the last three is skipped when its result exists.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from tcl.console import note
from tcl.devices.device import Device
from tcl.devices.store import DeviceStore
from tcl.errors import BadInput
from tcl.jobs import compile, distill, measure
from tcl.jobs.compile import CompileArguments, CompileReport
from tcl.jobs.dataset import FEWEST_PROGRAMS, dataset
from tcl.jobs.detect import detect_devices
from tcl.jobs.distill import DistillArguments
from tcl.jobs.measure import MeasureArguments
from tcl.jobs.tables import Table
from tcl.settings import Settings
from tcl.versioning.dataset import DatasetVersions


@dataclass(frozen=True)
class UpArguments:
    """What `tcl up` is asked to do.

    Attributes
    ----------
    model
        The ONNX file.
    output
        The package's folder.
    shapes
        Values of ``--shape``.
    """

    model: str
    output: str
    shapes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Steps:
    """How the three big steps are run: as jobs in this process, or as flows."""

    measure: Callable[[MeasureArguments, Settings], Any]
    distill: Callable[[DistillArguments, Settings], Any]
    compile: Callable[[CompileArguments, Settings], CompileReport]


@dataclass(frozen=True)
class UpReport:
    """The result of the job.

    Attributes
    ----------
    done
        Which steps were necessary.
    compiled
        The package.
    """

    done: tuple[str, ...]
    compiled: CompileReport

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {"done": list(self.done), **self.compiled.to_json()}

    def table(self) -> Table:
        """One line on the package."""
        return self.compiled.summary()

    def lines(self) -> list[str]:
        """What a person should know besides the table."""
        done = f"steps: {', '.join(self.done)}" if self.done else "everything was done already"
        return [done, *self.compiled.lines()]


def run(arguments: UpArguments, settings: Settings, steps: Steps | None = None) -> UpReport:
    """Do what is missing; without `steps` in this process."""
    from tcl.registry.registry import Registry

    steps = steps or Steps(measure.run, distill.run, compile.run)
    device = detect_devices(settings)[0]
    done = []
    current = current_package(arguments, device, settings)
    if current is None and (budget := lacking_measurements(arguments, device, settings)):
        limit = settings.up.measure_seconds
        steps.measure(
            MeasureArguments((arguments.model,), device.name, arguments.shapes, budget, limit), settings
        )
        done.append("measure")
    data_hash = DatasetVersions(settings).device_hash(device.name)
    if not distill.find_learnt(device.name, data_hash, settings):
        learners = [*teachers(device, settings), device.name]
        for name in learners:
            steps.distill(DistillArguments(name, settings.up.distill_seconds / len(learners)), settings)
        done.append("distill")
    champion = Registry(settings).resolve(device.name)
    wanted = {"name": champion.name, "version": champion.version}
    if current is None or current.manifest.cost_model != wanted:
        current = steps.compile(
            CompileArguments(
                arguments.model, device.name, arguments.output, arguments.shapes, compare_untuned=True
            ),
            settings,
        )
        done.append("compile")
    return UpReport(tuple(done), current)


def current_package(arguments: UpArguments, device: Device, settings: Settings) -> CompileReport | None:
    """The package in the output folder, if it is of this model, device and trials."""
    from tcl.compiler.frontend.model import read_onnx
    from tcl.compiler.frontend.shapes import parse_pins
    from tcl.compiler.packaging.manifest import MANIFEST, Manifest
    from tcl.compiler.packaging.package import check_target
    from tcl.compiler.running.loader import check_files

    folder = Path(arguments.output)
    check_target(folder)
    model = read_onnx(arguments.model, *parse_pins(arguments.shapes))
    if not (folder / MANIFEST).is_file():
        return None
    try:
        manifest = Manifest.read(folder)
        check_files(folder, manifest)
    except BadInput as error:
        note(f"{error}; it is compiled anew")
        return None
    same = (
        manifest.onnx_sha256 == model.sha256
        and manifest.inputs == model.inputs
        and manifest.values == model.values
        and manifest.device.target == device.target
        and manifest.tvm_version == installed_version("apache-tvm")
        and manifest.trials == settings.tuning.trials
    )
    return CompileReport(arguments.output, manifest) if same else None


def lacking_measurements(arguments: UpArguments, device: Device, settings: Settings) -> int:
    """The budget for measuring when the dataset lacks a program of the model; 0 when it knows them all."""
    from tcl.jobs.programs import read_network

    DatasetVersions(settings).pull()
    network = read_network(arguments.model, arguments.shapes, device)
    programs = {task.workload.key for task in network.tasks if task.worth_tuning}
    known = {record.workload for record in dataset(settings).records(device.name, programs)}
    return settings.up.measure_per_program * len(programs) if programs - known else 0


def teachers(device: Device, settings: Settings) -> list[str]:
    """Devices to learn first, so that this host starts from a knowledge base."""
    from tcl.registry.registry import Registry
    from tcl.registry.versions import KNOWLEDGE_BASE

    store = dataset(settings)
    if Registry(settings).versions(KNOWLEDGE_BASE):
        return []
    known = {device.name for device in DeviceStore(settings.devices_dir).list()}
    return [
        name
        for name in store.devices()
        if name in known and name != device.name and len(store.workloads(name)) >= FEWEST_PROGRAMS
    ]
