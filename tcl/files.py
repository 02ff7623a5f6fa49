"""Files that appear whole or not at all, locks that name their holder, and content hashes."""

import contextlib
import hashlib
import json
import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tcl.errors import WorkFailed

_CHUNK = 1 << 20


def atomic_write(path: Path | str, content: bytes | str) -> Path:
    """Write `content` to `path` so that a reader, or a crash, sees the old file or the new one.

    Parameters
    ----------
    path
        The file to write; missing parent folders are made.
    content
        Bytes, or text that is written as UTF-8.

    Returns
    -------
    Path
        `path`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    temporary = _temporary_name(path)
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def atomic_json(path: Path | str, value: Any) -> Path:
    """Write `value` to `path` as indented JSON, atomically (see `atomic_write`)."""
    return atomic_write(path, json.dumps(value, indent=2) + "\n")


@contextlib.contextmanager
def atomic_directory(target: Path | str) -> Iterator[Path]:
    """Build a folder beside `target` and move it into place when the block ends without an error.

    An existing `target` is replaced: it is moved aside first and deleted after the new one is in place,
    so at no moment do its files mix with the new ones. On an error `target` stays as it was.

    Yields
    ------
    Path
        An empty folder to fill.
    """
    target = Path(target).resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_name(target)
    temporary.mkdir()
    try:
        yield temporary
        _replace_directory(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace_directory(new: Path, target: Path) -> None:
    try:
        new.rename(target)  # the target is absent or an empty folder
        return
    except OSError:
        if not target.is_dir():
            raise
    aside = _temporary_name(target)
    target.rename(aside)
    try:
        new.rename(target)
    except OSError:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}.tmp")


@contextlib.contextmanager
def locked(path: Path | str, timeout: float, what: str) -> Iterator[None]:
    """Hold the lock file `path` for the block; other processes and threads wait for it.

    The operating system frees the lock when its holder dies.

    Parameters
    ----------
    path
        The lock file; `path` with the suffix `.holder` beside it says who holds the lock.
    timeout
        Seconds to wait for another holder.
    what
        What the lock protects, for the error message, e.g. "the model registry".

    Raises
    ------
    WorkFailed
        When `timeout` is over, naming the holder.
    """
    from filelock import FileLock, Timeout

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    holder = path.with_name(path.name + ".holder")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=timeout)
    except Timeout:
        raise WorkFailed(
            f"{what} is in use by {_read_holder(holder)} for more than {timeout:g} s; try again later"
            f" (lock {path})"
        ) from None
    try:
        atomic_write(holder, f"process {os.getpid()} on {socket.gethostname()}")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _read_holder(holder: Path) -> str:
    try:
        return holder.read_text() or "another process"
    except OSError:
        return "another process"


def sha256_file(path: Path | str) -> str:
    """Return the SHA-256 of a file's content, in hex."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def sha256_tree(folder: Path | str) -> str:
    """Return one SHA-256, in hex, over the relative paths and contents of all files under `folder`.

    Empty folders, times and modes do not count. A missing folder hashes as an empty one.
    """
    folder = Path(folder)
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{sha256_file(path)}\n".encode())
    return digest.hexdigest()
