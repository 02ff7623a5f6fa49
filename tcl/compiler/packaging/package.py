"""Writing a package: the compiled program, its manifest and its tuning records in one folder, or nothing."""

from __future__ import annotations

import shutil
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
        When `target` exists and is something else than a package.
    """
    target = Path(target)
    check_target(target)
    import_tvm(manifest.device["target"])
    with atomic_directory(target) as folder:
        export_library(executable, folder / LIBRARY, manifest.device["target"])
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
    """Refuse to replace anything but a package or an empty folder; call it before the work, too.

    Raises
    ------
    BadInput
        When `target` is a file or a folder with other things in it.
    """
    if target.is_dir():
        if any(target.iterdir()) and not (target / MANIFEST).is_file():
            raise BadInput(
                f"{target}: the folder holds other files and no package; choose a new folder with -o"
            )
    elif target.exists():
        raise BadInput(f"{target}: this is a file; choose a folder with -o")
