"""The measure records of all devices as a few Parquet files.

``workloads.parquet`` holds each workload once, ``<device>/records-NNN.parquet`` the records in the order in
which they were appended. A file that is being written has another name until it is whole, so that readers
need no lock.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tcl.devices.device import check_name
from tcl.errors import BadInput
from tcl.files import locked
from tcl.records.parquet import (
    ROWS_PER_GROUP,
    RecordFile,
    read_tables,
    read_workloads,
    readable,
    record_table,
    table_records,
    write_workloads,
)
from tcl.records.record import MeasureRecord, Workload

ROLL_BYTES = 64 << 20
"""A file of this size is left alone and the next one begun."""

_LOCK_SECONDS = 600.0


@dataclass(frozen=True)
class DeviceStatus:
    """What the store holds of one device."""

    device: str
    records: int
    failures: int
    workloads: int
    files: int
    bytes: int


class RecordStore:
    """The records under a folder.

    Parameters
    ----------
    root : Path
        The data folder; it need not exist.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def append(self, workloads: Iterable[Workload], records: Iterable[MeasureRecord]) -> int:
        """Adds workloads and records, all of a device or none.

        Returns
        -------
        int
            How many records are new: the same content again changes nothing.

        Raises
        ------
        BadInput
            When a file of the store is damaged.
        WorkFailed
            When another process holds the store for too long.
        """
        workloads = list(workloads)
        by_device = groupby(sorted(records, key=attrgetter("device")), key=attrgetter("device"))
        added = 0
        for device, group in by_device:
            with self.writer(device) as writer:
                added += writer.add(workloads, list(group))
        return added

    @contextlib.contextmanager
    def writer(self, device: str) -> Iterator[DeviceWriter]:
        """Streams any number of records of a device into the store: all of them, or none after an error."""
        with locked(self._lock(device), _LOCK_SECONDS, f"the records of {device}"):
            writer = DeviceWriter(self, device)
            try:
                yield writer
                writer.commit()
            finally:
                writer.discard()

    def devices(self) -> list[str]:
        """Names of the devices that have records, sorted.

        Raises
        ------
        BadInput
            When a folder of records has a name that no device has.
        """
        folders = {path.parent for path in self.root.glob("*/records-*.parquet")}
        return sorted(check_name(folder.name, folder) for folder in folders)

    def workloads(self, device: str) -> dict[str, Workload]:
        """The workloads that a device has records of, by key."""
        known = read_workloads(self.workloads_path)
        seen: set[str] = set()
        for table in self.tables(device, ["workload"]):
            seen.update(pc.unique(table.column("workload")).to_pylist())
        return {key: workload for key, workload in known.items() if key in seen}

    def records(self, device: str, keys: Collection[str] | None = None) -> Iterator[MeasureRecord]:
        """Streams a device's records in the order of their appending; `keys` picks workloads."""
        for path in self.files(device):
            for table in read_tables(path, keys=keys):
                with readable(path):
                    yield from table_records(device, table)

    def tables(
        self, device: str, columns: Sequence[str] | None = None, keys: Collection[str] | None = None
    ) -> Iterator[pa.Table]:
        """The same as Arrow tables of `tcl.records.parquet.RECORD_SCHEMA`, a bounded number of rows each.

        Raises
        ------
        BadInput
            When a file is damaged, naming it.
        """
        for path in self.files(device):
            yield from read_tables(path, columns, keys)

    def status(self, device: str) -> DeviceStatus:
        """Counts of a device's records."""
        count = failures = 0
        workloads: set[str] = set()
        for table in self.tables(device, ["workload", "error"]):
            count += table.num_rows
            failures += table.num_rows - table.column("error").null_count
            workloads.update(pc.unique(table.column("workload")).to_pylist())
        files = self.files(device)
        size = sum(path.stat().st_size for path in files)
        return DeviceStatus(device, count, failures, len(workloads), len(files), size)

    def files(self, device: str) -> list[Path]:
        """The device's record files in order.

        Raises
        ------
        BadInput
            When a file's name has no number, or is another form of one.
        """
        return sorted((self.root / device).glob("records-*.parquet"), key=_number_of)

    @property
    def workloads_path(self) -> Path:
        return self.root / "workloads.parquet"

    def add_workloads(self, workloads: Iterable[Workload]) -> None:
        """Adds the workloads that the store does not know yet."""
        new = {workload.key: workload for workload in workloads}
        if not new:
            return
        with locked(self._lock("workloads"), _LOCK_SECONDS, "the workloads of the records"):
            known = read_workloads(self.workloads_path)
            if new.keys() <= known.keys():
                return
            self.root.mkdir(parents=True, exist_ok=True)
            temporary = self.root / ".workloads.parquet.tmp"
            write_workloads(temporary, {**new, **known}.values())
            temporary.replace(self.workloads_path)

    def _lock(self, name: str) -> Path:
        return self.root.resolve().parent / ".tcl" / "locks" / f"records-{name}.lock"


