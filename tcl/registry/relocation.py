"""Artifacts follow the project folder: the addresses that MLflow keeps are absolute, and a moved project left them."""

import contextlib
import sqlite3
from pathlib import Path

_ADDRESSES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("model_versions", "storage_location"),
)


def relocate(database: Path, experiment: str, artifacts: str) -> None:
    """Make an experiment's artifacts lie where they are now.

    Parameters
    ----------
    database
        MLflow's SQLite database.
    experiment
        The experiment's name.
    artifacts
        Address of its folder of artifacts now. Addresses under the one that the database names are rewritten;
        where they agree already, nothing is.
    """
    with contextlib.closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        row = connection.execute(
            "SELECT artifact_location FROM experiments WHERE name = ?", (experiment,)
        ).fetchone()
        if row is None or row[0] is None or row[0] == artifacts:
            return
        before = row[0]
        for table, column in _ADDRESSES:
            connection.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?)"
                f" WHERE {column} = ? OR substr({column}, 1, ?) = ?",
                (artifacts, len(before) + 1, before, len(before) + 1, before + "/"),
            )
