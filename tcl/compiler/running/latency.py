"""Latency of packages, and of onnxruntime on the same model: fresh processes in turn, on the same cores."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcl.compiler.frontend.inputs import random_inputs, read_inputs, save_inputs
from tcl.compiler.frontend.reader import saved_onnx
from tcl.compiler.packaging.manifest import Manifest
from tcl.compiler.running.priority import raise_priority
from tcl.compiler.running.remote import RemotePackage, run_on_board
from tcl.devices.device import Rpc
from tcl.errors import BadInput, WorkFailed
from tcl.processes import run_module, why_failed

if TYPE_CHECKING:
    from tcl.compiler.frontend.model import OnnxModel

ONNXRUNTIME = "onnxruntime"
_WARM_UP_SECONDS = 0.3
_RUN_SECONDS = 0.7
_MAX_RUNS = 500
_BOARD_SECONDS = 600.0  # that a round on a board may take


@dataclass(frozen=True)
class Latency:
    """Latency of one contender.

    Attributes
    ----------
    rounds
        Seconds: the median of each round, i.e. of each fresh process.
    threads
        Threads it ran on.
    """

    rounds: tuple[float, ...]
    threads: int

    @property
    def median(self) -> float:
        """Median of the rounds, in seconds."""
        return statistics.median(self.rounds)

    def to_json(self) -> dict[str, Any]:
        """Return the median, the fastest and slowest round, the rounds (all in seconds) and the threads."""
        return {
            "median_seconds": self.median,
            "min_seconds": min(self.rounds),
            "max_seconds": max(self.rounds),
            "rounds": list(self.rounds),
            "threads": self.threads,
        }

    def ratio(self, other: Latency) -> tuple[float, float, float]:
        """How many times slower this is than `other`: median, lowest and highest over the pairs of one round.

        The machine's speed drifts between rounds; within a pair it hardly does.
        """
        ratios = [mine / its for mine, its in zip(self.rounds, other.rounds, strict=True)]
        return statistics.median(ratios), min(ratios), max(ratios)


def benchmark(
    packages: Mapping[str, Path],
    model: OnnxModel | None = None,
    rounds: int = 3,
    rpc: Rpc | None = None,
    others: Mapping[str, tuple[str, str, str]] | None = None,
) -> dict[str, Latency]:
    """Time packages of one model, and onnxruntime on it, in turn.

    Each measurement is a process of its own (threads of one engine that spin after a run would slow the
    next), bound to as many cores as the device has. The order is reversed from round to round. All get the
    same inputs.

    Parameters
    ----------
    packages
        Folders of packages by a name for each.
    model
        The model, to time onnxruntime as ``onnxruntime``; None to leave it out.
    rounds
        Processes for each contender.
    rpc
        The board to run the packages on, timed by its own clock; None: this machine. onnxruntime always runs here, so
        leave it out with a board.
    others
        Further engines by name: a module that is run with two arguments of its own and then those of this module's
        `_main`, and prints the seconds of its runs as JSON.

    Returns
    -------
    dict
        A `Latency` by name, in the order given: packages, onnxruntime, others.

    Raises
    ------
    BadInput
        When a package is damaged or not for this machine, or the packages have different inputs.
    WorkFailed
        When a contender fails.
    DeviceLost
        When the board cannot be reached, or goes away meanwhile.
    """
    manifests = {name: Manifest.read(folder) for name, folder in packages.items()}
    inputs = next(iter(manifests.values())).inputs
    if any(manifest.inputs != inputs for manifest in manifests.values()):
        raise BadInput("the packages to compare have different inputs; compare packages of one model")
    cores = sorted(_affinity())
    threads = next(iter(manifests.values())).cores
    if rpc is None:
        threads = min(threads, len(cores))
    board = json.dumps(rpc and asdict(rpc))
    with ExitStack() as stack:
        feed = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tcl-latency-")), "inputs.npz")
        save_inputs(feed, inputs, random_inputs(inputs, seed=0))
        own = "tcl.compiler.running.latency"
        contenders = {name: (own, "package", str(folder)) for name, folder in packages.items()}
        if model is not None:
            saved = str(stack.enter_context(saved_onnx(model.original, model.path.parent)))
            contenders[ONNXRUNTIME] = (own, ONNXRUNTIME, saved)
        contenders.update(others or {})
        seconds: dict[str, list[float]] = {name: [] for name in contenders}
        reference = next(iter(packages.values()))
        for index in range(rounds):
            order = list(contenders.items())
            for name, (module, *own_arguments) in order if index % 2 == 0 else reversed(order):
                common = [str(feed), str(reference), ",".join(map(str, cores[:threads])), board]
                seconds[name].append(_run_worker(name, module, [*own_arguments, *common]))
    return {name: Latency(tuple(values), threads) for name, values in seconds.items()}


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _run_worker(name: str, module: str, arguments: list[str]) -> float:
    done = run_module(module, arguments)
    if done.returncode:
        raise WorkFailed(f"{name} failed when it was timed: {why_failed(done)}")
    return statistics.median(json.loads(done.stdout.splitlines()[-1]))


def time_runs(run: Callable[[], Any]) -> list[float]:
    """Seconds of each run, after a warm-up; at least one run of each."""
    runs: list[float] = []
    for limit in (_WARM_UP_SECONDS, _RUN_SECONDS):
        runs, start = [], time.perf_counter()
        while not runs or (time.perf_counter() - start < limit and len(runs) < _MAX_RUNS):
            before = time.perf_counter()
            run()
            runs.append(time.perf_counter() - before)
    return runs


def _main(kind: str, contender: str, feed_file: str, package: str, cores: str, rpc: str) -> None:
    """Time one contender in this process and print the seconds of its runs."""
    feed = read_inputs(Path(feed_file), Manifest.read(Path(package)).inputs)
    board = json.loads(rpc)
    if board is None:
        print(json.dumps(_time_here(kind, contender, feed, {int(core) for core in cores.split(",")})))
    else:
        run_on_board(board, lambda: print(json.dumps(_time_there(contender, feed, board))))


def _time_here(kind: str, contender: str, feed: Any, cores: set[int]) -> list[float]:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    raise_priority()
    os.environ["TVM_BIND_THREADS"] = (
        "1"  # this process is the program's alone, so it may have each thread on its core
    )
    run: Callable[[Any], Any]
    if kind == ONNXRUNTIME:
        from tcl.compiler.frontend.reference import Reference

        run = Reference(Path(contender), threads=len(cores), fused_quantisation=True)
    else:
        from tcl.compiler.running.loader import load

        run = load(contender)
    return time_runs(lambda: run(feed))


def _time_there(contender: str, feed: Any, board: dict[str, Any]) -> list[float]:
    package = RemotePackage(contender, board, _BOARD_SECONDS)
    package.time(feed, _WARM_UP_SECONDS, _MAX_RUNS)
    return package.time(feed, _RUN_SECONDS, _MAX_RUNS)


if __name__ == "__main__":
    _main(*sys.argv[1:])