class DeviceWriter:
    """Collects a device's new records beside the store until `commit`; see `RecordStore.writer`."""

    def __init__(self, store: RecordStore, device: str) -> None:
        self._store = store
        self._device = device
        self._folder = store.root / device
        self._known = [ids for path in store.files(device) if len(ids := _sorted_ids(path))]
        self._workloads: dict[str, Workload] = {}
        self._tables: list[pa.Table] = []
        self._finished: list[tuple[Path, Path]] = []
        self._file: RecordFile | None = None
        self._number = 0
        self.discard()  # what a killed writer left

    def add(self, workloads: Iterable[Workload], records: Sequence[MeasureRecord]) -> int:
        """Takes workloads and records; returns how many of the records are new."""
        self._workloads.update((workload.key, workload) for workload in workloads)
        ids = np.array([record.content_id() for record in records], np.int64)
        fresh = np.ones(len(records), bool)
        for known in self._known:
            at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
            fresh &= known[at] != ids
        chosen: dict[int, MeasureRecord] = {}
        for record, number, is_fresh in zip(records, ids.tolist(), fresh, strict=True):
            if is_fresh:
                chosen.setdefault(number, record)
        if chosen:
            table = record_table(list(chosen.values()), list(chosen))
            if self._file is None:
                self._open()
            self._buffer(table)
            self._remember(np.sort(np.fromiter(chosen, np.int64)))
        return len(chosen)

    def commit(self) -> None:
        """Puts everything in place: workloads first, so that no record is seen without its own."""
        self._flush()
        self._close()
        self._store.add_workloads(self._workloads.values())
        for temporary, path in self._finished:
            temporary.replace(path)
        self._finished.clear()

    def discard(self) -> None:
        """Removes what is not committed."""
        if self._file is not None:
            self._file.close()
            self._file = None
        for path in self._folder.glob(".records-*.tmp"):
            path.unlink()

    def _remember(self, ids: np.ndarray) -> None:
        """Keeps sorted arrays of falling size: few to search, each id moved rarely, eight bytes an id."""
        while self._known and len(self._known[-1]) <= 2 * len(ids):
            ids = np.sort(np.concatenate([self._known.pop(), ids]))
        self._known.append(ids)

    def _open(self) -> None:
        """Begins with the last file while that is small, so that many small appends make few files."""
        files = self._store.files(self._device)
        last = files[-1] if files else None
        self._number = _number_of(last) if last else -1
        if last is not None and last.stat().st_size < ROLL_BYTES:
            self._begin()
            for table in read_tables(last):
                self._buffer(table)
        else:
            self._number += 1
            self._begin()

    def _begin(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = RecordFile(self._folder / f".{_file_name(self._number)}.tmp")

    def _buffer(self, table: pa.Table) -> None:
        self._tables.append(table)
        if sum(table.num_rows for table in self._tables) >= ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        if not self._tables:
            return
        if self._file is None:
            self._number += 1
            self._begin()
        assert self._file is not None
        self._file.write(pa.concat_tables(self._tables))
        self._tables.clear()
        if self._file.size >= ROLL_BYTES:
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            temporary = self._file.path
            self._finished.append((temporary, self._folder / temporary.name[1:].removesuffix(".tmp")))
            self._file = None


def _file_name(number: int) -> str:
    return f"records-{number:03d}.parquet"


def _number_of(path: Path) -> int:
    digits = re.fullmatch(r"records-(\d{1,18})\.parquet", path.name)
    if digits is None or path.name != _file_name(int(digits[1])):
        raise BadInput(f"{path} is no file of the store, which are named like {_file_name(0)}; move it away")
    return int(digits[1])


def _sorted_ids(path: Path) -> np.ndarray:
    ids = [table.column("id").to_numpy() for table in read_tables(path, ["id"])]
    return np.sort(np.concatenate(ids)) if ids else np.array([], np.int64)
