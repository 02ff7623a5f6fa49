"""The commands of docs/operating.md, run as they stand there, and what the page says of upgrades and capacity."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import DEVICE, Project, clean_environment
from registry.test_registry import register

from scale import servers
from scale.servers import BIN, Bucket, Postgres
from tcl.devices.store import DeviceStore
from tcl.errors import BadInput
from tcl.features.dataset import load_dataset
from tcl.records.store import RecordStore
from tcl.registry.registry import Registry
from tcl.settings import load_settings

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
BLOCKS = dict(re.findall(r"^```sh ([\w-]+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run_block(name: str, **environment: str | Path) -> str:
    path = os.pathsep.join([str(BIN), str(environment.pop("PROGRAMS", BIN)), os.environ["PATH"]])
    variables = (
        clean_environment() | {name: str(value) for name, value in environment.items()} | {"PATH": path}
    )
    done = subprocess.run(
        ["/bin/sh", "-euc", BLOCKS[name]],
        env=variables,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_project_is_the_same_after_backup_and_restore(learnt: Project, tmp_path: Path):
    source = tmp_path / "project"  # with a package, and gone before it is restored
    shutil.copytree(learnt.root, source, ignore=shutil.ignore_patterns("cache"))
    package = source / "packages" / "matmul"
    package.mkdir(parents=True)
    (package / "tcl.json").write_text("{}")
    before = {path.name: path.read_bytes() for path in (source / "data").rglob("*.parquet")}
    places = {"PROJECT": source, "BACKUP": tmp_path / "backup", "RESTORED": tmp_path / "restored"}
    run_block("backup", **places)
    shutil.rmtree(source)
    shown = run_block("restore", **places)
    assert f"tcl-cost-{DEVICE}" in shown
    restored = load_settings(tmp_path / "restored")
    assert {path.name: path.read_bytes() for path in restored.data_dir.rglob("*.parquet")} == before
    registry = Registry(restored)
    assert (registry.fetch(registry.resolve(DEVICE)) / "weights.safetensors").stat().st_size > 0
    assert (restored.root / "packages" / "matmul" / "tcl.json").read_text() == "{}"
    assert DeviceStore(restored.devices_dir).get(DEVICE).name == DEVICE


def test_fleet_registry_is_the_same_after_backup_and_restore(
    registry_address: str, database: Postgres, bucket: Bucket, folder: Path, tmp_path: Path
):
    for name in ("lost", "found"):
        (tmp_path / name).mkdir()
    register(
        Registry(load_settings(tmp_path / "lost", {"mlflow.tracking_uri": registry_address})),
        "saved",
        b"saved weights",
    )
    places = {"BACKUP": tmp_path / "backup", "PROGRAMS": database.programs} | bucket.environment
    run_block("backup-fleet", DATABASE=database.url("mlflow"), BUCKET=bucket.name, **places)
    database.create("restored")
    target = bucket.beside("restored")
    run_block(
        "restore-fleet", RESTORED_DATABASE=database.url("restored"), RESTORED_BUCKET=target.name, **places
    )
    assert sorted(target.keys()) == sorted(bucket.keys())
    (folder / "second").mkdir()
    with servers.mlflow_server(database.url("restored"), target, folder / "second") as address:
        registry = Registry(load_settings(tmp_path / "found", {"mlflow.tracking_uri": address}))
        found = registry.resolve("saved")
        assert (registry.fetch(found) / "weights.safetensors").read_bytes() == b"saved weights"


def test_records_of_an_older_tvm_are_learnt_from(learnt: Project, tmp_path: Path):
    origin = RecordStore(learnt.root / "data")
    old = [replace(record, tvm_version="0.19.0") for record in origin.records(DEVICE)]
    store = RecordStore(tmp_path / "data")
    store.append(origin.workloads(DEVICE).values(), old)
    device = DeviceStore(learnt.root / "devices").get(DEVICE)
    assert {record.tvm_version for record in store.records(DEVICE)} == {"0.19.0"}
    assert len(load_dataset(store, [device])) == len(old)


def test_model_of_other_features_is_refused(tmp_path: Path):
    registry = Registry(load_settings(tmp_path))
    made = register(registry, "board", feature_version="0")
    with pytest.raises(BadInput, match=r"features of version 0, .*train it again with `tcl distill`"):
        registry.fetch(made)


def test_capacity_tells_what_each_step_took(learnt: Project):
    done = learnt.run(
        "bench", "capacity", "--records", "500", "--records", "1500", "--devices", "2", "--json"
    )
    assert done.code == 0, done.err
    results = json.loads(done.out)
    assert [(cost["step"], cost["amount"]) for cost in results["costs"]] == [
        *((step, size) for size in (500, 1500) for step in ("import", "count", "featurise", "version")),
        ("register", 2),
        ("list", 2),
    ]
    assert all(
        min(cost["cpu_seconds"], cost["peak_bytes"], cost["stored_bytes"]) > 0 for cost in results["costs"]
    )
    assert results["per_million"]["import"]["stored_bytes"] > 0
    assert not list((learnt.root / ".tcl" / "capacity").iterdir())
