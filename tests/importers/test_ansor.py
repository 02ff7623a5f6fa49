"""Lines of auto_scheduler logs."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from importers.conftest import ansor_line
from tcl.importers.ansor import AnsorReader


def test_line_becomes_workload_and_record() -> None:
    workload, record = AnsorReader("k80").read(ansor_line(3).encode())
    assert (workload.source, workload.name, workload.program) == (
        "ansor",
        "matmul_layer",
        '["matmul_layer", 128, 64, 256]',
    )
    assert workload.summary.op == "matmul"
    assert record.device == "k80" and record.workload == workload.key and record.origin == "import"
    assert record.run_seconds == (4e-3, 6e-3) and record.error is None
    assert record.timestamp == 1600000003
    assert json.loads(record.trace) == json.loads(ansor_line(3))["i"][1][1]
    assert " " not in record.trace


@pytest.mark.parametrize(
    ("error", "cause"), [(2, "build"), (4, "run"), (6, "timeout"), (7, "timeout"), (99, "import")]
)
def test_failure_keeps_its_cause(error: int, cause: str) -> None:
    _, record = AnsorReader("k80").read(ansor_line(1, error=error).encode())
    assert record.error is not None and record.error.startswith(f"{cause}: ")
    assert record.run_seconds == ()


def test_huge_time_without_error_number_is_a_failure() -> None:
    line = ansor_line(1).replace("[0.002, 0.003]", "[1e+10]")
    assert AnsorReader("k80").read(line.encode())[1].error == "import: no usable run time"


def test_key_is_the_same_on_every_device() -> None:
    key = json.dumps(["conv2d_layer", 1, 8, 9, 9, 8, 3, 3, 1, "SAME"])
    same = json.dumps(["conv2d_layer", 1, 8, 9, 9, 8, 3, 3, 1, 1])
    other = json.dumps(["conv2d_layer", 1, 8, 9, 9, 8, 3, 3, 1, 0])
    keys = [
        AnsorReader(d).read(ansor_line(0, key=k).encode())[0].key
        for d, k in (("a", key), ("b", same), ("b", other))
    ]
    assert keys[0] == keys[1] != keys[2]


@given(st.data())
def test_mangled_line_is_read_or_refused(data: st.DataObject) -> None:
    line = ansor_line(1).encode()
    start = data.draw(st.integers(0, len(line)))
    mangled = line[:start] + data.draw(st.binary(max_size=6)) + line[start + data.draw(st.integers(0, 40)) :]
    with contextlib.suppress(ValueError, TypeError, KeyError, IndexError, AttributeError):
        AnsorReader("k80").read(mangled)
