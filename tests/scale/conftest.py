"""The servers that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scale import servers
from scale.servers import Bucket, Postgres


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scale")


@pytest.fixture(scope="package")
def database() -> Iterator[Postgres]:
    """PostgreSQL with the databases `mlflow` and `prefect`."""
    with servers.postgres() as server:
        server.create("mlflow")
        server.create("prefect")
        yield server


@pytest.fixture(scope="package")
def bucket(folder: Path) -> Iterator[Bucket]:
    """A bucket of an S3 server."""
    with servers.s3(folder / "s3", "fleet") as (bucket,):
        yield bucket


@pytest.fixture(scope="package")
def registry_address(database: Postgres, bucket: Bucket, folder: Path) -> Iterator[str]:
    """An MLflow server on PostgreSQL and S3."""
    with servers.mlflow_server(database.url("mlflow"), bucket, folder) as address:
        yield address


@pytest.fixture(scope="package")
def api(database: Postgres, folder: Path) -> Iterator[str]:
    """A Prefect server on PostgreSQL."""
    with servers.prefect_server(database.url("prefect", "postgresql+asyncpg"), folder) as address:
        yield address
