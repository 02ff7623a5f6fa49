"""Prefect's settings for this project. Prefect reads them when it is imported, so `prepare` comes first."""

import os

from tcl.settings import Settings


def prepare(settings: Settings, api_url: str | None) -> None:
    """Set Prefect's environment variables; what the user has set already stays.

    Prefect's database lies in the project folder, results are JSON (never pickle), nothing is reported to
    others, and a temporary API has time to start on a busy machine.

    Parameters
    ----------
    settings
        The project's settings.
    api_url
        The Prefect API to use; None where there is none yet.
    """
    settings.prefect_home.mkdir(parents=True, exist_ok=True)  # Prefect makes no parent folders
    variables = {
        "PREFECT_HOME": str(settings.prefect_home),
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "300",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
        "DO_NOT_TRACK": "1",
    }
    for name, value in variables.items():
        os.environ.setdefault(name, value)
    if api_url:
        os.environ["PREFECT_API_URL"] = api_url
    else:
        os.environ.pop("PREFECT_API_URL", None)
