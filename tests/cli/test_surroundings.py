"""Machines that refuse: each refusal ends in one sentence that says what and what to do, and nothing is lost."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import DEVICE, QUICK, TCL, Outcome, Project, clean_environment

TARGET = json.dumps({"kind": "llvm", "num-cores": 1})
STEPS = '[["SP",2,0,64,[4,2],1],["PR",2,0,"auto_unroll_max_step$64"]]'
KEY = '[\\"matmul\\",[1,64],[64,32]]'


def save_log(path: Path, lines: int) -> Path:
    """A tuning log of Ansor's."""
    path.write_text(
        "".join(
            f'{{"i":[["{KEY}","llvm"],[[],{STEPS}]],"r":[[{(n + 1) * 1e-5}],0,0.1,{n}],"v":"v0.6"}}\n'
            for n in range(lines)
        )
    )
    return path


@pytest.fixture(scope="session")
def apart() -> list[str]:
    """How to run a program in a name space of its own, where it may mount: as root, or as one's own root."""
    mount = "mount -t tmpfs none /mnt"
    for command in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        if subprocess.run([*command, "sh", "-c", mount], capture_output=True).returncode == 0:
            return command
    pytest.fail(
        "full and read-only disks are tested on small file systems, which nobody may mount here: run the tests as root"
        " (in a container, with CAP_SYS_ADMIN), or allow user name spaces (sysctl kernel.unprivileged_userns_clone=1,"
        " kernel.apparmor_restrict_unprivileged_userns=0)"
    )


def run_mounted(apart: list[str], project: Project, mounting: str, *arguments: str | Path) -> Outcome:
    """Run `mounting` in the project folder, then a command, in a name space of its own."""
    run = shlex.join([str(TCL), *map(str, arguments)])
    command = f"{mounting} && cd {shlex.quote(str(project.root))} && exec {run}"
    done = subprocess.run(
        [*apart, "sh", "-c", command],
        cwd=project.root,
        env=clean_environment() | QUICK,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def assert_one_sentence(outcome: Outcome, *words: str) -> None:
    assert outcome.code == 1, outcome.err
    assert "Traceback" not in outcome.err
    assert all(word in outcome.err.strip().splitlines()[-1] for word in words), outcome.err


@pytest.mark.parametrize(
    ("kilobytes", "arguments"),
    [(8, ("device", "detect")), (300, ("models",)), (40, ("import", "{log}", "--device", "d"))],
)
def test_command_says_that_the_disk_is_full(apart, project, tmp_path, kilobytes, arguments):
    log = save_log(tmp_path / "tuning.log", 20_000)
    project.ok("device", "add", "d", "--target", TARGET)
    saved = shlex.quote(str(shutil.copytree(project.root, tmp_path / "saved")))
    root = shlex.quote(str(project.root))
    full = f"mount -t tmpfs -o size={kilobytes}k none {root} && cp -r {saved}/. {root}"
    if kilobytes == 8:
        full += f" && (cat /dev/zero > {root}/filler 2> /dev/null || true)"
    arguments = [argument.format(log=log) for argument in arguments]
    assert_one_sentence(run_mounted(apart, project, full, *arguments), "disk is full")


@pytest.mark.parametrize("arguments", [("device", "detect"), ("models",)], ids=" ".join)
def test_command_says_that_the_folder_is_read_only(apart, project, arguments):
    root = shlex.quote(str(project.root))
    read_only = f"mount --bind {root} {root} && mount -o remount,ro,bind {root}"
    assert_one_sentence(run_mounted(apart, project, read_only, *arguments), str(project.root), "read-only")


@pytest.fixture
def in_git(project, tmp_path) -> tuple[Project, Path]:
    """A project in git, and a log to import there."""
    subprocess.run(["git", "init", "--quiet"], cwd=project.root, check=True)
    project.ok("device", "add", "d", "--target", TARGET)
    return project, save_log(tmp_path / "tuning.log", 3)


def test_import_says_what_to_do_when_git_is_missing(in_git, tmp_path):
    project, log = in_git
    message = project.fail("import", log, "--device", "d", code=1, PATH=str(tmp_path))
    assert "git is not installed" in message
    assert project.ok("import", log, "--device", "d")["new"] == 0  # the records were kept


def test_import_says_what_to_do_when_git_suspects_the_owner(in_git):
    project, log = in_git
    message = project.fail("import", log, "--device", "d", code=1, GIT_TEST_ASSUME_DIFFERENT_OWNER="1")
    assert "dubious ownership" in message and "safe.directory" in message


def test_models_names_the_server_when_there_is_no_network(project):
    away = {"TCL_MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0"}
    message = project.fail("models", code=1, **away)
    assert "http://127.0.0.1:9" in message


@pytest.fixture(scope="module")
def moved(pristine, tmp_path_factory) -> Project:
    """The learnt project at another place, without the caches that may be deleted."""
    root = tmp_path_factory.mktemp("moved") / "project"
    shutil.copytree(pristine.root, root)
    shutil.rmtree(root / ".tcl")
    return Project(root)


def test_compile_finds_the_cost_model_when_the_project_was_moved(moved):
    compiled = moved.ok("compile", "matmul16.onnx", "--device", DEVICE, "--trials", "0", "-o", "elsewhere")
    assert compiled["cost_model"]["name"] == f"tcl-cost-{DEVICE}"


def test_distill_makes_the_newest_version_when_the_clock_was_set_back(moved, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import time\nnow = time.time\ntime.time = lambda: now() - 400 * 24 * 3600\n"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    before = max(v["version"] for v in moved.ok("models")["models"] if v["owner"] == DEVICE)
    model = moved.ok("distill", "--device", DEVICE, "--again", PYTHONPATH=path)["model"]
    assert model["version"] == before + 1 and "challenger" in model["aliases"]
    assert list(moved.root.glob(f"mlruns/{model['run_id']}/artifacts/weights/*"))


def test_compile_says_what_is_gone_when_artifacts_were_deleted(moved):
    shutil.rmtree(moved.root / "mlruns")
    shutil.rmtree(moved.root / ".tcl" / "models")
    message = moved.fail("compile", "matmul16.onnx", "--device", DEVICE, "-o", "elsewhere", code=1)
    assert (
        "weights.safetensors" in message
        and str(moved.root / "mlruns") in message
        and "tcl distill" in message
    )
