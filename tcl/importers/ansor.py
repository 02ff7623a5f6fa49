"""Records of TVM's auto_scheduler (Ansor, TenSet).

A line is ``{"i": [[workload key, target, hardware parameters, ...], [[], steps]], "r": [seconds of each
repeat, error number, total seconds, time stamp], "v": version}``.
"""

from __future__ import annotations

import json
from typing import Any

from tcl.features.batch import FEATURE_VERSION
from tcl.features.workload_keys import normalise_key, summary_of_key
from tcl.importers.reading import parse_line
from tcl.records.record import MeasureRecord, Workload, compact_json

_FAILED_SECONDS = 1e9
_ERRORS = {  # auto_scheduler's MeasureErrorNo
    1: "build: the schedule could not be applied",
    2: "build: compilation failed on the host",
    3: "build: compilation failed for the device",
    4: "run: error on the device",
    5: "run: wrong answer",
    6: "timeout: build",
    7: "timeout: run",
    8: "import: unknown error",
}


class AnsorReader:
    """Reads lines of Ansor logs for one device."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._workloads: dict[str, Workload] = {}

    def read(self, line: bytes) -> tuple[Workload, MeasureRecord]:
        """One line as a workload and a record.

        Raises
        ------
        tcl.records.record.UNREADABLE
            When the line is no record.
        """
        entry = parse_line(line)
        (key, *_), state = entry["i"][0], entry["i"][1]
        steps = state[1]
        seconds, error, _, timestamp = entry["r"][:4]
        if not isinstance(key, str) or not isinstance(steps, list) or not isinstance(error, int):
            raise ValueError("the fields have other types than a record's")
        workload = self._workload(key)
        message = None if error == 0 else _ERRORS.get(error, f"import: error number {error}")
        runs = tuple(float(second) for second in seconds)
        if message is None and not (runs and all(0 < second < _FAILED_SECONDS for second in runs)):
            message = "import: no usable run time"
        record = MeasureRecord(
            device=self._device,
            workload=workload.key,
            trace=compact_json(steps),
            run_seconds=() if message else runs,
            reference_seconds=None,
            error=message,
            timestamp=float(timestamp),
            tvm_version=f"ansor {entry.get('v', '')}".strip(),
            feature_version=FEATURE_VERSION,
            origin="import",
        )
        return workload, record

    def _workload(self, key: str) -> Workload:
        if key not in self._workloads:
            program = normalise_key(key)
            name: Any = json.loads(program)[0] if program.startswith("[") else program
            self._workloads[key] = Workload.create("ansor", str(name), program, summary_of_key(program))
        return self._workloads[key]
