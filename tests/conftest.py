"""Fixtures that more than one package's tests use."""

import os
from pathlib import Path

import hypothesis
import pytest

from tcl.settings import Settings, load_settings

pytest_plugins = ["command_line"]
# The same inputs in every run, however slow the machine is; `make fuzz` looks further.
hypothesis.settings.register_profile(
    "suite",
    derandomize=True,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")
os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # of tests that use onnxruntime themselves


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tester's own settings and services out of the tests."""
    for variable in os.environ:
        if variable.startswith(("TCL_", "MLFLOW_", "DVC_")) or variable in (
            "PREFECT_API_URL",
            "PREFECT_HOME",
        ):
            monkeypatch.delenv(variable)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Default settings of an empty project folder."""
    root = tmp_path / "project"
    root.mkdir()
    return load_settings(root)
