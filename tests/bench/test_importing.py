"""The benchmark of importing."""

from pathlib import Path

import pytest
from importers.conftest import ansor_line

from tcl.bench.importing import bench_import, lines
from tcl.errors import BadInput
from tcl.settings import load_settings


def test_import_is_measured_once_and_in_copies(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(ansor_line(number) + "\n" for number in range(30)) + "no record\n")
    results = bench_import(load_settings(tmp_path, environ={}), [log], copies=3)
    few, many = results["costs"]
    assert (few["copies"], few["lines"], few["broken"]) == (1, 31, 1)
    assert (many["copies"], many["lines"], many["broken"]) == (3, 93, 3)
    assert all(cost["lines_per_second"] > 0 and cost["peak_bytes"] > 1e6 for cost in (few, many))
    assert len(lines(results)) == 4
    assert not (tmp_path / ".tcl" / "bench" / "import").exists()


def test_import_benchmark_is_refused_without_logs(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        bench_import(load_settings(tmp_path, environ={}), [tmp_path / "none.log"], copies=2)
