"""What somebody else's files may do, and what leaves this machine: nothing."""

from __future__ import annotations

import json
import os
import pickletools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import DEVICE, Project

from tcl.errors import BadInput, WorkFailed
from tcl.files import sha256_file
from tcl.registry.registry import Registry
from tcl.settings import load_settings

PICKLED = (".pkl", ".pickle", ".pt", ".pth", ".joblib", ".dill", ".npy")


@pytest.fixture(scope="module")
def package(learnt: Project) -> Path:
    learnt.ok("compile", "matmul16.onnx", "--device", DEVICE, "--trials", "0", "-o", "guarded")
    return learnt.root / "guarded"


def artifacts_of(project: Project) -> list[Path]:
    """All that the product wrote, but for databases and DVC's own files."""
    found = [path for path in project.root.rglob("*") if path.is_file()]
    return [path for path in found if ".dvc" not in path.parts and not path.name.startswith("mlflow.db")]


def is_pickle(content: bytes) -> bool:
    """Whether the bytes are a pickle of protocol 2 or later, as every pickler writes today."""
    if content[:1] != b"\x80":
        return False
    try:
        return any(operation.name == "STOP" for operation, _, _ in pickletools.genops(content))
    except ValueError:
        return False


def test_no_artifact_is_a_pickle(learnt, package):
    artifacts = artifacts_of(learnt)
    assert {"model.so", "weights.safetensors", "tcl.json"} <= {path.name for path in artifacts}
    assert not [path for path in artifacts if path.suffix in PICKLED or is_pickle(path.read_bytes())]


def test_is_pickle_recognises_pickles():
    import pickle

    assert is_pickle(pickle.dumps({"a": 1})) and not is_pickle(b"\x80 no pickle")


DENY = """
import builtins, io, sys

def audit(event, arguments):
    if event == "pickle.find_class":
        raise SystemExit(f"unpickles {arguments}")

def deny(*arguments, **options):
    raise SystemExit("unpickles")

import _pickle, pickle
for module in (_pickle, pickle):
    module.load = module.loads = module.Unpickler = deny
sys.addaudithook(audit)
"""


def run_denied(project: Project, code: str) -> None:
    """Run code in a process whose unpickling functions end it."""
    done = subprocess.run(
        [sys.executable, "-c", DENY + code], cwd=project.root, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_package_loads_and_runs_when_unpickling_is_denied(learnt, package):
    run_denied(learnt, "import numpy, tcl\ntcl.load('guarded')(x=numpy.ones((1, 64), 'float32'))\n")


def test_cost_model_is_fetched_and_loaded_when_unpickling_is_denied(learnt):
    shutil.rmtree(learnt.root / ".tcl" / "models", ignore_errors=True)
    code = (
        "from tcl.costmodel.checkpoint import load_model\n"
        "from tcl.distillation.knowledge import load_knowledge_base\n"
        "from tcl.registry.registry import Registry\n"
        "from tcl.settings import load_settings\n"
        "registry = Registry(load_settings())\n"
        f"load_model(registry.fetch(registry.resolve('{DEVICE}')))\n"
        "load_knowledge_base(registry.fetch(registry.resolve('knowledge base')))\n"
    )
    run_denied(learnt, code)


@pytest.fixture
def trap(tmp_path: Path) -> tuple[Path, Path]:
    """A shared library that leaves a file when it is loaded, and that file."""
    sign = tmp_path / "loaded"
    source = tmp_path / "trap.c"
    source.write_text(
        "#include <fcntl.h>\n#include <unistd.h>\n"
        f'__attribute__((constructor)) void spring(void) {{ close(open("{sign}", O_CREAT | O_WRONLY, 0600)); }}\n'
    )
    library = tmp_path / "trap.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library, sign


def test_foreign_library_is_not_loaded_when_its_hash_is_not_in_the_manifest(learnt, package, trap, tmp_path):
    library, sign = trap
    copy = shutil.copytree(package, tmp_path / "swapped")
    shutil.copy(library, copy / "model.so")
    assert "SHA-256" in learnt.fail("run", copy, code=2)
    assert not sign.exists()


@pytest.mark.parametrize("name", ["../trap.so", "link.so"])
def test_foreign_library_is_not_loaded_when_it_lies_outside_the_package(
    learnt, package, trap, tmp_path, name
):
    library, sign = trap
    copy = shutil.copytree(package, tmp_path / "elsewhere")
    (copy / "link.so").symlink_to(library)
    manifest = json.loads((copy / "tcl.json").read_text())
    manifest |= {"library": name, "files": {name: sha256_file(library)}}
    (copy / "tcl.json").write_text(json.dumps(manifest))
    assert "outside the package" in learnt.fail("run", copy, code=2)
    assert not sign.exists()


def test_cost_model_is_refused_when_its_stored_files_were_changed(learnt, tmp_path):
    root = shutil.copytree(learnt.root, tmp_path / "project")
    shutil.rmtree(root / ".tcl" / "models", ignore_errors=True)
    registry = Registry(load_settings(root))
    version = registry.resolve(DEVICE)
    (weights,) = root.glob(f"mlruns/{version.run_id}/artifacts/weights/weights.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(WorkFailed, match="not those that were registered"):
        registry.fetch(version)


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/b", "..", "a\0b", "x" * 300])
def test_device_name_is_refused_when_it_would_name_a_path(project, name):
    from tcl.devices.device import Device
    from tcl.devices.store import DeviceStore

    with pytest.raises(BadInput):
        DeviceStore(project.root / "devices").add(Device(name, {"kind": "llvm", "num-cores": 1}))
    assert not (project.root / "devices").exists()


def test_nothing_is_written_to_the_home_folder_or_beside_the_project(learnt, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    environment = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    os.environ.pop("ORT_DISABLE_TELEMETRY", None)  # the product itself must see to it
    try:
        learnt.ok(
            "compile", "matmul16.onnx", "--device", DEVICE, "--trials", "0", "-o", "homeless", **environment
        )
        learnt.ok("data", "status", **environment)
    finally:
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    assert sorted(path for path in home.rglob("*") if path.is_file()) == []
