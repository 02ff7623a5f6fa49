"""The project on other engines, switched by settings alone: PostgreSQL, S3, a work pool of several hosts."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from command_line import DEVICE, QUICK, Project, save_matmul
from registry.test_registry import register

from scale.servers import BIN, Bucket, Postgres, running
from tcl.errors import WorkFailed
from tcl.jobs.subscriptions import subscribe
from tcl.registry.registry import Registry
from tcl.settings import load_settings
from tcl.versioning.dataset import DatasetVersions

ENDED = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
T = TypeVar("T")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_registry_keeps_models_in_postgres_and_s3_when_tracking_uri_names_a_server(
    registry_address: str, database: Postgres, bucket: Bucket, tmp_path: Path
):
    hosts = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tcl.toml").write_text(f'[mlflow]\ntracking_uri = "{registry_address}"\n')
        hosts.append(load_settings(tmp_path / name))
    made = register(Registry(hosts[0]), "board", b"weights of the board")
    Registry(hosts[0]).promote("board", made.version)
    found = Registry(hosts[1]).resolve("board")
    fetched = Registry(hosts[1]).fetch(found)
    assert (fetched / "weights.safetensors").read_bytes() == b"weights of the board"
    assert ("tcl-cost-board", 1) in database.query("SELECT name, version FROM model_versions", "mlflow")
    stored = [key for key in bucket.keys("mlflow/") if key.endswith("weights.safetensors")]
    assert len(stored) == 1
    assert (bucket.folder / stored[0]).read_bytes() == b"weights of the board"
    assert not (hosts[0].root / "mlruns").exists() and not (hosts[0].root / "mlflow.db").exists()


def test_dataset_version_travels_through_s3_when_the_remote_is_a_bucket(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    here, there = join_dataset(tmp_path / "here", bucket, "data-travels"), tmp_path / "there"
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    settings = load_settings(here, environ={"TCL_DVC_REMOTE": "fleet"})
    (settings.data_dir / "board").mkdir(parents=True)
    (settings.data_dir / "board" / "records-000.parquet").write_bytes(b"records" * 1000)
    version = DatasetVersions(settings).version("measured here")
    assert version.pushed == 2
    assert len(bucket.keys("data-travels/files/md5")) == 2
    assert not (here / ".dvcstore").exists()
    shutil.copytree(here, there, ignore=shutil.ignore_patterns("data", "cache", ".tcl"))
    other = load_settings(there, environ={"TCL_DVC_REMOTE": "fleet"})
    assert DatasetVersions(other).pull()
    assert (other.data_dir / "board" / "records-000.parquet").read_bytes() == b"records" * 1000
    assert DatasetVersions(other).status().not_pushed == 0


def test_dataset_says_so_when_the_bucket_refuses_the_key(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = load_settings(join_dataset(tmp_path / "here", bucket, "refused"), {"dvc.remote": "fleet"})
    for name, value in (bucket.environment | {"AWS_SECRET_ACCESS_KEY": "another"}).items():
        monkeypatch.setenv(name, value)
    (settings.data_dir / "board").mkdir(parents=True)
    (settings.data_dir / "board" / "records-000.parquet").write_bytes(b"records")
    with pytest.raises(WorkFailed, match="the DVC remote 'fleet' failed: Forbidden"):
        DatasetVersions(settings).version("not for you")
    assert bucket.keys("refused/") == []


def test_fleet_of_two_hosts_learns_once_and_compiles_each_model_once(
    learnt: Project,
    api: str,
    registry_address: str,
    database: Postgres,
    bucket: Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    first = join_dataset(tmp_path / "first", bucket, "fleet-data")
    (first / "tcl.toml").write_text(
        f"""
        [mlflow]
        tracking_uri = "{registry_address}"
        [prefect]
        api_url = "{api}"
        [serve]
        work_pool = "fleet"
        runs = 1
        [dvc]
        remote = "fleet"
        """
    )
    for name in ("data", "devices"):
        shutil.copytree(learnt.root / name, first / name)
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    DatasetVersions(load_settings(first)).version("what the fleet begins with")
    second = tmp_path / "second"
    subscribe(load_settings(first), save_matmul(first / "followed.onnx", 56), DEVICE, trials=0)
    shutil.copytree(first, second, ignore=shutil.ignore_patterns("data", "cache", ".tcl"))
    path = second / "devices" / f"{DEVICE}.json"  # as if the second host had another CPU
    path.write_text(re.sub('"cpu_model": "[^"]*"', '"cpu_model": "Another CPU"', path.read_text()))
    models = [save_matmul(tmp_path / f"fleet{columns}.onnx", columns) for columns in (24, 40)]
    with host(first, bucket), host(second, bucket):
        eventually(lambda: ask(api, "work_pools/fleet/workers/filter", {}), lambda workers: len(workers) == 2)
        model = f"tcl-cost-{DEVICE}"
        eventually(lambda: versions_of(model, database), lambda versions: versions == [1])
        runs = [
            submit(
                api,
                "compile/compile",
                model=str(path),
                device=DEVICE,
                output=str(tmp_path / path.stem),
            )
            for path in models
        ]
        name = f"promotions/promotion-{socket.gethostname()}"
        runs += [submit(api, f"{name}-{root.name}", device=DEVICE) for root in (first, second)]
        for run in runs:
            eventually(
                lambda run=run: ask(api, f"flow_runs/{run}")["state"]["type"], lambda state: state in ENDED
            )
    logs = [(tmp_path / f"{name}.log").read_text() for name in ("first", "second")]
    assert [ask_state(run, database) for run in runs] == ["COMPLETED"] * 4, logs
    ran = [[run in log for log in logs] for run in runs]
    assert [sum(hosts) for hosts in ran] == [1] * 4  # each on one host, whichever was free
    assert ran[2:] == [[True, False], [False, True]]  # but promotions where the packages lie
    package = Path("packages", DEVICE, "followed", "tcl.json")
    assert model in (first / package).read_text()
    assert not (second / package).exists()  # it is not the device
    for path in models:
        assert model in (tmp_path / path.stem / "tcl.json").read_text()
    assert versions_of(model, database) == [1]
    assert not any(
        (root / name).exists() for root in (first, second) for name in ("mlflow.db", "mlruns", ".dvcstore")
    )


def join_dataset(root: Path, bucket: Bucket, prefix: str) -> Path:
    """A project folder whose DVC remote `fleet` is a bucket."""
    root.mkdir()
    for command in (
        ["init", "--no-scm", "--quiet"],
        ["remote", "add", "--default", "fleet", f"s3://{bucket.name}/{prefix}"],
        ["remote", "modify", "fleet", "endpointurl", bucket.endpoint],
    ):
        subprocess.run(
            [BIN / "dvc", *command], cwd=root, check=True, env=os.environ | {"DVC_NO_ANALYTICS": "true"}
        )
    return root


@contextlib.contextmanager
def host(root: Path, bucket: Bucket) -> Iterator[None]:
    """One host of the fleet: a project folder of its own, served."""
    environment = (
        QUICK
        | bucket.environment
        | {
            "TCL_TUNING_TRIALS": "0",
            "TCL_PROMOTION_WEBHOOK_PORT": "0",  # the two hosts are one machine
        }
    )
    with running([BIN / "tcl", "serve"], root.with_suffix(".log"), lambda: True, environment, cwd=root):
        yield


def versions_of(model: str, database: Postgres) -> list[int]:
    rows = database.query(
        f"SELECT version FROM model_versions WHERE name = '{model}' ORDER BY version", "mlflow"
    )
    return [version for (version,) in rows]


def ask_state(run: str, database: Postgres) -> str:
    return database.query(f"SELECT state_type FROM flow_run WHERE id = '{run}'", "prefect")[0][0]


def submit(api: str, deployment: str, **arguments: str | int) -> str:
    found = ask(api, f"deployments/name/{deployment}")
    body = {"parameters": {"arguments": arguments}, "state": {"type": "SCHEDULED"}}
    return ask(api, f"deployments/{found['id']}/create_flow_run", body)["id"]


def eventually(look: Callable[[], T], enough: Callable[[T], bool]) -> None:
    end = time.monotonic() + 400
    while not enough(seen := look()):
        assert time.monotonic() < end, seen
        time.sleep(0.5)


def ask(api: str, path: str, body: dict | None = None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{api}/{path}", data=data, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return []
