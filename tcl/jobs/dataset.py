"""Where measurements go: the dataset of the project, and the records that tuning keeps until they are taken over.

A compile must not change the dataset under its cost model's feet, so what it measures stays in `.tcl/tuning`; the next
`tcl measure` or `tcl distill` takes it over.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import TYPE_CHECKING

from tcl.console import note
from tcl.features.batch import FEATURE_VERSION
from tcl.files import locked
from tcl.settings import Settings

if TYPE_CHECKING:
    from tcl.measuring.types import MeasureResult
    from tcl.records.journal import Journal
    from tcl.records.record import MeasureRecord
    from tcl.records.store import RecordStore

FEWEST_PROGRAMS = 3
"""Measured programs that learning needs: to train on, to stop early by, to evaluate on."""
WRONG_RESULTS = "run: wrong results"
"""Error of a record whose candidate computes something else than its program."""
_LOCK_SECONDS = 6 * 3600.0  # another measurement may take long


def dataset(settings: Settings) -> "RecordStore":
    """The versioned measurements."""
    from tcl.records.store import RecordStore

    return RecordStore(settings.data_dir)


def tuning_store(settings: Settings) -> "RecordStore":
    """The measurements of compiles that the dataset has not taken over."""
    from tcl.records.store import RecordStore

    return RecordStore(settings.state_dir / "tuning")


def open_journal(settings: Settings, purpose: str, device: str, store: "RecordStore") -> "Journal":
    """The journal of a purpose ("measure", "tune") on a device; what an interrupted run left goes to `store`."""
    from tcl.records.journal import Journal

    journal = Journal(settings.state_dir / "journals" / f"{purpose}-{device}.jsonl")
    left = journal.fold(store)
    if left.added:
        note(f"{left.added} records of an interrupted run are kept")
    if left.dropped:
        note(f"dropped {left.dropped} broken record{'s' if left.dropped > 1 else ''} of an interrupted run")
    return journal


def alone_on(device: str, settings: Settings) -> AbstractContextManager[None]:
    """The lock of one device: who measures on it chooses under it too, and so knows what the one before measured."""
    return locked(settings.state_dir / f"device-{device}.lock", _LOCK_SECONDS, f"device {device}")


def to_record(device: str, result: "MeasureResult") -> "MeasureRecord":
    """What is kept of a measurement."""
    from tcl.records.record import MeasureRecord

    return MeasureRecord(
        device=device,
        workload=result.request.workload,
        trace=result.trace,
        run_seconds=result.run_seconds,
        reference_seconds=result.reference_seconds,
        error=result.error,
        timestamp=result.timestamp,
        tvm_version=version("apache-tvm"),
        feature_version=FEATURE_VERSION,
        origin=result.request.origin,
    )


def known_records(settings: Settings, device: str, keys: set[str]) -> "Iterator[MeasureRecord]":
    """This device's records of some workloads, from the dataset and from earlier tuning.

    What a candidate measured does not count when it turned out later that its results are wrong.
    """
    stores = (dataset(settings), tuning_store(settings))
    found = [record for store in stores for record in store.records(device, keys)]
    wrong = {(record.workload, record.trace) for record in found if record.error == WRONG_RESULTS}
    for record in found:
        if record.error is not None or (record.workload, record.trace) not in wrong:
            yield record


def take_over_tuning(settings: Settings, device: str) -> int:
    """Add to the dataset what compiles for a device have measured; returns how many records are new."""
    tuned, store = tuning_store(settings), dataset(settings)
    open_journal(settings, "tune", device, tuned)
    if device not in tuned.devices():
        return 0
    added = store.append(tuned.workloads(device).values(), tuned.records(device))
    if added:
        note(f"took over {added} records that compiling measured")
    return added
