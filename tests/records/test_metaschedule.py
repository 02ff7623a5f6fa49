"""Export to MetaSchedule's JSON database."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tcl.devices.device import Device
from tcl.errors import BadInput
from tcl.features.workload import WorkloadSummary
from tcl.importers.importer import import_logs
from tcl.records.metaschedule import RECORD_FILE, WORKLOAD_FILE, ExportReport, export_database
from tcl.records.record import MeasureRecord, Workload, compact_json
from tcl.records.store import RecordStore

HERE = Device("here", {"kind": "llvm", "mcpu": "znver4", "num-cores": 2})
SUMMARY = WorkloadSummary("matmul", "float32", 0, 0, 0, (64, 64), (64,), 1)


@pytest.fixture
def store(tmp_path: Path, workload: Workload, make_record) -> RecordStore:
    store = RecordStore(tmp_path / "data")
    ansor = Workload.create("ansor", "relu", '["relu_layer", 4]', SUMMARY)
    records = [make_record(number) for number in range(20)]
    foreign = replace(records[0], workload=ansor.key, trace='[["AN",0,0,5]]')
    store.append([workload, ansor], [*records, foreign, make_record(50, "faster")])
    return store


def test_database_holds_only_the_devices_successes(
    store: RecordStore, workload: Workload, tmp_path: Path
) -> None:
    report = export_database(store, HERE, tmp_path / "db")
    assert report == ExportReport(workloads=1, records=18, failures=2, foreign=1)
    assert (tmp_path / "db" / WORKLOAD_FILE).read_text() == workload.program + "\n"
    lines = (tmp_path / "db" / RECORD_FILE).read_text().splitlines()
    expected = [r for r in store.records("here") if r.error is None and r.workload == workload.key]
    assert len(lines) == len(expected) == 18
    for line, record in zip(lines, expected, strict=True):
        index, (trace, seconds, target, arguments) = json.loads(line)
        assert index == 0 and arguments is None
        assert compact_json(trace) == record.trace
        assert tuple(seconds) == record.run_seconds
        assert target == HERE.target


def test_import_gives_the_exported_records_back(
    store: RecordStore, workload: Workload, tmp_path: Path
) -> None:
    export_database(store, HERE, tmp_path / "db")
    copy = RecordStore(tmp_path / "copy" / "data")
    report = import_logs([tmp_path / "db"], HERE, copy)
    assert (report.records, report.failures, report.broken, report.new) == (18, 0, 0, 18)
    original = [r for r in store.records("here") if r.error is None and r.workload == workload.key]
    for ours, theirs in zip(original, copy.records("here"), strict=True):
        assert (ours.trace, ours.run_seconds, ours.workload) == (
            theirs.trace,
            theirs.run_seconds,
            theirs.workload,
        )
    assert copy.workloads("here")[workload.key].program == workload.program
    export_database(copy, HERE, tmp_path / "again")
    assert (tmp_path / "again" / RECORD_FILE).read_bytes() == (tmp_path / "db" / RECORD_FILE).read_bytes()


def test_keys_pick_workloads(store: RecordStore, tmp_path: Path) -> None:
    assert export_database(store, HERE, tmp_path / "db", keys=set()) == ExportReport(0, 0, 0, 0)


def test_folder_with_other_files_is_left_alone(store: RecordStore, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="holds other files"):
        export_database(store, HERE, tmp_path / "precious")
    assert (tmp_path / "precious" / "notes.txt").read_text() == "mine"


def test_tvm_finds_the_best_exported_record(tmp_path: Path) -> None:
    from tcl.compiler.bootstrap import import_tvm

    tvm = import_tvm()
    from tvm import te
    from tvm.s_tir import Schedule
    from tvm.s_tir import meta_schedule as ms

    a, b = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    program = tvm.IRModule({"main": te.create_prim_func([a, b, c])})
    line = [str(part) for part in ms.database.Workload(program).as_json()]
    workload = Workload.create("metaschedule", "matmul", compact_json(line), SUMMARY)
    store = RecordStore(tmp_path / "data")
    records = []
    for at, (tile, seconds) in enumerate(((4, 0.5), (8, 0.25), (16, 0.75))):
        trace = [
            [
                ["GetSBlock", [], ["C", "main"], ["b0"]],
                ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
                ["SamplePerfectTile", ["l1"], [2, 64], ["v4", "v5"]],
                ["Split", ["l1", "v4", "v5"], [1, 0], ["l6", "l7"]],
            ],
            [[2, [64 // tile, tile]]],
        ]
        records.append(
            MeasureRecord(
                "here", workload.key, compact_json(trace), (seconds,), 1.0, None, at, "", 1, "random"
            )
        )
    store.append([workload], records)
    export_database(store, HERE, tmp_path / "db")
    database = ms.database.JSONDatabase(
        str(tmp_path / "db" / WORKLOAD_FILE), str(tmp_path / "db" / RECORD_FILE)
    )
    assert len(database) == 3
    best = database.query_tuning_record(program, tvm.target.Target(HERE.target), "main")
    assert [float(second) for second in best.run_secs] == [0.25]
    schedule = Schedule(program)
    best.trace.apply_to_schedule(schedule, remove_postproc=False)
    extents = [int(schedule.get(loop).extent) for loop in schedule.get_loops(schedule.get_sblock("C"))]
    assert extents == [8, 8, 64, 64]
