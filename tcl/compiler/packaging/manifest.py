"""`tcl.json`: what a package is, where it comes from and how good it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tcl.compiler.tensors import TensorSpec
from tcl.devices.device import Device
from tcl.errors import BadInput
from tcl.fields import check_fields, conforms

FORMAT_VERSION = 1
BUILD_VERSION = 3
"""Of what a schedule is built to; times of packages of different versions cannot be compared.

2: prefetches; 3: of whole panels, rows shared out among cores, images in planes.
"""
MANIFEST = "tcl.json"
_TENSORS = ("inputs", "outputs")


@dataclass(frozen=True)
class TaskRow:
    """How one tensor program of the network was compiled.

    Attributes
    ----------
    name, workload
        The program's name and `Workload.key`.
    weight
        How often the network runs it.
    schedule
        ``tuned``, or ``default`` for TVM's own schedule.
    predicted
        The cost model's score of the chosen schedule (higher is faster), where there was one.
    measured_seconds
        Median of the chosen schedule on the device, where it was measured.
    trials
        Schedules measured for this program.
    note
        Why it is not tuned, or what failed; empty when all went well.
    functions
        Names of the compiled functions that are this program.
    op, dtype, flops, bytes
        What it computes: kind of its anchor block, element type, operations, and bytes read and written, per run.
    """

    name: str
    workload: str
    weight: int
    schedule: str
    predicted: float | None = None
    measured_seconds: float | None = None
    trials: int = 0
    note: str = ""
    functions: tuple[str, ...] = ()
    op: str = "other"
    dtype: str = "float32"
    flops: float = 0.0
    bytes: float = 0.0

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TaskRow:
        """Read a row of a manifest.

        Raises
        ------
        AttributeError, TypeError
            When it is none.
        """
        row = cls(**{**value, "functions": tuple(value.get("functions", ()))})
        check_fields(row)
        return row


@dataclass(frozen=True)
class Manifest:
    """The content of ``tcl.json``.

    Attributes
    ----------
    model
        The ONNX file's path when it was compiled.
    onnx_sha256
        Of that file (and its external data), in hex.
    device
        What it was compiled for.
    inputs, outputs
        Original names, in the original order, with pinned shapes.
    values
        Inputs of the ONNX model that were pinned to a value and are no inputs of the package.
    tvm_version
        The version that compiled it, and that must load it.
    cost_model
        ``{"name": ..., "version": ...}`` of the registered model, or None when none took part.
    forced
        Why the gate had refused the cost model that was used all the same; empty when it passed, or was not asked.
    data_hash
        Version of the dataset the cost model was trained on, or None.
    trials
        Trials that tuning was allowed; None when nothing was tuned.
    tasks
        One row for each distinct tensor program.
    verification
        `Verification.to_json()`, or None where the device is not at hand.
    latency
        `Latency.to_json()` by contender (``tuned``, ``untuned``, ``onnxruntime``), or None when not measured.
    library
        The compiled program's file.
    files
        SHA-256, in hex, of every other file of the package, by relative path.
    """

    model: str
    onnx_sha256: str
    device: Device
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    tvm_version: str
    values: dict[str, list[int]] = field(default_factory=dict)
    cost_model: dict[str, Any] | None = None
    forced: tuple[str, ...] = ()
    data_hash: str | None = None
    trials: int | None = None
    tasks: tuple[TaskRow, ...] = ()
    verification: dict[str, Any] | None = None
    latency: dict[str, dict[str, Any]] | None = None
    library: str = "model.so"
    files: dict[str, str] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    @property
    def cores(self) -> int:
        """Threads to run with: the cores of the device."""
        return self.device.num_cores

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as a JSON object; `from_json` reads it back."""
        value = asdict(self)
        for name in _TENSORS:
            value[name] = [spec.to_json() for spec in getattr(self, name)]
        value["tasks"] = [asdict(row) for row in self.tasks]
        return {"format_version": value.pop("format_version"), **value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], where: str = MANIFEST) -> Manifest:
        """Read what `to_json` returned.

        Raises
        ------
        BadInput
            When it is no manifest, or of a format this version does not read; the message begins with
            `where`.
        """
        version = value.get("format_version") if isinstance(value, Mapping) else None
        if version != FORMAT_VERSION:
            raise BadInput(
                f"{where}: package format {version}, but this version of tcl reads format {FORMAT_VERSION};"
                " compile the model again"
            )
        fields = dict(value)
        try:
            for name in _TENSORS:
                fields[name] = tuple(TensorSpec.from_json(item) for item in fields[name])
            fields["forced"] = tuple(fields.get("forced", ()))
            fields["tasks"] = tuple(TaskRow.from_json(row) for row in fields.get("tasks", ()))
            fields["device"] = Device.from_json(fields["device"])
            manifest = cls(**fields)
            manifest._check()
        except (AttributeError, BadInput, KeyError, TypeError, ValueError) as error:
            raise BadInput(
                f"{where}: this is no package manifest ({error}); compile the model again"
            ) from None
        return manifest

    def _check(self) -> None:
        """Raise TypeError or ValueError where a field, or what is read of it, is not as described."""
        check_fields(self)
        model, errors = self.cost_model, self.verification or {}
        if model is not None and not (
            conforms(model.get("name"), str) and conforms(model.get("version"), int)
        ):
            raise ValueError("the cost model has no name and version")
        if not all(conforms(errors.get(name, 0.0), float) for name in ("max_abs", "max_rel")):
            raise ValueError("the verification's errors are no numbers")
        for name, times in (self.latency or {}).items():
            median = times.get("median_seconds", 0.0)
            if not conforms(median, float) or median <= 0:
                raise ValueError(f"the latency of {name!a} is no time")
        if self.library not in self.files:
            raise ValueError("the manifest does not list its program")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of the package in `folder`.

        Raises
        ------
        BadInput
            When there is none, or it is damaged.
        """
        path = folder / MANIFEST
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise BadInput(f"{folder}: this folder is no package: it has no {MANIFEST}") from None
        except (ValueError, RecursionError, NotADirectoryError) as error:
            raise BadInput(
                f"{path}: the manifest cannot be read ({error}); compile the model again"
            ) from None
        return cls.from_json(value, str(path))
