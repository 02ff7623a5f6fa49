"""Databases of MetaSchedule, of any TVM version.

The programs are kept as they are and never loaded: older ones do not load in today's TVM. What the cost model
needs to know of them comes from the traces.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tcl.errors import BadInput
from tcl.features.batch import FEATURE_VERSION
from tcl.features.trace_summary import summary_of_trace
from tcl.importers.reading import parse_line, plain_name, read_lines
from tcl.records.record import MeasureRecord, Workload, compact_json

_FAILED_SECONDS = 1e9


class MetaScheduleReader:
    """Reads lines of one ``database_tuning_record.json`` for one device.

    Parameters
    ----------
    device : str
        Name of the device.
    path : Path
        The file of tuning records; the workload file lies beside it.

    Raises
    ------
    BadInput
        When there is no workload file.
    """

    def __init__(self, device: str, path: Path) -> None:
        self._device = device
        self._programs: dict[int, str] = {}
        self._workloads: dict[int, Workload] = {}
        for number, line in read_lines(workload_path(path)):
            text = line.decode(errors="replace").strip()
            if is_workload(text):
                self._programs[number - 1] = text

    def read(self, line: bytes) -> tuple[Workload, MeasureRecord]:
        """One line as a workload and a record.

        Raises
        ------
        tcl.records.record.UNREADABLE
            When the line is no record or its workload is missing.
        """
        index, (trace, seconds, _target, arguments) = parse_line(line)
        instructions, decisions = trace
        if not isinstance(instructions, list) or not isinstance(decisions, list):
            raise ValueError("the trace is not [instructions, decisions]")
        if index not in self._programs:
            raise ValueError(f"workload {index} is missing or broken")
        if index not in self._workloads:
            name, summary = summary_of_trace(instructions, decisions, arguments)
            self._workloads[index] = Workload.create("metaschedule", name, self._programs[index], summary)
        workload = self._workloads[index]
        runs = tuple(float(second) for second in seconds or ())
        failed = not runs or not all(0 < second < _FAILED_SECONDS for second in runs)
        record = MeasureRecord(
            device=self._device,
            workload=workload.key,
            trace=compact_json(trace),
            run_seconds=() if failed else runs,
            reference_seconds=None,
            error="import: the candidate failed" if failed else None,
            timestamp=0.0,
            tvm_version="",
            feature_version=FEATURE_VERSION,
            origin="import",
        )
        return workload, record


def workload_path(records: Path) -> Path:
    """The workload file beside a file of tuning records."""
    name = plain_name(records).replace("tuning_record", "workload")
    for path in sorted(records.parent.glob(name + "*")):
        if plain_name(path) == name and path != records:
            return path
    raise BadInput(
        f"{records} needs the workload file {records.parent / name} (plain or compressed) beside it"
    )


def is_workload(text: str) -> bool:
    """Whether a line is ``["structural hash", "base64 program"]``."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)
