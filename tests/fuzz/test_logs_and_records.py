"""Damaged tuning logs and Parquet records."""

from __future__ import annotations

import functools
import gzip
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from fuzz.conftest import FUZZED, Folder
from fuzz.mutations import VALUES, spoilt_bytes, spoilt_json
from tcl.devices.device import Device
from tcl.features.dataset import load_dataset
from tcl.importers.importer import import_logs
from tcl.records.store import RecordStore

DEVICE = Device("board", {"kind": "llvm", "num-cores": 4})
KEY = '["matmul",[1,64],[64,32]]'
STEPS = [["SP", 2, 0, 64, [4, 2], 1], ["RE", 2, [0, 2, 1]], ["PR", 2, 0, "auto_unroll_max_step$64"]]
ANSOR = {"i": [[KEY, "llvm -num-cores 4"], [[], STEPS]], "r": [[1e-3, 2e-3], 0, 0.1, 1600000000], "v": "v0.6"}
INSTRUCTIONS = [
    ["GetSBlock", [], ["matmul", "main"], ["b0"]],
    ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
    ["SamplePerfectTile", ["l1"], [4, 64], ["v4", "v5", "v6", "v7"]],
    ["Split", ["l1", "v4", "v5", "v6", "v7"], [True, False], ["l8", "l9", "l10", "l11"]],
    ["EnterPostproc", [], [], []],
]
ARGUMENTS = [["TENSOR", "float32", [1, 64]], ["TENSOR", "float32", [64, 32]], ["TENSOR", "float32", [1, 32]]]
METASCHEDULE = [0, [[INSTRUCTIONS, [[2, [1, 1, 1, 1]]]], [1e-3], {"kind": "llvm"}, ARGUMENTS]]
WORKLOAD = ["123456789", "AAAA"]


def lines_of(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def read_all(store: RecordStore) -> None:
    """What status, measuring, distilling and compiling read of a store."""
    for device in store.devices():
        store.status(device)
        store.workloads(device)
        list(store.records(device))
    load_dataset(store, [DEVICE])


def attempt(folder: Folder, files: dict[str, bytes]) -> None:
    logs, data = folder.path / "logs", folder.path / "data"
    for path in (logs, data):
        shutil.rmtree(path, ignore_errors=True)
    logs.mkdir()
    for name, content in files.items():
        (logs / name).write_bytes(content)
    with folder.guarded():
        import_logs([logs], DEVICE, RecordStore(data), tolerate=1.0)
        read_all(RecordStore(data))


@FUZZED
@given(st.lists(spoilt_json(ANSOR), min_size=1, max_size=3))
def test_ansor_log_is_read_or_refused_when_its_values_are_wrong(folder: Folder, values: list[Any]) -> None:
    attempt(folder, {"a.log": lines_of(ANSOR, *values)})


@FUZZED
@given(st.lists(spoilt_json(METASCHEDULE), min_size=1, max_size=3), spoilt_json(WORKLOAD))
def test_metaschedule_log_is_read_or_refused_when_its_values_are_wrong(
    folder: Folder, values: list[Any], workload: Any
) -> None:
    files = {"database_tuning_record.json": lines_of(METASCHEDULE, *values)}
    attempt(folder, files | {"database_workload.json": lines_of(WORKLOAD, workload)})


@FUZZED
@given(spoilt_bytes(lines_of(ANSOR, ANSOR)), spoilt_bytes(gzip.compress(lines_of(ANSOR), mtime=0)))
def test_log_is_read_or_refused_when_bytes_are_damaged(folder: Folder, plain: bytes, packed: bytes) -> None:
    attempt(folder, {"a.log": plain, "b.log.gz": packed})


@functools.cache
def right_store() -> dict[str, bytes]:
    """The files of a right store."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "right.log")
        log.write_bytes(lines_of(ANSOR))
        store = RecordStore(Path(folder, "data"))
        import_logs([log], DEVICE, store)
        return {
            path.relative_to(store.root).as_posix(): path.read_bytes()
            for path in store.root.rglob("*.parquet")
        }


def write_store(folder: Folder, files: dict[str, bytes]) -> RecordStore:
    root = folder.path / "store"
    shutil.rmtree(root, ignore_errors=True)
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return RecordStore(root)


@FUZZED
@given(data=st.data())
def test_parquet_records_are_read_or_refused_when_bytes_are_damaged(
    folder: Folder, data: st.DataObject
) -> None:
    right = right_store()
    name = data.draw(st.sampled_from(sorted(right)))
    store = write_store(folder, right | {name: data.draw(spoilt_bytes(right[name]))})
    with folder.guarded():
        read_all(store)


@FUZZED
@given(data=st.data())
def test_parquet_records_are_read_or_refused_when_columns_are_wrong(
    folder: Folder, data: st.DataObject
) -> None:
    right = right_store()
    name = data.draw(st.sampled_from(sorted(right)))
    store = write_store(folder, right)
    path = Path(store.root, name)
    table = pq.read_table(path)
    column = data.draw(st.sampled_from(table.schema.names))
    values = [data.draw(VALUES) for _ in range(table.num_rows)]
    try:
        changed = pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        changed = pa.array([str(ascii(value)) for value in values])
    position = table.schema.names.index(column)
    if data.draw(st.integers(0, 4)) == 0:
        table = table.remove_column(position)
    else:
        table = table.set_column(position, column, changed)
    try:
        pq.write_table(table, path)
    except pa.ArrowException:
        return  # Parquet has no such type
    with folder.guarded():
        read_all(store)
