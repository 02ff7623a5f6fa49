"""Writing a package: the compiled program, its manifest and its tuning records in one folder, or nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tcl.compiler.bootstrap import import_tvm
from tcl.compiler.packaging.linking import export_library
from tcl.compiler.packaging.manifest import MANIFEST, Manifest
from tcl.errors import BadInput
from tcl.files import atomic_directory, atomic_json, sha256_file

LIBRARY = "model.so"
RECORDS = "records"
_RECORD_FILES = (f"{RECORDS}/database_workload.json", f"{RECORDS}/database_tuning_record.json")


def write_package(
    target: Path | str,
    executable: Any,
    manifest: Manifest,
    records: Path | None = None,
    complete: Callable[[Path, Manifest], Manifest] | None = None,
) -> Manifest:
    """Write a package to the folder `target`, replacing the package there.

    The folder is built beside `target` and renamed: after an error, `target` is as it was.

    Parameters
    ----------
    target
        The package's folder.
    executable
        What ``relax.build`` returned.
    manifest
        All but `library` and `files`, which are filled in here.
    records
        Folder with the tuning records, a MetaSchedule JSON database.
    complete
        Called with the folder while it is not yet in place, and with its manifest; returns the manifest to
        write. Verification and latencies belong here: what it raises keeps the package from appearing.

    Returns
    -------
    Manifest
        As written.

    Raises
    ------
    BadInput
        As `check_target`.
    """
    target = Path(target)
    check_target(target)
    import_tvm(manifest.device.target)
    with atomic_directory(target) as folder:
        export_library(executable, folder / LIBRARY, manifest.device.target)
        if records is not None:
            shutil.copytree(records, folder / RECORDS)
        files = {
            path.relative_to(folder).as_posix(): sha256_file(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        manifest = replace(manifest, library=LIBRARY, files=files)
        atomic_json(folder / MANIFEST, manifest.to_json())
        if complete is not None:
            manifest = complete(folder, manifest)
            atomic_json(folder / MANIFEST, manifest.to_json())
    return manifest


def check_target(target: Path) -> None:
    """Refuse to replace anything but a package or an empty folder, and what cannot be written; call it early, too.

    Raises
    ------
    BadInput
        When `target` is a file, holds a file that is no package's, or cannot be made.
    """
    if target.is_dir():
        other = _foreign_file(target)
        if other is not None:
            raise BadInput(
                f"{target}: the folder holds {str(other)!r}, which is no part of a package and would be"
                " lost; choose a new folder with -o"
            )
    elif target.exists():
        raise BadInput(f"{target}: this is a file; choose a folder with -o")
    try:
        os.fsencode(target).decode()  # TVM loads no library from elsewhere
        with tempfile.TemporaryDirectory(prefix=".tcl-", dir=_nearest_folder(target)):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInput(f"{target}: no folder can be made there ({reason}); choose another with -o") from None
    except UnicodeError:
        raise BadInput(
            f"{os.fsencode(target)!r}: this name is not UTF-8; choose another folder with -o"
        ) from None


def _foreign_file(folder: Path) -> Path | None:
    """A file in a folder, relative to it, that is no package's; None where a package is all there is, or nothing."""
    try:
        own = {MANIFEST, *Manifest.read(folder).files}
    except BadInput:  # damaged, or of another version: what every package holds
        own = {MANIFEST, LIBRARY, *_RECORD_FILES} if (folder / LIBRARY).is_file() else set()
    for place, folders, files in os.walk(folder, onerror=_raise):
        links = [name for name in folders if Path(place, name).is_symlink()]
        for name in (*files, *links):
            path = Path(place, name).relative_to(folder)
            if path.as_posix() not in own:
                return path
    return None


def _raise(error: OSError) -> None:
    raise error


def _nearest_folder(path: Path) -> Path:
    """The innermost folder above a path that exists."""
    return next((parent for parent in path.resolve().parents if parent.is_dir()), Path("/"))
