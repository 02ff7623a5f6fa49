"""For black-box tests: the `tcl` command in project folders of its own, and small ONNX models."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import warm
from onnx import TensorProto, helper, numpy_helper
from warm import clean_environment

TCL = Path(sys.executable).parent / "tcl"
DEVICE = "host"
QUICK = {
    "TCL_MEASURE_POOL_SIZE": "32",
    "TCL_LEARNING_EPOCHS": "2",
    "TCL_TUNING_POPULATION": "32",
    "TCL_TUNING_TRIALS": "2",
    "TCL_PROMOTION_METRIC_BOUND": "1",  # what a model has learnt in two epochs is chance
    "OMP_NUM_THREADS": "1",
}
"""Small budgets, so that a test takes seconds."""
_TIMEOUT = 900.0


@dataclass(frozen=True)
class Outcome:
    """What a finished command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Project:
    """A project folder and the `tcl` command in it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *arguments: str | Path, **environment: str) -> Outcome:
        """Run a command; see `warm` for how, unless libraries read the environment while they are loaded."""
        words = [str(argument) for argument in arguments]
        variables = clean_environment() | QUICK | environment
        if all(name.startswith(("TCL_", "PREFECT_")) for name in environment):
            return Outcome(*warm.run(words, self.root, variables, _TIMEOUT))
        done = subprocess.run(
            [TCL, *words],
            cwd=self.root,
            env=variables,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str | Path, **environment: str) -> Any:
        """Run a command that must succeed; returns its JSON."""
        outcome = self.run(*arguments, "--json", **environment)
        assert outcome.code == 0, outcome.err
        return outcome.json

    def fail(self, *arguments: str | Path, code: int, **environment: str) -> str:
        """Run a command that must fail with an exit code and one sentence; returns the sentence."""
        outcome = self.run(*arguments, **environment)
        assert outcome.code == code, outcome.err
        assert "Traceback" not in outcome.err
        return outcome.err.strip().splitlines()[-1]


def save_model(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    weights: dict[str, np.ndarray] | None = None,
) -> Path:
    """Write an ONNX file; inputs and outputs as name → shape, or name → (shape, dtype)."""

    def value(name: str, spec: Any) -> onnx.ValueInfoProto:
        shape, dtype = spec if isinstance(spec, tuple) else (spec, TensorProto.FLOAT)
        return helper.make_tensor_value_info(name, dtype, shape)

    graph = helper.make_graph(
        nodes,
        path.stem,
        [value(*item) for item in inputs.items()],
        [value(*item) for item in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def save_matmul(path: Path, columns: int = 32, rows: int = 1, depth: int = 64) -> Path:
    """``y = relu(x w)`` with x of shape rows x depth."""
    weights = {"w": np.random.default_rng(0).standard_normal((depth, columns), dtype=np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Relu", ["product"], ["y"]),
    ]
    return save_model(path, nodes, {"x": [rows, depth]}, {"y": [rows, columns]}, weights)


def save_convolution(path: Path, batch: int | str = 1) -> Path:
    """A convolution of 3x8x8 pixels to 16 channels."""
    weights = {"w": np.random.default_rng(1).standard_normal((16, 3, 3, 3), dtype=np.float32)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    return save_model(path, nodes, {"x": [batch, 3, 8, 8]}, {"y": [batch, 16, 8, 8]}, weights)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project folder."""
    root = tmp_path / "project"
    root.mkdir()
    return Project(root)


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose device `host` was really measured and learnt; to be copied, never changed."""
    project = Project(tmp_path_factory.mktemp("pristine"))
    models = [save_matmul(project.root / f"matmul{n}.onnx", n) for n in (16, 32, 48)]
    models.append(save_convolution(project.root / "convolution.onnx"))
    project.ok("device", "detect", "--name", DEVICE)
    project.ok("measure", *models, "--device", DEVICE, "--budget", "32", "--sampler", "random")
    project.ok("distill", "--device", DEVICE)
    return project


@pytest.fixture(scope="session")
def learnt(pristine: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of `pristine` for all tests; they may add to it."""
    return Project(
        shutil.copytree(pristine.root, tmp_path_factory.mktemp("learnt") / "project", symlinks=True)
    )
