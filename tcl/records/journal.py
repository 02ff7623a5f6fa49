"""Records that are safe on disk as soon as they are measured.

A batch of results becomes one line of JSON, synced at once, in a file beside the store. Folding puts the
lines into Parquet and removes them; doing so twice changes nothing, since the store knows what it holds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tcl.files import locked
from tcl.records.record import UNREADABLE, MeasureRecord, Workload, compact_json
from tcl.records.store import RecordStore

_LOCK_SECONDS = 600.0


@dataclass(frozen=True)
class FoldReport:
    """What folding a journal did.

    Attributes
    ----------
    added : int
        Records that the store did not hold yet.
    dropped : int
        Lines that could not be read: cut by a crash, or with values that no measurement has.
    """

    added: int
    dropped: int


class Journal:
    """The journal file at `path`; it exists while it has lines."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def append(self, workloads: Sequence[Workload], records: Sequence[MeasureRecord]) -> None:
        """Writes one line and waits until it is on disk."""
        line = compact_json(
            {
                "workloads": [workload.to_json() for workload in workloads],
                "records": [record.to_json() for record in records],
            }
        )
        with self._locked():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as stream:
                end = stream.seek(0, os.SEEK_END)
                if end:
                    stream.seek(end - 1)
                    if stream.read(1) != b"\n":  # a cut line must not swallow this one
                        stream.write(b"\n")
                stream.write(line.encode() + b"\n")
                stream.flush()
                os.fsync(stream.fileno())

    def fold(self, store: RecordStore) -> FoldReport:
        """Moves all lines into the store.

        Raises
        ------
        BadInput, WorkFailed
            As `RecordStore.append`; the journal stays as it is then.
        """
        with self._locked():
            if not self.path.exists():
                return FoldReport(0, 0)
            workloads: list[Workload] = []
            records: list[MeasureRecord] = []
            dropped = 0
            with self.path.open("rb") as stream:
                for line in stream:
                    try:
                        entry = json.loads(line)
                        new_workloads = [Workload.from_json(value) for value in entry["workloads"]]
                        new_records = [MeasureRecord.from_json(value) for value in entry["records"]]
                    except UNREADABLE:
                        dropped += 1
                        continue
                    workloads += new_workloads
                    records += new_records
            added = store.append(workloads, records)
            self.path.unlink()
            return FoldReport(added, dropped)

    def _locked(self) -> AbstractContextManager[None]:
        return locked(
            self.path.with_name(self.path.name + ".lock"), _LOCK_SECONDS, f"the journal {self.path}"
        )
