"""The Parquet store."""

import multiprocessing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tcl.errors import BadInput
from tcl.records import store as store_module
from tcl.records.record import MeasureRecord, Workload
from tcl.records.store import RecordStore
from tcl.records.traces import HOLE


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "data")


def test_records_come_back_as_they_were(store: RecordStore, workload: Workload, make_record) -> None:
    records = [make_record(number) for number in range(50)]
    assert store.append([workload], records) == 50
    assert list(store.records("here")) == records
    assert store.workloads("here") == {workload.key: workload}
    assert store.devices() == ["here"]


def test_order_is_kept_over_many_appends_in_one_file(
    store: RecordStore, workload: Workload, make_record
) -> None:
    for start in range(0, 30, 10):
        store.append([workload], [make_record(number) for number in range(start, start + 10)])
    assert [record.timestamp - 1.7e9 for record in store.records("here")] == list(range(30))
    assert len(store.files("here")) == 1


def test_the_same_content_again_changes_nothing(store: RecordStore, workload: Workload, make_record) -> None:
    records = [make_record(number) for number in range(20)]
    store.append([workload], records)
    before = {path: path.read_bytes() for path in store.root.rglob("*.parquet")}
    assert store.append([workload], [*records, replace(records[0], origin="import")]) == 0
    assert {path: path.read_bytes() for path in store.root.rglob("*.parquet")} == before
    assert store.append([workload], [records[3], make_record(20), make_record(20)]) == 1


def test_devices_do_not_see_each_other(store: RecordStore, workload: Workload, make_record) -> None:
    store.append([workload], [make_record(1, "a"), make_record(2, "b"), make_record(3, "a")])
    assert store.devices() == ["a", "b"]
    assert [record.timestamp for record in store.records("b")] == [1.7e9 + 2]
    assert list(store.records("c")) == [] and store.workloads("c") == {}


def test_keys_pick_records(store: RecordStore, workload: Workload, make_record) -> None:
    other = replace(make_record(2), workload="ffff")
    store.append([workload], [make_record(1), other])
    assert list(store.records("here", {"ffff"})) == [other]
    assert list(store.records("here", set())) == []


def test_status_counts(store: RecordStore, workload: Workload, make_record) -> None:
    store.append([workload], [make_record(number) for number in range(20)])
    status = store.status("here")
    assert (status.records, status.failures, status.workloads, status.files) == (20, 2, 1, 1)
    assert status.bytes == store.files("here")[0].stat().st_size


def test_ten_thousand_records_cost_well_under_a_megabyte(
    store: RecordStore, workload: Workload, make_record
) -> None:
    store.append([workload], [make_record(number) for number in range(10_000)])
    assert store.status("here").bytes < 800_000


def test_a_new_file_begins_when_the_last_is_large(
    store: RecordStore, workload: Workload, make_record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "ROLL_BYTES", 1)
    records = [make_record(number) for number in range(6)]
    for start in (0, 2, 4):
        store.append([workload], records[start : start + 2])
    assert [path.name for path in store.files("here")] == [f"records-00{n}.parquet" for n in range(3)]
    assert list(store.records("here")) == records
    assert store.append([workload], records) == 0


def test_files_go_by_number_beyond_a_thousand(
    store: RecordStore, workload: Workload, make_record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "ROLL_BYTES", 1)
    records = [make_record(number) for number in range(3)]
    store.append([workload], [records[0]])
    store.files("here")[0].rename(store.root / "here" / "records-999.parquet")
    for record in records[1:]:
        store.append([workload], [record])
    assert [path.stem for path in store.files("here")] == ["records-999", "records-1000", "records-1001"]
    assert list(store.records("here")) == records


@pytest.mark.parametrize("name", ["records-abc.parquet", "records-1.parquet", "records-000 (2).parquet"])
def test_file_with_another_name_is_named(
    store: RecordStore, workload: Workload, make_record, name: str
) -> None:
    store.append([workload], [make_record(0)])
    (store.root / "here" / name).write_bytes(store.files("here")[0].read_bytes())
    for use in (lambda: store.status("here"), lambda: store.append([workload], [make_record(1)])):
        with pytest.raises(BadInput, match=r"records-.*is no file of the store"):
            use()


def test_folder_that_can_be_no_devices_is_named(store: RecordStore, workload: Workload, make_record) -> None:
    store.append([workload], [make_record(0)])
    (store.root / "here").rename(store.root / "Bad Name")
    with pytest.raises(BadInput, match="data/Bad Name: 'Bad Name' is no device name"):
        store.devices()


def test_nothing_is_kept_when_a_writer_fails(store: RecordStore, workload: Workload, make_record) -> None:
    store.append([workload], [make_record(0)])
    with pytest.raises(RuntimeError), store.writer("here") as writer:
        writer.add([replace(workload, key="new")], [make_record(1)])
        raise RuntimeError
    assert list(store.records("here")) == [make_record(0)]
    assert not list((store.root / "here").glob(".*"))
    assert store.append([workload], [make_record(1)]) == 1


def test_what_a_killed_writer_left_does_no_harm(store: RecordStore, workload: Workload, make_record) -> None:
    store.append([workload], [make_record(0)])
    left = store.root / "here" / ".records-000.parquet.tmp"
    left.write_bytes(b"half")
    assert list(store.records("here")) == [make_record(0)]
    store.append([workload], [make_record(1)])
    assert not left.exists() and len(list(store.records("here"))) == 2


@pytest.mark.parametrize("damage", ["cut", "text", "empty"])
def test_damaged_file_is_named(store: RecordStore, workload: Workload, make_record, damage: str) -> None:
    store.append([workload], [make_record(number) for number in range(50)])
    path = store.files("here")[0]
    content = path.read_bytes()
    path.write_bytes({"cut": content[: len(content) // 2], "text": b"hello" * 100, "empty": b""}[damage])
    for use in (
        lambda: list(store.records("here")),
        lambda: store.append([workload], [make_record(99)]),
        lambda: store.status("here"),
    ):
        with pytest.raises(BadInput, match=r"records-000\.parquet"):
            use()


def test_record_whose_trace_lost_a_number_is_named(
    store: RecordStore, workload: Workload, make_record
) -> None:
    store.append([workload], [make_record(0)])
    path = store.files("here")[0]
    table = pq.read_table(path)
    for name, text in (("skeleton", f"a{HOLE}b{HOLE}"), ("decisions", "1")):
        column = pa.array([text]).cast(table.schema.field(name).type)
        table = table.set_column(table.schema.names.index(name), table.schema.field(name), column)
    pq.write_table(table, path)
    with pytest.raises(BadInput, match=r"records-000\.parquet"):
        list(store.records("here"))


def test_damaged_workloads_are_named(store: RecordStore, workload: Workload, make_record) -> None:
    store.append([workload], [make_record(0)])
    store.workloads_path.write_bytes(b"PAR1 or not")
    with pytest.raises(BadInput, match=r"workloads\.parquet"):
        store.workloads("here")


def append_alone(root: Path, workload: Workload, records: list[MeasureRecord]) -> None:
    for record in records:
        RecordStore(root).append([workload], [record])


def test_two_processes_append_at_once(store: RecordStore, workload: Workload, make_record) -> None:
    context = multiprocessing.get_context("fork")
    parts = [[make_record(number) for number in range(start, start + 5)] for start in (0, 5)]
    processes = [context.Process(target=append_alone, args=(store.root, workload, part)) for part in parts]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert {record.timestamp for record in store.records("here")} == {1.7e9 + number for number in range(10)}
