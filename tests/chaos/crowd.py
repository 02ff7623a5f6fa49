"""Eight compiles and two distillations at once against one registry (`make crowd`): time, peak memory, nothing lost."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))

from chaos import run_in, with_package
from command_line import DEVICE, QUICK, TCL, clean_environment
from promises import check_packages, check_registry, records_of

COMPILES, LEARNERS = 8, ("left", "right")
MODELS = ("matmul16.onnx", "matmul32.onnx", "matmul48.onnx", "convolution.onnx")


def prepare(project: Path) -> None:
    """A learnt device, and two devices whose copies of its records nobody has learnt."""
    from dataclasses import replace

    from tcl.records.store import RecordStore

    with_package(project)
    store = RecordStore(project / "data")
    target = json.dumps(json.loads((project / "devices" / f"{DEVICE}.json").read_text())["target"])
    for name in LEARNERS:
        run_in(project, "device", "add", name, "--target", target)
        records = [replace(record, device=name) for record in store.records(DEVICE)]
        store.append(store.workloads(DEVICE).values(), records)


def start_all(project: Path) -> list[subprocess.Popen[str]]:
    commands = [
        ("compile", MODELS[n % len(MODELS)], "--device", DEVICE, "--trials", "4", "-o", f"packages/{n}")
        for n in range(COMPILES)
    ]
    commands += [("distill", "--device", name) for name in LEARNERS]
    return [
        subprocess.Popen(
            [TCL, *command],
            cwd=project,
            env=clean_environment() | QUICK,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]


def memory_of(processes: list[subprocess.Popen[str]]) -> int:
    """Bytes of the processes and all their children; shared pages count once (proportional set size)."""
    total = 0
    for process in processes:
        try:
            parent = psutil.Process(process.pid)
            for each in (parent, *parent.children(recursive=True)):
                total += each.memory_full_info().pss
        except psutil.Error:
            continue
    return total


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="crowd-") as folder:
        project = Path(folder, "project")
        project.mkdir()
        prepare(project)
        before = records_of(project)
        began, peak = time.monotonic(), 0
        processes = start_all(project)
        while any(process.poll() is None for process in processes):
            peak = max(peak, memory_of(processes))
            time.sleep(0.5)
        seconds = time.monotonic() - began
        for process in processes:
            error = process.stderr.read() if process.stderr else ""
            assert process.returncode == 0, error[-500:]
        assert before <= records_of(project), "records are lost"
        check_packages(project)
        check_registry(project)
        packages = [path for path in (project / "packages").iterdir() if path.name.isdigit()]
        assert len(packages) == COMPILES
        code = (
            "from tcl.registry.registry import Registry\n"
            "from tcl.registry.store import open_store\n"
            "from tcl.settings import load_settings\n"
            "settings = load_settings()\n"
            "client, experiment = open_store(settings)\n"
            "runs = client.search_runs([experiment], \"tags.kind = 'compile'\")\n"
            "print(len(runs), *sorted({v.owner for v in Registry(settings).list()}))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True
        )
        runs, *owners = done.stdout.strip().split(maxsplit=1)
        assert int(runs) == COMPILES + 1, runs  # and the one that prepared the project
        print(
            f"{COMPILES} compiles and {len(LEARNERS)} distillations: {seconds:.0f} s, peak memory {peak / 1e9:.1f} GB"
        )
        print(
            f"compile runs in MLflow: {runs}; cost models of: {' '.join(owners)}; records {len(records_of(project))}"
        )


if __name__ == "__main__":
    main()
