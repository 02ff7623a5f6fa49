"""Kills commands at random moments and looks at what is left (`make chaos`).

Of each job, a chain of runs of the same command is killed with SIGKILL, each at a random moment; then one run is left
alone. After every kill and after the last run, the promises of the product must hold:

* what was written stays: records on disk, whole packages, registered versions with their files;
* nothing stays that should not: processes, temporary files, half-made folders, locks;
* the last run finishes.

The moments come from a seed; where in the program they fall still depends on the machine's speed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from command_line import DEVICE, QUICK, TCL, clean_environment, save_convolution, save_matmul

CHAIN = 5  # kills before a run is left alone
MARK = "TCL_CHAOS_RUN"  # in the environment of every process that a run starts
ORPHAN_SECONDS = 60.0
RUN_SECONDS = 900.0


@dataclass(frozen=True)
class Job:
    """A command, and how its project is prepared; `prepare` gets the template's folder."""

    name: str
    arguments: tuple[str, ...]
    prepare: Callable[[Path], None]


class Broken(Exception):
    """A promise that did not hold."""


def environment(temporary: Path, mark: str) -> dict[str, str]:
    return clean_environment() | QUICK | {"TMPDIR": str(temporary), MARK: mark}


def start(project: Path, arguments: tuple[str, ...], temporary: Path, mark: str) -> subprocess.Popen[bytes]:
    log = (project.parent / "log.txt").open("ab")
    with log:
        return subprocess.Popen(
            [TCL, *arguments],
            cwd=project,
            env=environment(temporary, mark),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def finish(project: Path, arguments: tuple[str, ...], temporary: Path, mark: str) -> float:
    """Let a run end by itself; returns its seconds."""
    began = time.monotonic()
    process = start(project, arguments, temporary, mark)
    try:
        code = process.wait(RUN_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise Broken(f"the run did not finish within {RUN_SECONDS:g} s") from None
    if code:
        raise Broken(f"the run ended with {code}: {last_line(project)}")
    return time.monotonic() - began


def last_line(project: Path) -> str:
    return (project.parent / "log.txt").read_text(errors="replace").strip().splitlines()[-1]


# What a project holds


def records_of(project: Path) -> set[int]:
    """Content ids of all records on disk: in the stores and in the lines of the journals."""
    from tcl.records.record import MeasureRecord
    from tcl.records.store import RecordStore

    found = set()
    for root in (project / "data", project / ".tcl" / "tuning"):
        store = RecordStore(root)
        for device in store.devices():
            found |= {record.content_id() for record in store.records(device)}
    for journal in (project / ".tcl" / "journals").glob("*.jsonl"):
        for line in journal.read_bytes().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # the one line that a kill may cost
            found |= {MeasureRecord.from_json(value).content_id() for value in entry["records"]}
    return found


def check_packages(project: Path) -> None:
    from tcl.compiler.manifest import MANIFEST, Manifest
    from tcl.files import sha256_file

    for folder in (project / "packages").glob("[!.]*"):
        manifest = Manifest.read(folder)
        present = {
            path.relative_to(folder).as_posix(): sha256_file(path)
            for path in folder.rglob("*")
            if path.is_file() and path.name != MANIFEST
        }
        if present != manifest.files or manifest.verification is None:
            raise Broken(f"{folder.name} is half a package")


def check_registry(project: Path) -> None:
    """Every version has its files, fetched anew as a compile would."""
    from tcl.errors import TclError
    from tcl.registry.registry import Registry
    from tcl.settings import load_settings

    if not (project / "mlflow.db").exists():
        return
    settings = load_settings(project, environ={})
    registry = Registry(settings)
    shutil.rmtree(settings.models_dir, ignore_errors=True)
    try:
        for version in registry.list():
            registry.fetch(version)
    except TclError as error:
        raise Broken(f"the registry is not whole: {error}") from error


def check_nothing_left(project: Path, temporary: Path) -> None:
    litter = [str(path) for path in temporary.iterdir()]
    # DVC keeps its own temporary files, and MLflow's artifacts of a killed run belong to no version
    litter += [
        str(path)
        for path in project.rglob("*.tmp")
        if not {".dvc", ".dvcstore", "mlruns"} & set(path.relative_to(project).parts)
    ]
    litter += [str(path) for path in (project / ".tcl").rglob("*.holder")]
    if litter:
        raise Broken(f"left behind: {', '.join(litter)}")


def processes_of(mark: str) -> list[int]:
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_for_orphans(mark: str) -> None:
    end = time.monotonic() + ORPHAN_SECONDS
    while orphans := processes_of(mark):
        if time.monotonic() > end:
            for pid in orphans:
                os.kill(pid, signal.SIGKILL)
            raise Broken(f"{len(orphans)} orphan processes after {ORPHAN_SECONDS:g} s")
        time.sleep(0.2)


# The jobs


def run_in(project: Path, *arguments: str) -> None:
    subprocess.run(
        [TCL, *arguments], cwd=project, env=clean_environment() | QUICK, check=True, capture_output=True
    )


def with_device(project: Path) -> None:
    for columns in (16, 32, 48):
        save_matmul(project / f"matmul{columns}.onnx", columns)
    save_convolution(project / "convolution.onnx")
    run_in(project, "device", "detect", "--name", DEVICE)


def with_records(project: Path) -> None:
    with_device(project)
    models = sorted(path.name for path in project.glob("*.onnx"))
    run_in(project, "measure", *models, "--device", DEVICE, "--budget", "16", "--sampler", "random")


def with_package(project: Path) -> None:
    with_records(project)
    run_in(project, "distill", "--device", DEVICE)
    run_in(project, "compile", "matmul16.onnx", "--device", DEVICE, "--trials", "0", "-o", "packages/old")


def with_log(project: Path) -> None:
    with_device(project)
    steps = '[["SP",2,0,1000,[20],1],["PR",2,0,"auto_unroll_max_step$64"]]'
    key = '[\\"matmul\\",[1,64],[64,32]]'
    with (project / "tuning.log").open("w") as log:
        for index in range(3000):
            numbers = f"[{index + 1e-5}],0,0.1,{1600000000 + index}"
            log.write(f'{{"i":[["{key}","llvm"],[[],{steps}]],"r":[{numbers}],"v":"v0.6"}}\n')


MODELS = ("matmul16.onnx", "convolution.onnx")
JOBS = (
    Job(
        "measure",
        ("measure", *MODELS, "--device", DEVICE, "--budget", "12", "--sampler", "random"),
        with_device,
    ),
    Job("distill", ("distill", "--device", DEVICE), with_records),
    Job(
        "compile",
        ("compile", "matmul16.onnx", "--device", DEVICE, "--trials", "8", "-o", "packages/old"),
        with_package,
    ),
    Job("version", ("import", "tuning.log", "--device", DEVICE), with_log),
)


def torment(job: Job, moments: int, rng: random.Random, folder: Path) -> list[str]:
    """Kill a job's command at so many moments; returns what was broken."""
    template, temporary = folder / "template" / "project", folder / "tmp"
    template.mkdir(parents=True)
    temporary.mkdir()
    job.prepare(template)
    trial = copy_of(template, folder / "trial")
    seconds = finish(trial, job.arguments, temporary, uuid.uuid4().hex)
    shutil.rmtree(trial.parent)
    print(f"{job.name}: an undisturbed run takes {seconds:.1f} s", flush=True)
    broken: list[str] = []
    chains = kills = 0
    while kills < moments:
        project = copy_of(template, folder / f"chain{chains}")
        delays = [rng.uniform(0, seconds) for _ in range(min(CHAIN, moments - kills))]
        try:
            kills += run_chain(job, project, temporary, delays)
        except Broken as error:
            kills += 1
            listed = ", ".join(f"{delay:.2f}" for delay in delays)
            broken.append(f"{job.name}, chain {chains} ({listed} s): {error}")
            print(broken[-1], flush=True)
            shutil.rmtree(temporary)
            temporary.mkdir()
        else:
            shutil.rmtree(project.parent)
        chains += 1
    print(f"{job.name}: killed {kills} times in {chains} chains, {len(broken)} of them broken", flush=True)
    return broken


def run_chain(job: Job, project: Path, temporary: Path, delays: list[float]) -> int:
    """Kill runs after these delays, until one ends before its time, and let a last one finish; returns the kills."""
    written, kills = records_of(project), 0
    for delay in delays:
        mark = uuid.uuid4().hex
        process = start(project, job.arguments, temporary, mark)
        try:
            code = process.wait(delay)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = None
            kills += 1
        if code:
            raise Broken(f"a run after a kill ended with {code}: {last_line(project)}")
        wait_for_orphans(mark)
        check_packages(project)
        check_registry(project)
        now = records_of(project)
        if written - now:
            raise Broken(f"{len(written - now)} records are lost")
        written = now
        if code == 0:
            break
    mark = uuid.uuid4().hex
    finish(project, job.arguments, temporary, mark)
    wait_for_orphans(mark)
    if written - records_of(project):
        raise Broken(f"{len(written - records_of(project))} records are lost after the last run")
    check_packages(project)
    check_registry(project)
    check_nothing_left(project, temporary)
    return kills


def copy_of(template: Path, folder: Path) -> Path:
    """A project of its own; MLflow's addresses must follow it."""
    shutil.copytree(template, folder / "project")
    return folder / "project"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--moments", type=int, default=50, help="of each job")
    parser.add_argument("--jobs", nargs="*", default=[job.name for job in JOBS])
    options = parser.parse_args()
    broken = []
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    for job in JOBS:
        if job.name in options.jobs:
            rng = random.Random(f"{options.seed} {job.name}")
            broken += torment(job, options.moments, rng, folder / job.name)
    if broken:
        print(f"the broken projects and their logs are in {folder}")
    else:
        shutil.rmtree(folder)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
