"""The temporary files of a command: one folder, removed with it, or by the next command when it was killed."""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tcl.files import claim

_PREFIX = "tcl-command-"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder, and the place of all temporary files of this process and its children, for the block.

    Folders that killed commands of the same user left are removed first; a lock shows which ones are in use.

    Yields
    ------
    Path
        The empty folder.
    """
    outside, variable = tempfile.gettempdir(), os.environ.get("TMPDIR")
    own = f"{_PREFIX}{os.getuid()}-"
    for left in Path(outside).glob(f"{own}*"):
        if _is_own_folder(left) and (lock := claim(left)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
    folder, lock = _new_folder(own)
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = outside
        if variable is None:
            os.environ.pop("TMPDIR", None)
        else:
            os.environ["TMPDIR"] = variable
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def machine_folder() -> Path:
    """Return the folder of temporary files that all processes of the machine share."""
    folder = Path(tempfile.gettempdir())
    while folder.name.startswith(_PREFIX):
        folder = folder.parent
    return folder


def _is_own_folder(path: Path) -> bool:
    """Whether it is this user's: others may put anything into the folder of temporary files, also a pipe."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _new_folder(prefix: str) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        if (lock := claim(folder)) is not None:  # None: another command took it for one left behind
            return folder, lock
