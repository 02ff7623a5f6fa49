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
import random
import shutil
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
from promises import (
    MARK,
    Broken,
    check_nothing_left,
    check_packages,
    check_registry,
    records_of,
    wait_for_orphans,
)

CHAIN = 5  # kills before a run is left alone
RUN_SECONDS = 900.0


@dataclass(frozen=True)
class Job:
    """A command, and how its project is prepared; `prepare` gets the template's folder."""

    name: str
    arguments: tuple[str, ...]
    prepare: Callable[[Path], None]


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
        chain = Chain(job, project, temporary, seconds)
        try:
            chain.run(min(CHAIN, moments - kills), rng)
        except Broken as error:
            broken.append(f"{job.name}, chain {chains} (killed after {chain.killed} s): {error}")
            print(broken[-1], flush=True)
            shutil.rmtree(temporary)
            temporary.mkdir()
            kills += 1  # lest a command that never works is tried for ever
        else:
            shutil.rmtree(project.parent)
        chains += 1
        kills += len(chain.killed)
        seconds = chain.seconds
        print(f"{job.name}: killed {kills} times in {chains} chains", flush=True)
    print(f"{job.name}: {len(broken)} of {chains} chains broken", flush=True)
    return broken


class Chain:
    """Runs of a command in one project, killed one after the other until one ends before its time; then a last one.

    Attributes
    ----------
    seconds
        What a run takes, as the runs that were left alone tell: moments are drawn from it.
    killed
        Seconds after which runs were killed.
    """

    def __init__(self, job: Job, project: Path, temporary: Path, seconds: float) -> None:
        self._job, self._project, self._temporary = job, project, temporary
        self.seconds = seconds
        self.killed: list[float] = []

    def run(self, kills: int, rng: random.Random) -> None:
        project, written = self._project, records_of(self._project)
        ended = False
        while len(self.killed) < kills and not ended:
            mark = uuid.uuid4().hex
            ended = self._run_or_kill(rng.uniform(0, self.seconds), mark)
            wait_for_orphans(mark)
            written = self._check(written)
        mark = uuid.uuid4().hex
        self._learn(finish(project, self._job.arguments, self._temporary, mark))
        wait_for_orphans(mark)
        self._check(written)
        check_nothing_left(project, self._temporary)

    def _run_or_kill(self, delay: float, mark: str) -> bool:
        """Run the command for so long; tell whether it ended before."""
        began = time.monotonic()
        process = start(self._project, self._job.arguments, self._temporary, mark)
        try:
            code = process.wait(delay)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self.killed.append(round(delay, 2))
            return False
        if code:
            raise Broken(f"a run after a kill ended with {code}: {last_line(self._project)}")
        self._learn(time.monotonic() - began)
        return True

    def _learn(self, seconds: float) -> None:
        self.seconds = (
            self.seconds + seconds
        ) / 2  # the machine's speed changes, and resumed runs are shorter

    def _check(self, written: set[int]) -> set[int]:
        check_packages(self._project)
        check_registry(self._project)
        now = records_of(self._project)
        if written - now:
            raise Broken(f"{len(written - now)} records are lost")
        return now


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
