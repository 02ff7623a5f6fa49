"""Records are learnt once, however they came: measured here, or pulled from a colleague."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import DEVICE, Project

from tcl.devices.store import DeviceStore
from tcl.errors import BadInput, WorkFailed
from tcl.files import atomic_write
from tcl.jobs.reconcile import LEARNT, LEARNT_NOW, TOO_FEW, UNKNOWN, ReconcileArguments, run
from tcl.records.store import RecordStore
from tcl.registry.registry import Registry
from tcl.settings import Settings, load_settings
from tcl.versioning.dataset import DatasetVersions

QUICK = {"learning.epochs": 1}


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.com")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all", ".dvc", ".dvcstore", "data.dvc", "devices", ".gitignore")
    git(folder, "commit", "--quiet", "--message", "Records")


@pytest.fixture
def ours(learnt: Project, tmp_path: Path) -> Settings:
    """A git repository with a version of a few records of one device, not learnt."""
    root = tmp_path / "ours"
    root.mkdir()
    git(root, "init", "--quiet")
    add_records(root, learnt, DEVICE, 4)
    return load_settings(root, QUICK)


def add_records(root: Path, learnt: Project, device: str, programs: int) -> None:
    """Make a version with records of a few programs."""
    known = RecordStore(learnt.root / "data")
    workloads = list(known.workloads(DEVICE).values())[:programs]
    records = [r for w in workloads for r in list(known.records(DEVICE, {w.key}))[:8]]
    RecordStore(root / "data").append(workloads, [replace(record, device=device) for record in records])
    described = replace(DeviceStore(learnt.root / "devices").get(DEVICE), name=device)
    DeviceStore(root / "devices").add(described)
    atomic_write(root / ".gitignore", ".tcl/\n/data/\nmlflow.db*\nmlruns/\n")
    DatasetVersions(load_settings(root)).version("records")
    commit(root)


def states(settings: Settings) -> dict[str, str]:
    return {device.device: device.state for device in run(ReconcileArguments(), settings).devices}


@pytest.mark.slow
def test_records_of_a_colleague_are_fetched_and_learnt_once_when_git_brought_them(
    ours: Settings, learnt: Project, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    git(tmp_path, "clone", "--quiet", str(ours.root), str(theirs))
    DatasetVersions(load_settings(theirs)).pull()
    assert states(ours) == {DEVICE: LEARNT_NOW}
    add_records(theirs, learnt, "few", 1)
    add_records(theirs, learnt, "other", 4)
    git(ours.root, "pull", "--quiet", str(theirs), "HEAD")
    report = run(ReconcileArguments(), ours)
    assert report.fetched
    assert {d.device: d.state for d in report.devices} == {
        DEVICE: LEARNT,
        "few": LEARNT_NOW,
        "other": LEARNT_NOW,
    }
    (version,) = Registry(ours).versions("other")
    assert version.tags["data_hash"] == DatasetVersions(ours).device_hash("other")
    assert set(states(ours).values()) == {LEARNT}
    assert len(Registry(ours).versions("other")) == len(Registry(ours).versions(DEVICE)) == 1


def test_reconcile_says_what_is_missing_when_a_device_cannot_be_learnt(
    ours: Settings, learnt: Project
) -> None:
    shutil.rmtree(ours.data_dir)
    (ours.root / "data.dvc").unlink()
    add_records(ours.root, learnt, "few", 1)
    add_records(ours.root, learnt, "nameless", 1)
    (ours.devices_dir / "nameless.json").unlink()
    assert states(ours) == {"few": TOO_FEW, "nameless": UNKNOWN}
    with pytest.raises(BadInput, match="'nameless' is unknown"):
        run(ReconcileArguments("nameless"), ours)


def test_reconcile_learns_the_others_when_the_records_of_one_cannot_be_read(
    ours: Settings, learnt: Project
) -> None:
    add_records(ours.root, learnt, "broken", 4)
    for file in (ours.data_dir / "broken").glob("*.parquet"):
        file.write_bytes(b"no records")
    (ours.devices_dir / "damaged.json").write_text("{")  # of a device without records
    learnt_devices = []

    def learn(arguments, settings):  # type: ignore[no-untyped-def]
        learnt_devices.append(arguments.device)
        raise RuntimeError("a bug")

    with pytest.raises(WorkFailed) as failed:
        run(ReconcileArguments(), ours, learn)
    assert learnt_devices == [DEVICE]
    assert "host: unexpected RuntimeError: a bug" in str(failed.value) and "broken: " in str(failed.value)


def test_reconcile_learns_the_others_when_one_device_fails(ours: Settings, learnt: Project) -> None:
    add_records(ours.root, learnt, "other", 4)
    learnt_devices = []

    def learn(arguments, settings):  # type: ignore[no-untyped-def]
        learnt_devices.append(arguments.device)
        raise WorkFailed("the registry is away")

    with pytest.raises(
        WorkFailed, match=r"not learnt: host: the registry is away; other: the registry is away"
    ):
        run(ReconcileArguments(), ours, learn)
    assert learnt_devices == [DEVICE, "other"]
