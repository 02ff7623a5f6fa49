"""What must hold of a project after anything that happened to it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

MARK = "TCL_CHAOS_RUN"  # in the environment of every process that a run starts
ORPHAN_SECONDS = 60.0


class Broken(Exception):
    """A promise that did not hold."""


def records_of(project: Path) -> set[int]:
    """Content ids of all records on disk: in the stores and in the lines of the journals."""
    from tcl.records.record import MeasureRecord
    from tcl.records.store import RecordStore

    found = set()
    for root in (project / "data", project / ".tcl" / "tuning"):
        store = RecordStore(root)
        for device in store.devices():
            found |= {record.content_id() for record in store.records(device)}
    for journal in (project / ".tcl" / "journals").glob("*.jsonl"):
        for line in journal.read_bytes().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # the one line that a kill may cost
            found |= {MeasureRecord.from_json(value).content_id() for value in entry["records"]}
    return found


def check_packages(project: Path) -> None:
    from tcl.compiler.packaging.manifest import MANIFEST, Manifest
    from tcl.files import sha256_file

    for folder in (project / "packages").glob("[!.]*"):
        manifest = Manifest.read(folder)
        present = {
            path.relative_to(folder).as_posix(): sha256_file(path)
            for path in folder.rglob("*")
            if path.is_file() and path.name != MANIFEST
        }
        if present != manifest.files or manifest.verification is None:
            raise Broken(f"{folder.name} is half a package")


def check_registry(project: Path) -> None:
    """Every version has its files, fetched anew as a compile would."""
    from tcl.errors import TclError
    from tcl.registry.registry import Registry
    from tcl.settings import load_settings

    if not (project / "mlflow.db").exists():
        return
    settings = load_settings(project, environ={})
    registry = Registry(settings)
    shutil.rmtree(settings.models_dir, ignore_errors=True)
    try:
        for version in registry.list():
            registry.fetch(version)
    except TclError as error:
        raise Broken(f"the registry is not whole: {error}") from error


def check_nothing_left(project: Path, temporary: Path) -> None:
    litter = [str(path) for path in temporary.iterdir()]
    # DVC keeps its own temporary files, and MLflow's artifacts of a killed run belong to no version
    litter += [
        str(path)
        for path in project.rglob("*.tmp")
        if not {".dvc", ".dvcstore", "mlruns"} & set(path.relative_to(project).parts)
    ]
    litter += [str(path) for path in (project / ".tcl").rglob("*.holder")]
    if litter:
        raise Broken(f"left behind: {', '.join(litter)}")


def processes_of(mark: str) -> list[int]:
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_for_orphans(mark: str) -> None:
    end = time.monotonic() + ORPHAN_SECONDS
    while orphans := processes_of(mark):
        if time.monotonic() > end:
            for pid in orphans:
                os.kill(pid, signal.SIGKILL)
            raise Broken(f"{len(orphans)} orphan processes after {ORPHAN_SECONDS:g} s")
        time.sleep(0.2)
