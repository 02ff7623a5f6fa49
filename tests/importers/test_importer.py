"""Importing logs into the store."""

import gzip
import json
from pathlib import Path

import pytest

from importers.conftest import ansor_line
from tcl.devices.device import Device
from tcl.errors import BadInput
from tcl.importers.importer import find_logs, import_logs
from tcl.records.store import RecordStore

K80 = Device("k80", {"kind": "cuda"})
TRACE = [
    [["GetBlock", [], ["T_relu", "main"], ["b0"]], ["SampleCategorical", [], [[1, 2], [0.5, 0.5]], ["v1"]]],
    [[1, 0]],
]


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "data")


def test_every_line_is_accounted_for(store: RecordStore, tmp_path: Path, ansor_log: str) -> None:
    log = tmp_path / "a.log"
    log.write_text(ansor_log + "\n" + ansor_line(200)[:50] + "\n")
    told: list[int] = []
    report = import_logs([log], K80, store, progress=told.append)
    assert (report.files, report.lines, report.records, report.failures, report.broken) == (1, 101, 95, 5, 1)
    assert report.lines == report.records + report.failures + report.broken
    assert report.new == 100 and report.workloads == 1
    assert report.broken_lines[0].startswith(f"{log}:102: ")
    assert told[-1] == 101
    status = store.status("k80")
    assert (status.records, status.failures) == (100, 5)


def test_importing_again_changes_nothing(store: RecordStore, tmp_path: Path, ansor_log: str) -> None:
    (tmp_path / "a.log").write_text(ansor_log)
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(ansor_log.encode()))
    import_logs([tmp_path / "a.log"], K80, store)
    before = store.files("k80")[0].read_bytes()
    report = import_logs([tmp_path / "b.log.gz"], K80, store)
    assert (report.lines, report.new) == (100, 0)
    assert store.files("k80")[0].read_bytes() == before


def test_too_many_broken_lines_store_nothing(store: RecordStore, tmp_path: Path, ansor_log: str) -> None:
    log = tmp_path / "a.log"
    log.write_text(ansor_log + "broken\n" * 3)
    with pytest.raises(BadInput, match=r"3 of 103 lines are broken.*a\.log:101"):
        import_logs([log], K80, store)
    assert store.devices() == [] and not store.workloads_path.exists()
    assert import_logs([log], K80, store, tolerate=0.05).broken == 3
    assert store.status("k80").records == 100


HUGE = "9" * 400


@pytest.mark.parametrize(
    ("usual", "broken"),
    [
        ("[0.002, 0.003]", f"[{HUGE}]"),
        ("1600000001", HUGE),
        ("1600000001", "NaN"),
        ("1600000001", '"nan"'),
        ("0, 128, [2, 1, 4]", f"0, {HUGE}, [2, 1, 4]"),
        ("0, 128, [2, 1, 4]", "0, 128, [2, 1, 1e400]"),
        ('"v0.6"', r'"\ud800"'),
    ],
    ids=["seconds", "time", "no time", "no time as text", "extent", "factor", "half a character"],
)
def test_line_with_a_value_that_no_record_has_is_broken(
    store: RecordStore, tmp_path: Path, usual: str, broken: str
) -> None:
    log = tmp_path / "a.log"
    log.write_text(ansor_line(0) + "\n" + ansor_line(1).replace(usual, broken) + "\n")
    report = import_logs([log], K80, store, tolerate=0.5)
    assert (report.records, report.failures, report.broken) == (1, 0, 1)
    assert report.broken_lines[0].startswith(f"{log}:2: ")


def write_database(folder: Path, lines: list[str]) -> None:
    folder.mkdir()
    (folder / "database_workload.json").write_text('["11","QUFB"]\nbroken\n')
    (folder / "database_tuning_record.json.gz").write_bytes(gzip.compress("\n".join(lines).encode()))


def test_metaschedule_database_is_recognised(store: RecordStore, tmp_path: Path) -> None:
    arguments = [["TENSOR", "float32", [4, 8]], ["TENSOR", "float32", [4, 8]]]
    lines = [
        json.dumps([0, [TRACE, [0.5, 0.25], {"kind": "cuda"}, arguments]]),
        json.dumps([0, [TRACE, [1e10], {"kind": "cuda"}, arguments]]),
        json.dumps([0, [TRACE, None, None, None]]),
        json.dumps([1, [TRACE, [1.0], None, None]]),
        json.dumps([0, [TRACE, [int(HUGE)], None, None]]),
    ]
    write_database(tmp_path / "db", lines)
    report = import_logs([tmp_path / "db"], K80, store, tolerate=0.5)
    assert (report.files, report.lines, report.records, report.failures, report.broken) == (1, 5, 1, 2, 2)
    assert "workload 1 is missing or broken" in report.broken_lines[0]
    (workload,) = store.workloads("k80").values()
    assert (workload.program, workload.name, workload.summary.op) == (
        '["11","QUFB"]',
        "T_relu",
        "elementwise",
    )
    assert workload.summary.spatial == (4, 8)
    record = next(store.records("k80"))
    assert json.loads(record.trace) == TRACE and record.run_seconds == (0.5, 0.25)


def test_database_needs_its_workloads(store: RecordStore, tmp_path: Path) -> None:
    write_database(tmp_path / "db", [json.dumps([0, [TRACE, [1.0], None, None]])])
    (tmp_path / "db" / "database_workload.json").unlink()
    with pytest.raises(BadInput, match="needs the workload file"):
        import_logs([tmp_path / "db"], K80, store)


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_log_without_lines_is_refused(store: RecordStore, tmp_path: Path, content: str) -> None:
    (tmp_path / "a.log").write_text(content)
    with pytest.raises(BadInput, match="no line"):
        import_logs([tmp_path / "a.log"], K80, store)


def test_wrong_paths_and_options_are_refused(store: RecordStore, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        import_logs([tmp_path / "nowhere.log"], K80, store)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="holds no log"):
        import_logs([tmp_path / "empty"], K80, store)
    with pytest.raises(BadInput, match="format"):
        import_logs([tmp_path], K80, store, format="csv")
    with pytest.raises(BadInput, match="between 0 and 1"):
        import_logs([tmp_path], K80, store, tolerate=5)


def test_folders_are_searched_and_files_taken_once(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("b.log.xz", "a.json", "in/c.log", "notes.md", ".hidden.log"):
        (tmp_path / name).write_text("x")
    found = find_logs([tmp_path, tmp_path / "a.json"])
    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["a.json", "b.log.xz", "in/c.log"]
