"""Addresses of pages in MLflow: the server's, or those of `tcl models ui`, which serves a local database."""

from tcl.registry.versions import ModelVersion
from tcl.settings import Settings

_UI = "http://127.0.0.1:5000"


def version_page(settings: Settings, version: ModelVersion) -> str:
    """Return the address of a model version's page."""
    return f"{_server(settings)}/#/models/{version.name}/versions/{version.version}"


def run_page(settings: Settings, run_id: str) -> str:
    """Return the address of a run's page."""
    return f"{_server(settings)}/#/runs/{run_id}"


def _server(settings: Settings) -> str:
    address = settings.mlflow_tracking_uri
    return address.rstrip("/") if address.startswith("http") else _UI
