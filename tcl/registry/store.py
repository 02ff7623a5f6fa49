"""Opens the MLflow store of a project, quietly, and makes it when it is not there yet."""

import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcl.errors import WorkFailed
from tcl.files import locked
from tcl.registry.relocation import relocate
from tcl.settings import Settings

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

EXPERIMENT = "tcl"
LOCK_SECONDS = 600.0
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",  # the default of 7 makes an absent server cost minutes
}
_DAMAGED = ("malformed", "not a database", "no such table", "no such column")


def open_store(settings: Settings) -> tuple["MlflowClient", str]:
    """Return a client of the project's MLflow store and the id of the experiment `tcl`.

    A store that does not exist is made under a lock: two processes that initialise one at once break it.

    Raises
    ------
    WorkFailed
        When the store cannot be reached.
    """
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    from mlflow.tracking import MlflowClient  # outside the lock: the import takes seconds

    uri = settings.mlflow_tracking_uri
    local = settings.mlflow.tracking_uri is None
    artifacts = settings.mlflow_artifacts.as_uri() if local else None
    with registry_lock(settings), explained(f"the MLflow store {uri}"):
        if local:
            _make_database(settings.mlflow_database)
            relocate(settings.mlflow_database, EXPERIMENT, settings.mlflow_artifacts.as_uri())
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is not None:
            return client, experiment.experiment_id
        return client, client.create_experiment(EXPERIMENT, artifact_location=artifacts)


def _make_database(path: Path) -> None:
    """Make the database beside its place and move it there whole: MLflow cannot go on with a half-made one."""
    from mlflow.tracking import MlflowClient

    if path.exists():
        return
    draft = path.with_name(f".{path.name}.tmp")  # whose name is always the same: the lock is held
    for left in path.parent.glob(f"{draft.name}*"):
        left.unlink()
    MlflowClient(f"sqlite:///{draft}", f"sqlite:///{draft}").search_experiments(max_results=1)
    draft.replace(path)


def registry_lock(settings: Settings) -> contextlib.AbstractContextManager[None]:
    """Return the lock under which the registry is changed."""
    return locked(settings.state_dir / "registry.lock", LOCK_SECONDS, "the model registry")


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn the errors of MLflow and of its database in the block into one sentence about `what`."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, sqlite3.Error) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        if any(sign in reason for sign in _DAMAGED):
            reason += (
                "; its database is damaged or empty: restore it from a backup (docs/operating.md), or move it away to"
                " begin anew"
            )
        raise WorkFailed(f"{what} failed: {reason}") from error


def every_page(search: Callable[..., Any]) -> list[Any]:
    """Return all that one of MLflow's searches finds; each call returns a page and the token of the next."""
    found, token = [], None
    while True:
        page = search(page_token=token)
        found.extend(page)
        if not (token := page.token):
            return found
