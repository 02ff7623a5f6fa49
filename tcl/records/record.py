"""A workload and one measurement of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tcl.features.workload import WorkloadSummary

SOURCES = ("metaschedule", "ansor")
CAUSES = ("build", "run", "timeout", "crash", "memory", "import")
ORIGINS = ("random", "rdu", "search", "import")


@dataclass(frozen=True)
class Workload:
    """A tensor program to be scheduled.

    Attributes
    ----------
    key : str
        Content hash of source and program (see `create`), in hex.
    source : str
        ``metaschedule`` or ``ansor``.
    name : str
        For people, e.g. ``fused_conv2d_NCHWc_add_relu``.
    program : str
        MetaSchedule: the workload's line of ``database_workload.json``, ``["structural hash", "base64"]``.
        Ansor: the normalised workload key.
    summary : WorkloadSummary
    """

    key: str
    source: str
    name: str
    program: str
    summary: WorkloadSummary

    @classmethod
    def create(cls, source: str, name: str, program: str, summary: WorkloadSummary) -> Workload:
        """A workload with its key.

        A MetaSchedule program is identified by its structural hash alone: the names in it do not count.
        """
        identity = json.loads(program)[0] if source == "metaschedule" else program
        digest = hashlib.sha256(f"{source}:{identity}".encode())
        return cls(digest.hexdigest()[:16], source, name, program, summary)

    def to_json(self) -> dict[str, Any]:
        """The workload as a JSON object; `from_json` reads it back."""
        return {**asdict(self), "summary": self.summary.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Workload:
        """Reads what `to_json` returned; raises KeyError, TypeError or ValueError on anything else."""
        summary = WorkloadSummary.from_json(value["summary"])
        return cls(value["key"], value["source"], value["name"], value["program"], summary)


@dataclass(frozen=True)
class MeasureRecord:
    """One candidate's measurement on one device.

    Attributes
    ----------
    device : str
        Name of the device.
    workload : str
        `Workload.key`.
    trace : str
        JSON without blanks. MetaSchedule: ``[instructions, decisions]`` with post-processing. Ansor: the
        steps.
    run_seconds : tuple of float
        Each repeat in seconds, as measured; empty when the candidate failed.
    reference_seconds : float or None
        The reference kernel beside this measurement; None for imports.
    error : str or None
        None, or ``<cause>: <detail>`` with a cause of `CAUSES`.
    timestamp : float
        Seconds since the epoch; 0 when unknown.
    tvm_version : str
    feature_version : int
    origin : str
        How the candidate was chosen, one of `ORIGINS`.
    """

    device: str
    workload: str
    trace: str
    run_seconds: tuple[float, ...]
    reference_seconds: float | None
    error: str | None
    timestamp: float
    tvm_version: str
    feature_version: int
    origin: str

    def content_id(self) -> int:
        """A 64-bit hash of what makes this measurement itself: workload, trace, time and seconds."""
        content = f"{self.workload}\0{self.trace}\0{self.timestamp!r}\0{self.run_seconds!r}"
        digest = hashlib.blake2b(content.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little", signed=True)

    def to_json(self) -> dict[str, Any]:
        """The record as a JSON object; `from_json` reads it back."""
        return {**asdict(self), "run_seconds": list(self.run_seconds)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> MeasureRecord:
        """Reads what `to_json` returned; raises KeyError, TypeError or ValueError on anything else."""
        reference = value["reference_seconds"]
        error = value["error"]
        return cls(
            device=str(value["device"]),
            workload=str(value["workload"]),
            trace=str(value["trace"]),
            run_seconds=tuple(float(seconds) for seconds in value["run_seconds"]),
            reference_seconds=None if reference is None else float(reference),
            error=None if error is None else str(error),
            timestamp=float(value["timestamp"]),
            tvm_version=str(value["tvm_version"]),
            feature_version=int(value["feature_version"]),
            origin=str(value["origin"]),
        )


compact_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
"""JSON without blanks, the form of every stored trace."""
