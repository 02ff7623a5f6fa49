"""How records and workloads lie in Parquet files."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tcl.errors import BadInput
from tcl.features.workload import WorkloadSummary
from tcl.records.record import MeasureRecord, Workload
from tcl.records.traces import TraceParts, join_trace, split_trace

ROWS_PER_GROUP = 20_000
_SHARED = pa.dictionary(pa.int32(), pa.string())

RECORD_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("workload", _SHARED),
        ("skeleton", _SHARED),
        ("decisions", pa.string()),
        ("tail", _SHARED),
        ("tail_numbers", pa.string()),
        ("run_seconds", pa.list_(pa.float64())),
        ("reference_seconds", pa.float64()),
        ("error", _SHARED),
        ("timestamp", pa.float64()),
        ("tvm_version", _SHARED),
        ("feature_version", pa.int16()),
        ("origin", _SHARED),
    ]
)
_OPTIONAL = ("reference_seconds", "error")
WORKLOAD_SCHEMA = pa.schema([(name, pa.string()) for name in ("key", "source", "name", "program", "summary")])


class RecordFile:
    """Writes one file of records, a row group at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: IO[bytes] = path.open("wb")
        self._writer = pq.ParquetWriter(
            self._stream,
            RECORD_SCHEMA,
            compression="zstd",
            compression_level=9,
            dictionary_pagesize_limit=8 << 20,
        )

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table.unify_dictionaries(), row_group_size=ROWS_PER_GROUP)

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._stream.tell()

    def close(self) -> None:
        self._writer.close()
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()


def record_table(records: Sequence[MeasureRecord], ids: Sequence[int]) -> pa.Table:
    """Records as a table of RECORD_SCHEMA; `ids` are their content ids."""
    parts = [split_trace(record.trace) for record in records]
    columns: dict[str, list[Any]] = {
        "id": list(ids),
        "skeleton": [part.skeleton for part in parts],
        "decisions": [part.decisions for part in parts],
        "tail": [part.tail for part in parts],
        "tail_numbers": [part.tail_numbers for part in parts],
    }
    arrays = []
    for field in RECORD_SCHEMA:
        values = columns.get(field.name)
        if values is None:
            values = [getattr(record, field.name) for record in records]
        if field.type == _SHARED:
            arrays.append(pa.array(values, pa.string()).dictionary_encode())
        else:
            arrays.append(pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=RECORD_SCHEMA)


def table_records(device: str, table: pa.Table) -> Iterator[MeasureRecord]:
    """The records of a table of RECORD_SCHEMA."""
    columns = {name: column_values(table.column(name)) for name in table.schema.names}
    for row in range(table.num_rows):
        trace = join_trace(
            TraceParts(*(columns[name][row] for name in ("skeleton", "decisions", "tail", "tail_numbers")))
        )
        yield MeasureRecord(
            device=device,
            workload=columns["workload"][row],
            trace=trace,
            run_seconds=tuple(columns["run_seconds"][row]),
            reference_seconds=columns["reference_seconds"][row],
            error=columns["error"][row],
            timestamp=columns["timestamp"][row],
            tvm_version=columns["tvm_version"][row],
            feature_version=columns["feature_version"][row],
            origin=columns["origin"][row],
        )


def column_values(column: pa.ChunkedArray) -> list[Any]:
    """A column as Python values; equal strings of a dictionary are one object."""
    values: list[Any] = []
    for chunk in column.chunks:
        if isinstance(chunk, pa.DictionaryArray):
            dictionary = [*chunk.dictionary.to_pylist(), None]
            values += [dictionary[index] for index in chunk.indices.fill_null(-1).to_pylist()]
        else:
            values += chunk.to_pylist()
    return values


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turns what Parquet says of a damaged file into BadInput naming the file."""
    try:
        yield
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"{path} is not a readable Parquet file of records ({reason}); restore it") from error


def read_tables(
    path: Path, columns: Sequence[str] | None = None, keys: Collection[str] | None = None
) -> Iterator[pa.Table]:
    """The row groups of a file of records, of `keys` only where given; groups without any are not read.

    Raises
    ------
    BadInput
        When the file is damaged.
    """
    wanted = None if keys is None else pa.array(sorted(keys), pa.string())
    with readable(path), pq.ParquetFile(path) as source:
        _demand_schema(source.schema_arrow, RECORD_SCHEMA)
        for group in range(source.num_row_groups):
            if wanted is None:
                yield _whole(source.read_row_group(group, columns=columns and list(columns)))
                continue
            workload = source.read_row_group(group, columns=["workload"]).column(0).cast(pa.string())
            mask = pc.is_in(workload, wanted)
            if pc.any(mask).as_py():
                yield _whole(source.read_row_group(group, columns=columns and list(columns)).filter(mask))


def _demand_schema(found: pa.Schema, expected: pa.Schema) -> None:
    for field in expected:
        index = found.get_field_index(field.name)
        if index < 0 or found.field(index).type != field.type:
            raise ValueError(f"the column {field.name} is missing or of another type")


def _whole(table: pa.Table) -> pa.Table:
    """Refuse a table with holes where every record has a value."""
    for name in table.schema.names:
        if name not in _OPTIONAL and table.column(name).null_count:
            raise ValueError(f"the column {name} has holes")
    return table


def write_workloads(path: Path, workloads: Iterable[Workload]) -> None:
    """Writes workloads to a new file."""
    rows = [
        {
            "key": workload.key,
            "source": workload.source,
            "name": workload.name,
            "program": workload.program,
            "summary": json.dumps(workload.summary.to_json()),
        }
        for workload in workloads
    ]
    table = pa.Table.from_pylist(rows, schema=WORKLOAD_SCHEMA)
    pq.write_table(table, path, compression="zstd", compression_level=15)


def read_workloads(path: Path) -> dict[str, Workload]:
    """The workloads of a file by key; none when there is no file.

    Raises
    ------
    BadInput
        When the file is damaged.
    """
    if not path.exists():
        return {}
    with readable(path):
        _demand_schema(pq.read_schema(path), WORKLOAD_SCHEMA)
        rows = _whole(pq.read_table(path)).to_pylist()
        return {
            row["key"]: Workload(
                row["key"],
                row["source"],
                row["name"],
                row["program"],
                WorkloadSummary.from_json(json.loads(row["summary"])),
            )
            for row in rows
        }
