"""A workload and one measurement of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf, isfinite
from typing import Any

from tcl.devices.device import check_name
from tcl.errors import BadInput
from tcl.features.workload import WorkloadSummary

SOURCES = ("metaschedule", "ansor")
CAUSES = ("build", "run", "timeout", "crash", "memory", "import")
ORIGINS = ("random", "rdu", "search", "import")
_VERSIONS = range(1 << 15)
"""Feature versions that the store has room for."""

UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, BadInput)
"""What reading JSON as a record raises when it is none."""


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
        """Reads what `to_json` returned; raises `UNREADABLE` on anything else."""
        _check_texts(value["key"], value["source"], value["name"], value["program"])
        summary = WorkloadSummary.from_json(value["summary"])
        return cls(value["key"], value["source"], value["name"], value["program"], summary)


@dataclass(frozen=True)
class MeasureRecord:
    """One candidate's measurement on one device; its numbers and texts are some that the store can hold.

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

    Raises
    ------
    ValueError
        From the constructor, when they are not.
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

    def __post_init__(self) -> None:
        if not all(0 < seconds < inf for seconds in self.run_seconds):
            raise ValueError("a run takes a positive, finite time")
        if self.reference_seconds is not None and not 0 <= self.reference_seconds < inf:
            raise ValueError("the reference kernel takes a finite time")
        if not isfinite(self.timestamp):
            raise ValueError("the time stamp is not finite")
        if self.feature_version not in _VERSIONS:
            raise ValueError(f"there is no feature version {self.feature_version}")
        _check_texts(self.workload, self.trace, self.error or "", self.tvm_version, self.origin)

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
        """Reads what `to_json` returned; raises `UNREADABLE` on anything else."""
        reference = value["reference_seconds"]
        error = value["error"]
        return cls(
            device=check_name(value["device"]),
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


def _check_texts(*texts: str) -> None:
    for text in texts:
        if not text.isascii():
            text.encode()  # half a character, as JSON can write it, has no place in a file


compact_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
"""JSON without blanks, the form of every stored trace."""
