"""Asks MLflow's server to tell of promotions, and starts such a server for a local database."""

import base64
import os
import socket
import sys
from dataclasses import replace
from urllib.parse import urlsplit

from tcl.console import note
from tcl.errors import BadInput, WorkFailed
from tcl.files import private_text
from tcl.ports import HOST, require_free
from tcl.registry.store import every_page, explained, open_store
from tcl.settings import MlflowSettings, Settings

NAME = "tcl-promotions"
_EVENTS = ["model_version_alias.created"]
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def served(settings: Settings) -> bool:
    """Whether the registry is an MLflow server's on this host: others cannot reach a receiver on loopback."""
    address = urlsplit(settings.mlflow_tracking_uri)
    return address.scheme in ("http", "https") and address.hostname in (*_LOOPBACK, socket.gethostname())


def announce(settings: Settings, url: str, secret: str) -> str:
    """Have MLflow's server send promotions to `url`; returns the webhook's id.

    Parameters
    ----------
    settings
        Name the server.
    url
        The receiver's address.
    secret
        What the server signs with.

    Raises
    ------
    WorkFailed
        When the server refuses: it must allow webhooks to this host (`tcl models ui` does).
    """
    client, _ = open_store(settings)
    with explained(f"registering the webhook {url} with {settings.mlflow_tracking_uri}"):
        for left in every_page(client.list_webhooks):
            if left.url == url:  # of a receiver that was killed
                client.delete_webhook(left.webhook_id)
        webhook = client.create_webhook(NAME, url, _EVENTS, "Compiles subscribed models again", secret)
    return str(webhook.webhook_id)


def withdraw(settings: Settings, webhook: str) -> None:
    """Take back what `announce` did; a server that is gone already is only noted."""
    client, _ = open_store(settings)
    try:
        with explained(f"removing the webhook from {settings.mlflow_tracking_uri}"):
            client.delete_webhook(webhook)
    except WorkFailed as error:
        note(str(error))


def serve_ui(settings: Settings, port: int) -> None:
    """Replace this process by MLflow's server over the project's database, on loopback only.

    It may send webhooks to this host.

    Raises
    ------
    BadInput
        When the settings name a server elsewhere, or the port is taken.
    """
    address = settings.mlflow.tracking_uri
    if address is not None and urlsplit(address).hostname not in _LOOPBACK:
        raise BadInput(f"the registry is served already: open {address} in a browser")
    require_free(port, "choose another with --port")
    # Made here, under the lock; its experiment keeps artifacts where they are found without a server, too.
    open_store(replace(settings, mlflow=MlflowSettings()))
    key = private_text(
        settings.state_dir / "webhook-encryption-key",
        lambda: base64.urlsafe_b64encode(os.urandom(32)).decode(),
    )
    environment = {
        **os.environ,
        "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": key,
        "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http,https",
        "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
        "MLFLOW_WEBHOOK_CACHE_TTL": "5",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    database = f"sqlite:///{settings.mlflow_database}"
    environment.pop("TMPDIR", None)  # it ends with the command whose place the server takes
    options = ["--host", HOST, "--port", str(port), "--workers", "1"]
    stores = ["--backend-store-uri", database, "--artifacts-destination", settings.mlflow_artifacts.as_uri()]
    os.execve(sys.executable, [sys.executable, "-m", "mlflow", "server", *options, *stores], environment)
