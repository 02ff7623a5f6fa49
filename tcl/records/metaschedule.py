"""Records as a database of MetaSchedule, so that TVM's own tools can replay them.

The format is JSON lines: ``database_workload.json`` holds ``["structural hash", "base64 program"]``, and
``database_tuning_record.json`` ``[workload index, [trace, run seconds, target, argument info]]``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tcl.errors import BadInput
from tcl.files import atomic_directory
from tcl.records.record import compact_json
from tcl.records.store import RecordStore

if TYPE_CHECKING:
    from tcl.devices.device import Device

WORKLOAD_FILE = "database_workload.json"
RECORD_FILE = "database_tuning_record.json"


@dataclass(frozen=True)
class ExportReport:
    """What a database holds.

    Attributes
    ----------
    workloads, records : int
        What was written.
    failures : int
        Failed candidates, left out: TVM would store them as 1e10 seconds and may choose them.
    foreign : int
        Records of other sources than MetaSchedule, left out.
    """

    workloads: int
    records: int
    failures: int
    foreign: int


def export_database(
    store: RecordStore, device: Device, folder: Path | str, keys: set[str] | None = None
) -> ExportReport:
    """Writes a device's records, and no other's, as a MetaSchedule database.

    Parameters
    ----------
    store : RecordStore
    device : Device
        Whose records; its target is written into each.
    folder : Path
        Is created, or replaced as a whole.
    keys : set of str, optional
        Only these workloads.

    Raises
    ------
    BadInput
        When the folder holds anything but such a database.
    """
    folder = Path(folder)
    if folder.is_dir() and {path.name for path in folder.iterdir()} - {WORKLOAD_FILE, RECORD_FILE}:
        raise BadInput(f"{folder} holds other files; name a new folder for the database")
    programs = {
        key: workload.program
        for key, workload in store.workloads(device.name).items()
        if workload.source == "metaschedule" and (keys is None or key in keys)
    }
    index = {key: position for position, key in enumerate(programs)}
    target = compact_json(device.target)
    records = failures = foreign = 0
    with atomic_directory(folder) as draft:
        (draft / WORKLOAD_FILE).write_text("".join(line + "\n" for line in programs.values()))
        with (draft / RECORD_FILE).open("w") as stream:
            for record in store.records(device.name, keys):
                if record.workload not in index:
                    foreign += 1
                elif record.error is not None or not record.run_seconds:
                    failures += 1
                else:
                    seconds = json.dumps(record.run_seconds)
                    stream.write(f"[{index[record.workload]},[{record.trace},{seconds},{target},null]]\n")
                    records += 1
    return ExportReport(len(programs), records, failures, foreign)
