"""Files that appear whole or not at all, locks that name their holder, and content hashes."""

import contextlib
import ctypes
import fcntl
import glob
import hashlib
import json
import os
import shutil
import socket
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tcl.errors import WorkFailed

_CHUNK = 1 << 20
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def atomic_write(path: Path | str, content: bytes | str, mode: int = 0o666) -> Path:
    """Write `content` to `path` so that a reader, or a crash, sees the old file or the new one.

    Parameters
    ----------
    path
        The file to write; missing parent folders are made.
    content
        Bytes, or text that is written as UTF-8.
    mode
        Permissions, less those that the process's umask takes away.

    Returns
    -------
    Path
        `path`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_left_behind(path)
    data = content.encode() if isinstance(content, str) else content
    while True:
        temporary = _temporary_name(path)
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(handle, "wb") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX)
                if os.fstat(handle).st_nlink == 0:  # another process took it for one left behind
                    continue
                stream.write(data)
                stream.flush()
                os.fsync(handle)
                temporary.replace(path)
            return path
        finally:
            temporary.unlink(missing_ok=True)


def atomic_json(path: Path | str, value: Any) -> Path:
    """Write `value` to `path` as indented JSON, atomically (see `atomic_write`)."""
    return atomic_write(path, json.dumps(value, indent=2) + "\n")


def private_text(path: Path | str, new: Callable[[], str]) -> str:
    """Return the text of a file that only its owner can read; where there is none, write what `new` returns."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(path.name + ".lock"), 60, str(path)):
        if not path.exists():
            atomic_write(path, new(), mode=0o600)
        return path.read_text(encoding="utf-8")


@contextlib.contextmanager
def atomic_directory(target: Path | str) -> Iterator[Path]:
    """Build a folder beside `target` and move it into place when the block ends without an error.

    An existing `target` is exchanged for the new one in one step and then deleted, so a crash leaves one of
    the two, and at no moment do their files mix. On an error `target` stays as it was.

    Yields
    ------
    Path
        An empty folder to fill.
    """
    target = Path(target).resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_left_behind(target)
    temporary, lock = _new_directory(target)
    try:
        yield temporary
        _replace_directory(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(lock)


def _new_directory(target: Path) -> tuple[Path, int]:
    while True:
        temporary = _temporary_name(target)
        temporary.mkdir()
        if (lock := claim(temporary)) is not None:  # None: another process took it for one left behind
            return temporary, lock


def _replace_directory(new: Path, target: Path) -> None:
    try:
        new.rename(target)  # the target is absent or an empty folder
        return
    except OSError:
        if not target.is_dir():
            raise
    if _exchange(new, target):
        return
    aside = _temporary_name(target)
    target.rename(aside)
    try:
        new.rename(target)
    except OSError:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _exchange(left: Path, right: Path) -> bool:
    """Swap two folders in one step; False where the system or the file system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        return False
    return rename(_AT_FDCWD, bytes(left), _AT_FDCWD, bytes(right), _RENAME_EXCHANGE) == 0


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}.tmp")


def _remove_left_behind(path: Path) -> None:
    """Remove what killed processes left of earlier attempts to write `path`."""
    for left in path.parent.glob(f".{glob.escape(path.name[:100])}.{'[0-9a-f]' * 32}.tmp"):
        if (lock := claim(left)) is not None:
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
            os.close(lock)


def claim(path: Path) -> int | None:
    """Lock a temporary file or folder: who makes one holds its lock, so that others see whether it is in use.

    Returns
    -------
    int
        A descriptor that holds the lock until it is closed or the process ends; None when another process
        holds it, or `path` is gone.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


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
