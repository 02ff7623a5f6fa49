"""Lines of plain and compressed files."""

import gzip
import lzma
from pathlib import Path

import pytest
import zstandard

from tcl.errors import BadInput
from tcl.importers import reading
from tcl.importers.reading import plain_name, read_lines

TEXT = b"one\n\n  \ntwo\nthree"
PACKERS = {
    "log": lambda data: data,
    "log.gz": gzip.compress,
    "log.xz": lzma.compress,
    "log.zst": lambda data: zstandard.compress(data[:6]) + zstandard.compress(data[6:]),
}


@pytest.mark.parametrize("suffix", PACKERS)
def test_lines_are_numbered_whatever_the_compression(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(PACKERS[suffix](TEXT))
    assert [(n, line.strip()) for n, line in read_lines(path)] == [(1, b"one"), (4, b"two"), (5, b"three")]
    assert plain_name(path) == "a.log"


@pytest.mark.parametrize("suffix", ["log.gz", "log.xz"])
def test_cut_compressed_file_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(PACKERS[suffix](bytes(range(256)) * 400)[:-10])
    with pytest.raises(BadInput, match=f"a.{suffix}"):
        list(read_lines(path))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere"):
        list(read_lines(tmp_path / "nowhere"))


def test_endless_line_is_cut_and_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LONGEST_LINE", 8)
    path = tmp_path / "a.log"
    path.write_bytes(b"short\n" + b"x" * 100 + b"\nnext\n")
    assert list(read_lines(path)) == [(1, b"short\n"), (2, b"x" * 8), (3, b"next\n")]
