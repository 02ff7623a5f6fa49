"""What a compile reports: the package's manifest as tables and lines."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcl.devices.device import Device
from tcl.devices.host import is_gpu, machine_of
from tcl.jobs.tables import Table, duration
from tcl.jobs.tuning import KNOWN

if TYPE_CHECKING:
    from tcl.compiler.packaging.manifest import Manifest

TUNED, UNTUNED = "tuned", "untuned"
"""Contenders whose latencies a manifest holds."""


@dataclass(frozen=True)
class CompileReport:
    """The result of the job: the package's manifest, and where it is."""

    package: str
    manifest: "Manifest"

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {
            "package": self.package,
            "measured_trials": self.measured_trials,
            "known_programs": self.known_programs,
            **self.manifest.to_json(),
        }

    @property
    def measured_trials(self) -> int:
        """Schedules that this compile measured."""
        return sum(row.trials for row in self.manifest.tasks)

    @property
    def known_programs(self) -> int:
        """Programs that were measured before and cost no trial now."""
        return sum(row.note == KNOWN and not row.trials for row in self.manifest.tasks)

    def tables(self) -> list[Table]:
        """The programs, and the latencies."""
        rows = [
            (
                row.name,
                row.weight,
                row.schedule,
                row.predicted,
                duration(row.measured_seconds),
                row.trials,
                row.note,
            )
            for row in self.manifest.tasks
        ]
        columns = ("program", "calls", "schedule", "predicted", "measured", "trials", "note")
        return [Table("Tensor programs", columns, rows), self.summary()]

    def summary(self) -> Table:
        """One line on the whole package."""
        manifest = self.manifest
        cost_model, latency = manifest.cost_model or {}, manifest.latency or {}
        verification = manifest.verification or {}
        medians = [
            duration(latency.get(name, {}).get("median_seconds")) for name in (UNTUNED, TUNED, "onnxruntime")
        ]
        row = (
            Path(manifest.model).name,
            manifest.device.name,
            f"{cost_model.get('name')} v{cost_model.get('version')}",
            manifest.trials,
            *medians,
            verification.get("max_rel"),
        )
        columns = ("model", "device", "cost model", "trials", "untuned", "tuned", "onnxruntime", "error")
        return Table("Package", columns, [row])

    def lines(self) -> list[str]:
        """What a person should know besides the tables."""
        lines = [f"package written to {self.package}"]
        if self.manifest.forced:
            lines.append(f"its cost model was forced through the gate: {'; '.join(self.manifest.forced)}")
        if self.known_programs:
            lines.append(
                f"{self.known_programs} of {len(self.manifest.tasks)} programs were measured before and cost no trial;"
                f" {self.measured_trials} trials were measured"
            )
        if self.manifest.verification is None:
            lines.append(
                f"neither verified nor timed, since {_in_words(self.manifest.device)} is not at hand; check it there"
            )
        latency = self.manifest.latency or {}
        if TUNED in latency and "onnxruntime" in latency:
            ratio = latency[TUNED]["median_seconds"] / latency["onnxruntime"]["median_seconds"]
            lines.append(f"its latency is {ratio:.2f}x onnxruntime's on the same threads")
        wrong = [f"{row.name} ({row.note})" for row in self.manifest.tasks if "discarded" in row.note]
        if wrong:
            lines.append(f"schedules with wrong results were found: {', '.join(wrong)}")
        failed = [f"{row.name} ({row.note})" for row in self.manifest.tasks if "failed" in row.note]
        if failed:
            lines.append(f"compiled with the default schedule: {', '.join(failed)}")
        return lines


def _in_words(device: Device) -> str:
    """A device and what it is, e.g. "pi4 (aarch64 cortex-a72, 4 cores)"."""
    if is_gpu(device.target):
        return f"{device.name} (a GPU)"
    cores = f"{device.num_cores} core{'s' if device.num_cores > 1 else ''}"
    return f"{device.name} ({machine_of(device.target)} {device.target.get('mcpu', 'CPU')}, {cores})"
