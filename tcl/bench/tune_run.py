"""Runs the cells of the tuning benchmark; each finished one is a file, so that a run can be cut and continued.

The files lie beside the results, with the schedules that were found: another clone on such a machine goes on from them.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import zstandard

from tcl.bench.machine import machine, today
from tcl.bench.networks import is_made_with_torch
from tcl.bench.tune_contenders import Arena, Outcome
from tcl.bench.tune_curves import Kept
from tcl.bench.tune_models import Pretrained, learned_records, prepare
from tcl.bench.tune_networks import export_network
from tcl.bench.tune_study import Cell, TuneParams, cells
from tcl.bench.tune_torch import ENGINES
from tcl.console import note
from tcl.devices.device import Device
from tcl.errors import BadInput, WorkFailed
from tcl.files import atomic_write
from tcl.jobs.programs import Network, read_network
from tcl.settings import Settings


class Runner:
    """Runs one study.

    Parameters
    ----------
    settings
        Of the project folder with the records.
    params
        Sizes.
    device
        To tune for, this machine. The cost models learn from its records and those of all other devices.
    folder
        Keeps models, networks and packages; may be shared by studies.
    kept
        Keeps finished cells; may be shared by studies.
    """

    def __init__(
        self, settings: Settings, params: TuneParams, device: Device, folder: Path, kept: Path
    ) -> None:
        self.settings, self.params, self.device = settings, params, device
        self.folder, self.kept = folder, kept
        self._records = learned_records(settings, device)
        self._pretrained: Pretrained | None = None
        self._arenas: dict[str, Arena] = {}

    def run(self) -> list[str]:
        """Run what is not there yet, as far as the time allows; the names of what is missing."""
        deadline = time.monotonic() + 60 * self.params.minutes
        steps: dict[str, tuple[Any, Any]] = {}
        for cell in cells(self.params):
            steps.setdefault(f"{Path(cell.network).stem}.start", (self.start, cell.network))
            steps[cell.name] = self.search, cell
        missing = []
        for name, (step, argument) in steps.items():
            if self.read(name) is None and time.monotonic() < deadline:
                self._keep(name, step, argument)
            elif self.read(name) is None:
                missing.append(name)
        for network in self.params.networks if self.params.engines else ():
            stem = Path(network).stem  # the time of these does not count: a minute each
            if self.read(f"{stem}.latency") is None and self._searched(network):
                self._keep(f"{stem}.latency", self.latencies, network)
            if self.read(f"{stem}.profile") is None and self._tuned(network):
                self._keep(f"{stem}.profile", self.profile, network)
        return missing

    def _keep(self, name: str, step: Any, argument: Any) -> None:
        started = time.monotonic()
        found = step(argument)
        wall = time.monotonic() - started
        cell = {"context": self._context(name), "date": today(), "cell_seconds": wall, **found}
        atomic_write(self._file(name), zstandard.compress(json.dumps(cell).encode(), 19))
        note(f"{name}: {wall:.0f} s")

    def read(self, name: str) -> Kept | None:
        """What is kept of a step, if it was made in the same way."""
        path = self._file(name)
        kept = json.loads(zstandard.decompress(path.read_bytes())) if path.exists() else None
        return kept if kept and kept["context"] == self._context(name) else None

    def days(self) -> list[str]:
        """When the searches were made that are kept."""
        return [kept["date"] for cell in cells(self.params) if (kept := self.read(cell.name)) is not None]

    @property
    def pretrained(self) -> Pretrained:
        """The cost models; trained at first use."""
        if self._pretrained is None:
            epochs = self.params.epochs
            folder = self.folder / f"models-{self.device.name}-{epochs}"
            self._pretrained = prepare(self.settings, self.device, epochs, folder)
        return self._pretrained

    def start(self, network: str) -> Kept:
        """Read a network and measure where everybody starts."""
        arena, seconds = self._read_network(network)
        overlap = {task.workload.key for task in arena.tasks} & self.pretrained.known
        if overlap:
            raise BadInput(
                f"{network}: {len(overlap)} of its programs are in the records that the models learn from"
            )
        tasks = [
            {
                "key": task.workload.key,
                "name": task.workload.name,
                "weight": task.weight,
                "op": task.workload.summary.op,
                "flops": task.workload.summary.flops,
            }
            for task in arena.tasks
        ]
        self._arenas = {network: arena}
        return {"read_seconds": seconds, "tasks": tasks, **arena.start()}

    def search(self, cell: Cell) -> Kept:
        """Let one contender search, build its package and check it; the machine's peak is measured beside it."""
        from tcl.compiler.running.peak import measure_peak_alone

        arena = self.arena(cell.network)
        outcome = arena.run(cell)
        peak = measure_peak_alone(self.device.target, self.device.num_cores, self.device.vector_bits)
        own_clock = cell.contender == "stock"  # its times are not of our engine
        final = arena.time(_tunable(arena, outcome)) if own_clock or not outcome.trials else {}
        started = time.monotonic()
        try:
            folder = self._package_folder(cell.name, outcome.traces)
            error, refused = self.package(arena.network, outcome.traces, folder), ""
        except WorkFailed as failure:  # a result like others, of this contender
            error, refused = None, str(failure)
        trials = [[t.seconds, t.task, t.latency] for t in outcome.trials]
        return {
            "seconds": outcome.seconds,
            "stopped": outcome.stopped,
            "package_seconds": time.monotonic() - started,
            "max_rel_error": error,
            "refused": refused,
            "final_seconds": final,
            "peak_flops": peak,
            "trials": trials,
            "traces": outcome.traces,
        }

    def latencies(self, network: str) -> Kept:
        """Time all packages of a network and other engines in turn."""
        from tcl.compiler.running.latency import benchmark

        packages = {name: self._built(network, name) for name in self._searched(network)}
        model = self.arena(network).network.model if "onnxruntime" in self.params.engines else None
        others, refused = self._other_engines(network, next(iter(packages.values())))
        timed = benchmark(packages, model, self.params.latency_rounds, others=others)
        return {"latency": {name: asdict(found) for name, found in timed.items()}, "refused": refused}

    def profile(self, network: str) -> Kept:
        """Where the package of TCL's first seed spends a run: in tuned programs, in others, in the virtual machine."""
        from tcl.compiler.running.profile import profile

        name = self._tuned(network)
        assert name is not None
        folder = self._built(network, name)
        rounds = [profile(folder) for _ in range(self.params.latency_rounds)]
        found = min(rounds, key=lambda one: sum(call.seconds for call in one.calls))  # the machine has phases
        tuned = {name for task in self.arena(network).tasks for name in task.functions}
        seconds = {"tuned": 0.0, "other": 0.0, "machine": 0.0}
        for call in found.calls:
            part = "machine" if call.is_runtime else "tuned" if call.name in tuned else "other"
            seconds[part] += call.seconds
        return {"run_seconds": found.run_seconds, "part_seconds": seconds}

    def _other_engines(
        self, network: str, package: Path
    ) -> tuple[dict[str, tuple[str, str, str]], dict[str, str]]:
        """The torch engines that can run the network, where there is a torch module of it, and why others cannot."""
        from tcl.compiler.running.latency import benchmark

        usable, refused = {}, {}
        for engine in ENGINES if is_made_with_torch(network) else ():
            if engine in self.params.engines:
                command = ("tcl.bench.tune_torch", engine, network)
                try:  # inductor also fills its cache here
                    benchmark({"package": package}, None, 1, others={engine: command})
                    usable[engine] = command
                except WorkFailed as error:
                    refused[engine] = str(error)
        return usable, refused

    def package(
        self,
        network: Network,
        traces: dict[str, str],
        folder: Path,
        *,
        prefetch: bool = True,
        by_rows: bool = True,
    ) -> float:
        """Build and verify the package of schedules by workload key; returns its error against onnxruntime."""
        from tcl.compiler.packaging.manifest import Manifest
        from tcl.compiler.packaging.package import write_package
        from tcl.compiler.programs.build import apply_schedules, build_executable
        from tcl.compiler.running.verify import verify
        from tcl.compiler.targets import target_of

        target, model = target_of(self.device.target), network.model
        by_function = {
            name: traces[task.workload.key]
            for task in network.tasks
            if task.workload.key in traces
            for name in task.functions
        }
        scheduled = apply_schedules(network.mod, target, by_function, prefetch=prefetch, by_rows=by_rows)
        executable = build_executable(scheduled, target)
        manifest = Manifest(
            model=str(model.path.absolute()),
            onnx_sha256=model.sha256,
            device=self.device,
            inputs=model.inputs,
            outputs=model.outputs,
            values=model.values,
            tvm_version=version("apache-tvm"),
        )
        write_package(folder, executable, manifest)
        return verify(folder, model, self.device.num_cores, asdict(self.settings.verify)).max_rel

    def _searched(self, network: str) -> list[str]:
        """Names of the searches of a network that ended with a package."""
        found = [cell.name for cell in cells(self.params) if Path(cell.network).stem == Path(network).stem]
        return [name for name in found if (kept := self.read(name)) is not None and not kept["refused"]]

    def _tuned(self, network: str) -> str | None:
        """Name of TCL's search with the first seed; None before it has a package."""
        searches = [c.name for c in cells(self.params) if c.contender == "tcl" and c.seed == 0]
        return next((name for name in searches if name in self._searched(network)), None)

    def _built(self, network: str, name: str) -> Path:
        """The package of a search, built again where only its schedules are here."""
        folder, traces = self._package(name)
        if not folder.exists():
            self.package(self.arena(network).network, traces, folder)
        return folder

    def _package(self, name: str) -> tuple[Path, dict[str, str]]:
        """The package of a finished search: its folder, and its schedules by workload key."""
        kept = self.read(name)
        assert kept is not None
        return self._package_folder(name, kept["traces"]), kept["traces"]

    def _package_folder(self, name: str, traces: dict[str, str]) -> Path:
        digest = hashlib.sha256(json.dumps(traces, sort_keys=True).encode()).hexdigest()[:12]
        return self.folder / "packages" / f"{name}-{digest}"

    def arena(self, network: str) -> Arena:
        """The arena of a network, read again where it is not the last one."""
        if network not in self._arenas:
            arena, _ = self._read_network(network)
            kept = self.read(f"{Path(network).stem}.start")
            assert kept is not None, "a network's start is measured before its searches"
            arena.resume(kept)
            self._arenas = {network: arena}
        return self._arenas[network]

    def _read_network(self, network: str) -> tuple[Arena, float]:
        path = export_network(network, self.folder / "networks")
        pretrained = self.pretrained
        started = time.monotonic()
        found = read_network(str(path), (), self.device)
        seconds = time.monotonic() - started
        return Arena(found, self.device, self.params, pretrained, self.folder / "scratch"), seconds

    def _file(self, name: str) -> Path:
        return self.kept / f"{name}.json.zst"

    def _context(self, name: str) -> Kept:
        """What a kept cell must agree with to be used: what it depends on, not which others there are."""
        from tcl.compiler.packaging.manifest import BUILD_VERSION
        from tcl.features.batch import FEATURE_VERSION

        names = ["epochs", "visits", "build_workers", "cell_minutes"]
        stem, _, kind = name.rpartition(".")
        names += {"latency": ["engines", "latency_rounds"], "profile": ["latency_rounds"]}.get(kind, [])
        sizes = {name: getattr(self.params, name) for name in names}
        if kind in ("latency", "profile"):
            tuned = self._tuned(stem)
            searches = self._searched(stem) if kind == "latency" else [tuned] if tuned else []
            sizes["packages"] = [self._package(name)[0].name for name in searches]
        return json.loads(
            json.dumps(
                {
                    **sizes,
                    "machine": machine(),
                    "device": self.device.name,
                    "target": self.device.target,
                    "records": self._records,
                    "feature_version": FEATURE_VERSION,
                    "build_version": BUILD_VERSION,
                }
            )
        )


def _tunable(arena: Arena, outcome: Outcome) -> dict[str, str]:
    keys = {task.workload.key for task in arena.tasks}
    return {key: trace for key, trace in outcome.traces.items() if key in keys}
