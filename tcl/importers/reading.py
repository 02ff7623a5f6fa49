"""Lines of log files, plain or compressed, without ever holding a whole file."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import zlib
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from tcl.errors import BadInput

LONGEST_LINE = 64 << 20
"""A longer line is no record, but would fill the memory."""

_DIGITS = 18
"""Integers of so many characters fit into 64 bits."""

SUFFIXES = (".gz", ".xz", ".zst")


def plain_name(path: Path) -> str:
    """The file's name without the suffix of its compression."""
    return path.stem if path.suffix in SUFFIXES else path.name


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers, from 1; blank lines are left out.

    A line longer than LONGEST_LINE comes back as its beginning only. Compression is recognised by content.

    Raises
    ------
    BadInput
        When the file cannot be read or its compressed content is damaged.
    """
    import zstandard

    try:
        with path.open("rb") as raw, _decompress(raw) as stream:
            number = 0
            while line := stream.readline(LONGEST_LINE):
                number += 1
                rest = line
                while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
                    rest = stream.readline(LONGEST_LINE)
                if line.strip():
                    yield number, line
    except (OSError, EOFError, lzma.LZMAError, zlib.error, zstandard.ZstdError) as error:
        raise BadInput(f"{path} cannot be read to its end: {error or type(error).__name__}") from error


def parse_line(line: bytes) -> Any:
    """A line of JSON whose numbers are finite and fit into 64 bits.

    Raises
    ------
    ValueError, RecursionError
        When it is something else.
    """
    return json.loads(line, parse_int=_integer, parse_float=_number, parse_constant=_number)


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"the number {text[:_DIGITS]}... is too large")
    return int(text)


def _number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"the number {text[:_DIGITS]} is not finite")
    return number


def _decompress(raw: io.BufferedReader) -> io.BufferedIOBase:
    import zstandard

    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw, mode="rb")
    if magic.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(raw, "rb")
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        frames = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        return io.BufferedReader(frames, 1 << 20)
    return raw
