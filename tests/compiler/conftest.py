"""Fixtures of the compiler's tests: exported networks and a package, made once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from onnx_models import compile_package, linear_model, save

from tcl.bench.networks import export

# Programs that run in the tests' own process must not bind it, and all that comes after, to one core.
os.environ["TVM_BIND_THREADS"] = "0"


@pytest.fixture(scope="session")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that exports a benchmark network, once for all tests."""
    folder = tmp_path_factory.mktemp("networks")
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            made[name] = export(name, folder)
        return made[name]

    return get


@pytest.fixture(scope="session")
def linear_package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The package of `linear_model`, and the model; tests must not change the folder."""
    folder = tmp_path_factory.mktemp("linear")
    model = compile_package(save(linear_model(), folder), folder / "package")
    return folder / "package", model
