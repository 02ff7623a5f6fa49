"""Reads logs of other tools into the record store: all of what was named, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tcl.errors import BadInput
from tcl.importers.ansor import AnsorReader
from tcl.importers.metaschedule import MetaScheduleReader, is_workload
from tcl.importers.reading import plain_name, read_lines
from tcl.records.record import UNREADABLE, MeasureRecord, Workload
from tcl.records.store import DeviceWriter, RecordStore

if TYPE_CHECKING:
    from tcl.devices.device import Device

FORMATS = ("auto", "ansor", "metaschedule")
_BATCH = 5_000
_SHOWN = 20
_LOG_NAMES = (".json", ".log", ".jsonl")


@dataclass
class ImportReport:
    """What became of every line; ``lines == records + failures + broken``.

    Attributes
    ----------
    files : int
        Log files read.
    lines : int
        Lines that are not blank.
    records, failures : int
        Lines with a measured and with a failed candidate.
    broken : int
        Lines that are no record.
    new : int
        Records and failures that the store did not hold before.
    workloads : int
        Workloads that the lines are about.
    broken_lines : list of str
        The first broken lines as ``file:line: reason``.
    """

    files: int = 0
    lines: int = 0
    records: int = 0
    failures: int = 0
    broken: int = 0
    new: int = 0
    workloads: int = 0
    broken_lines: list[str] = field(default_factory=list)


class _Reader(Protocol):
    def read(self, line: bytes) -> tuple[Workload, MeasureRecord]: ...


def import_logs(
    paths: Iterable[Path | str],
    device: Device,
    store: RecordStore,
    format: str = "auto",
    tolerate: float = 0.01,
    progress: Callable[[int], None] | None = None,
) -> ImportReport:
    """Reads logs into the store.

    Parameters
    ----------
    paths : iterable of Path
        Files, or folders that are searched for logs, plain or compressed.
    device : Device
        The device that the logs were measured on (the logs do not say reliably).
    store : RecordStore
    format : str
        ``ansor``, ``metaschedule``, or ``auto``: recognised for each file.
    tolerate : float
        Largest share of broken lines, 0 to 1.
    progress : callable, optional
        Is told the number of lines read so far.

    Raises
    ------
    BadInput
        When there is no log, a file cannot be read, or too many lines are broken. Nothing is stored then.
    """
    if format not in FORMATS:
        raise BadInput(f"the format is one of {', '.join(FORMATS)}, not {format!r}")
    if not 0 <= tolerate <= 1:
        raise BadInput(f"the tolerated share of broken lines lies between 0 and 1, not {tolerate:g}")
    report = ImportReport()
    seen: set[str] = set()
    with store.writer(device.name) as writer:
        for path, reader in _readers(find_logs(paths), device.name, format):
            report.files += 1
            _read_file(path, reader, writer, report, seen, progress)
        report.workloads = len(seen)
        if report.lines == 0:
            raise BadInput("the logs hold no line; name files of measure records")
        if report.broken > tolerate * report.lines:
            raise BadInput(
                f"{report.broken} of {report.lines} lines are broken, more than {tolerate:.1%}, so nothing"
                f" was imported; the first: {report.broken_lines[0]} (--tolerate SHARE accepts more)"
            )
    return report


def find_logs(paths: Iterable[Path | str]) -> list[Path]:
    """The files that are named, and the logs in the folders that are named, each once.

    Raises
    ------
    BadInput
        When a path does not exist or a folder holds no log.
    """
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.is_file() and _is_log(file))
            if not inside:
                raise BadInput(
                    f"the folder {path} holds no log ({', '.join(_LOG_NAMES)}, plain or compressed)"
                )
            found.update(dict.fromkeys(inside))
        elif path.is_file():
            found[path] = None
        else:
            raise BadInput(f"{path} does not exist")
    return list(found)


def _is_log(path: Path) -> bool:
    return not path.name.startswith(".") and Path(plain_name(path)).suffix in _LOG_NAMES


def _readers(paths: list[Path], device: str, format: str) -> Iterator[tuple[Path, _Reader]]:
    """A reader for each file; workload files of MetaSchedule are read beside their records."""
    for path in paths:
        first = next((line for _, line in read_lines(path)), b"").decode(errors="replace").strip()
        if is_workload(first):
            continue
        kind = format
        if kind == "auto":
            kind = "metaschedule" if first.startswith("[") or "tuning_record" in path.name else "ansor"
        yield path, AnsorReader(device) if kind == "ansor" else MetaScheduleReader(device, path)


def _read_file(
    path: Path,
    reader: _Reader,
    writer: DeviceWriter,
    report: ImportReport,
    seen: set[str],
    progress: Callable[[int], None] | None,
) -> None:
    workloads: dict[str, Workload] = {}
    records: list[MeasureRecord] = []

    def store() -> None:
        report.new += writer.add(workloads.values(), records)
        seen.update(workloads)
        workloads.clear()
        records.clear()
        if progress is not None:
            progress(report.lines)

    for number, line in read_lines(path):
        report.lines += 1
        try:
            workload, record = reader.read(line)
        except UNREADABLE as error:
            report.broken += 1
            if len(report.broken_lines) < _SHOWN:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                report.broken_lines.append(f"{path}:{number}: {reason[:200]}")
            continue
        if record.error is None:
            report.records += 1
        else:
            report.failures += 1
        workloads[workload.key] = workload
        records.append(record)
        if len(records) >= _BATCH:
            store()
    store()
