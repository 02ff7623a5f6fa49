"""Every command, program and settings block of the README, executed in order in a fresh copy of the project.

Budgets are scaled down by settings; nothing is left out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import onnx
import pytest
import warm
from onnx import TensorProto, helper, numpy_helper

from tcl.settings import load_settings

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
BUDGETS = {
    "TCL_MEASURE_POOL_SIZE": "16",
    "TCL_LEARNING_EPOCHS": "1",
    "TCL_TUNING_POPULATION": "32",
    "TCL_TUNING_TRIALS": "4",
    "TCL_UP_MEASURE_PER_PROGRAM": "1",
    "TCL_UP_MEASURE_SECONDS": "5",
    "TCL_UP_DISTILL_SECONDS": "3",
    "TESTS": "tests/test_settings.py",
}
MADE = ".git .venv .tcl data build packages mlruns mlflow.db* cache tmp .*_cache .hypothesis __pycache__ *.egg-info"
"""What a clone would not hold."""
TYPES_CHECKED = ".mypy_cache"
"""Comes along where there is one: `make check` looks at the project's own files again, not at all libraries."""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project as after a clone, with an environment that is installed already."""
    root = tmp_path / "project"
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*MADE.split()))
    if (ROOT / TYPES_CHECKED).is_dir():
        shutil.copytree(ROOT / TYPES_CHECKED, root / TYPES_CHECKED)
    environment = root / ".venv"
    environment.mkdir()
    for entry in Path(sys.prefix).iterdir():
        if entry.name != ".installed":
            (environment / entry.name).symlink_to(entry)
    (environment / ".installed").touch()
    for command in (
        ["git", "init", "--quiet"],
        ["git", "add", "--all"],
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "--quiet", "--message", "copy"],
    ):
        subprocess.run(command, cwd=root, check=True)
    save_models(root)
    return root


def save_models(root: Path) -> None:
    """The ONNX files that the README speaks of."""
    rng = np.random.default_rng(0)
    dense = numpy_helper.from_array(rng.standard_normal((64, 32), dtype=np.float32), "w")
    kernel = numpy_helper.from_array(rng.standard_normal((16, 3, 3, 3), dtype=np.float32), "w")
    for name, node, x, y, weight in (
        ("model", helper.make_node("MatMul", ["x", "w"], ["y"]), [1, 64], [1, 32], dense),
        ("dynamic", helper.make_node("Conv", ["x", "w"], ["y"]), ["N", 3, 8, 8], ["N", 16, 6, 6], kernel),
    ):
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)]
        graph = helper.make_graph([node], name, inputs, outputs, [weight])
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(proto, str(root / f"{name}.onnx"))


def export_logs(root: Path) -> None:
    """The logs that the README imports."""
    from tcl.devices.store import DeviceStore
    from tcl.records.metaschedule import export_database
    from tcl.records.store import RecordStore

    settings = load_settings(root)
    device = DeviceStore(settings.devices_dir).get("my-cpu")
    export_database(RecordStore(settings.data_dir), device, root / "logs")
    for path in (root / "logs").iterdir():
        path.rename(root / path.name)


def run(command: str, root: Path) -> None:
    foreign = ("TCL_", "MLFLOW_", "DVC_", "PREFECT_", "MAKE", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    environment.pop("VENV", None)
    path = f"{root / '.venv' / 'bin'}{os.pathsep}{environment['PATH']}"
    environment |= BUDGETS | {"PATH": path}
    if command == "tcl models ui":
        serve(command, root, environment)
        return
    if command.startswith("tcl "):
        code, out, err = warm.run(shlex.split(command)[1:], root, environment, 900)
        assert code == 0, f"{command}\n{out[-3000:]}\n{err[-3000:]}"
        return
    done = subprocess.run(
        command,
        shell=True,
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def serve(command: str, root: Path, environment: dict[str, str]) -> None:
    """Start a server and wait until it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        f"{command} --port {port}",
        shell=True,
        cwd=root,
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(240):
            assert process.poll() is None, f"{command} ended with {process.returncode}"
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                    assert answer.status == 200
                    return
            except OSError:
                time.sleep(0.5)
        raise AssertionError(f"{command} did not answer")
    finally:
        os.killpg(process.pid, 15)
        process.wait()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_readme_works_from_the_first_command_to_the_last(copy):
    for language, text in BLOCKS:
        if language == "sh":
            for command in text.strip().splitlines():
                if command.startswith("tcl import"):
                    export_logs(copy)
                run(command, copy)
        elif language == "python":
            (copy / "example.py").write_text(text)
            run("python example.py", copy)
            (copy / "example.py").unlink()
        else:
            assert language == "toml"
            (copy / "tcl.toml").write_text(text)
            load_settings(copy)
            (copy / "tcl.toml").unlink()


def test_readme_names_every_command_group():
    from tcl.cli.commands import COMMANDS

    text = "\n".join(block for language, block in BLOCKS if language == "sh")
    missing = [name for name in COMMANDS if f"tcl {name}" not in text]
    # for those who develop TCL; what does not end is only spoken of
    assert missing == ["serve", "bench"]
    assert "`tcl serve`" in (ROOT / "README.md").read_text()
