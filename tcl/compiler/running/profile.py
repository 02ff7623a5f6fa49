"""Where a package spends its time: each call of its virtual machine, beside the machine's measured peak."""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tcl.compiler.frontend.inputs import random_inputs
from tcl.compiler.packaging.manifest import Manifest
from tcl.compiler.running.priority import raise_priority
from tcl.devices.host import usable_cores
from tcl.errors import WorkFailed
from tcl.processes import run_module, why_failed

_WARM_UPS = 5
_SECONDS = 1.0
_MAX_RUNS = 100


@dataclass(frozen=True)
class CallProfile:
    """One function that the virtual machine calls.

    Attributes
    ----------
    name
        The compiled function, or ``vm.builtin.*`` of the runtime.
    calls
        In one run of the model.
    seconds
        Of all these calls together, median over the runs.
    """

    name: str
    calls: int
    seconds: float

    @property
    def is_runtime(self) -> bool:
        """Whether it is what the virtual machine itself does: allocate, check, reshape."""
        return self.name.startswith("vm.builtin.")


@dataclass(frozen=True)
class Profile:
    """Times of a package's runs.

    Attributes
    ----------
    calls
        The functions, slowest first. Their times contain the observer's own, a few microseconds a call.
    run_seconds
        Median of a whole run without an observer.
    peak_flops
        Float32 operations a second that the same threads reach in `tcl.compiler.running.peak`.
    threads
        Threads of both.
    """

    calls: tuple[CallProfile, ...]
    run_seconds: float
    peak_flops: float
    threads: int


def profile(folder: Path) -> Profile:
    """Profile the package in `folder` on random inputs, in a process of its own that has its cores to itself.

    Raises
    ------
    BadInput
        When the folder is no package, or one that this machine cannot run.
    WorkFailed
        When the package fails.
    """
    Manifest.read(folder)
    done = run_module("tcl.compiler.running.profile", [str(folder)])
    if done.returncode:
        raise WorkFailed(f"{folder}: the package failed when it was profiled: {why_failed(done)}")
    answer = json.loads(done.stdout.splitlines()[-1])
    return Profile(**{**answer, "calls": tuple(CallProfile(**call) for call in answer["calls"])})


class _Observer:
    """Times every call of a virtual machine."""

    def __init__(self) -> None:
        self._start = 0.0
        self._seconds: dict[str, list[float]] = defaultdict(list)

    def __call__(self, _function: Any, name: str, before: bool, _result: Any, *_arguments: Any) -> int:
        now = time.perf_counter()
        if not before:
            self._seconds[name].append(now - self._start)
        self._start = time.perf_counter()
        return 0  # go on with the call

    def take(self) -> dict[str, list[float]]:
        """Seconds of each call since the last time, by function."""
        taken, self._seconds = self._seconds, defaultdict(list)
        return taken


def _repeat(run: Callable[[], Any]) -> list[float]:
    for _ in range(_WARM_UPS):
        run()
    seconds: list[float] = []
    while sum(seconds) < _SECONDS and len(seconds) < _MAX_RUNS:
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return seconds


def _profile_here(folder: Path) -> Profile:
    from tcl.compiler.running.loader import load
    from tcl.compiler.running.peak import measure_peak

    package = load(folder)
    feed = random_inputs(package.inputs, seed=0)
    whole = statistics.median(_repeat(lambda: package(feed)))
    observer = _Observer()
    package.observe(observer)
    runs: list[dict[str, list[float]]] = []

    def observed() -> None:
        package(feed)
        runs.append(observer.take())

    gc.disable()
    _repeat(observed)
    gc.enable()
    calls = [
        CallProfile(str(name), len(times), statistics.median(sum(run[name]) for run in runs[_WARM_UPS:]))
        for name, times in runs[-1].items()
    ]
    device = package.manifest.device
    peak = measure_peak(device.target, package.threads, device.vector_bits)
    return Profile(tuple(sorted(calls, key=lambda c: -c.seconds)), whole, peak, package.threads)


def _main(folder: str) -> None:
    threads = min(Manifest.read(Path(folder)).cores, usable_cores())
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    raise_priority()
    os.environ["TVM_BIND_THREADS"] = "1"
    print(json.dumps(asdict(_profile_here(Path(folder)))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
