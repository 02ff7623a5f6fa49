"""The journal of a measuring run."""

import json
from pathlib import Path

import pytest

from tcl.errors import BadInput
from tcl.records.journal import FoldReport, Journal
from tcl.records.record import Workload
from tcl.records.store import RecordStore


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "data")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journals" / "measure.jsonl")


def test_folding_moves_lines_into_the_store(
    journal: Journal, store: RecordStore, workload: Workload, make_record
) -> None:
    records = [make_record(number) for number in range(12)]
    journal.append([workload], records[:8])
    journal.append([workload], records[8:])
    assert journal.fold(store) == FoldReport(12, 0)
    assert list(store.records("here")) == records
    assert not journal.path.exists()
    assert journal.fold(store) == FoldReport(0, 0)


def test_cut_line_costs_that_line_only(
    journal: Journal, store: RecordStore, workload: Workload, make_record
) -> None:
    journal.append([workload], [make_record(1)])
    journal.append([workload], [make_record(2)])
    content = journal.path.read_bytes()
    journal.path.write_bytes(content[:-200])
    journal.append([workload], [make_record(3)])
    assert journal.fold(store) == FoldReport(2, 1)
    assert list(store.records("here")) == [make_record(1), make_record(3)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run_seconds", [10**400]),
        ("run_seconds", [0.0]),
        ("reference_seconds", float("nan")),
        ("timestamp", float("inf")),
        ("feature_version", 99999999),
        ("tvm_version", "\ud800"),
        ("device", "../../evil"),
        ("device", ["here"]),
    ],
)
def test_line_with_a_value_that_no_record_has_costs_that_line_only(
    journal: Journal, store: RecordStore, workload: Workload, make_record, field: str, value: object
) -> None:
    journal.append([workload], [make_record(1)])
    entry = json.loads(journal.path.read_text())
    entry["records"][0][field] = value
    journal.path.write_text(journal.path.read_text() + json.dumps(entry) + "\n")
    assert journal.fold(store) == FoldReport(1, 1)
    assert list(store.records("here")) == [make_record(1)]


@pytest.mark.parametrize(
    ("field", "value"), [("name", 3), ("key", "\ud800"), ("flops", 10**400), ("flops", float("nan"))]
)
def test_line_with_a_value_that_no_workload_has_costs_that_line_only(
    journal: Journal, store: RecordStore, workload: Workload, make_record, field: str, value: object
) -> None:
    journal.append([workload], [make_record(1)])
    entry = json.loads(journal.path.read_text())
    told = entry["workloads"][0]
    (told["summary"] if field == "flops" else told)[field] = value
    journal.path.write_text(journal.path.read_text() + json.dumps(entry) + "\n")
    assert journal.fold(store) == FoldReport(1, 1)


def test_folding_again_after_a_crash_changes_nothing(
    journal: Journal, store: RecordStore, workload: Workload, make_record
) -> None:
    journal.append([workload], [make_record(1), make_record(2)])
    content = journal.path.read_bytes()
    journal.fold(store)
    journal.path.write_bytes(content)  # as if killed between storing and removing
    assert journal.fold(store) == FoldReport(0, 0)
    assert len(list(store.records("here"))) == 2


def test_journal_stays_when_the_store_is_damaged(
    journal: Journal, store: RecordStore, workload: Workload, make_record
) -> None:
    store.append([workload], [make_record(0)])
    store.files("here")[0].write_bytes(b"")
    journal.append([workload], [make_record(1)])
    with pytest.raises(BadInput):
        journal.fold(store)
    assert journal.path.exists()
