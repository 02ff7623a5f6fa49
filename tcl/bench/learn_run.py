"""Runs the measurements of the learning benchmark's tables in a few processes.

Each finished one is kept and none is begun when the time is over, so that a run can be bounded, interrupted and
continued.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tcl.bench.learn_baselines import NAMES as TVM_MODELS
from tcl.bench.learn_study import LearnParams, Metrics, Study
from tcl.bench.machine import machine, today
from tcl.console import progress

SAMPLERS = ("random", "u", "d", "r", "du", "ru", "rd", "rdu")
NETWORKS = ("mlp", "lstm", "tlp", "mamba1", "mamba2")
SHARES = (0.25, 0.5)  # of the workloads
METHODS = ("from scratch", "fine-tuning", "joint", "CKD")


@dataclass(frozen=True)
class Work:
    """One measurement: a method of the study, its arguments, and the seed."""

    method: str
    arguments: tuple[Any, ...]
    seed: int


@dataclass(frozen=True)
class Cell:
    """One number of a table: which table and row, and what is measured for it. Rows may share a measurement."""

    table: str
    row: str
    work: Work


def cells(params: LearnParams) -> list[Cell]:
    """The cells of the wanted tables: what the targets speak of seed after seed, then the rest likewise.

    So a run that is cut short has whole seeds.
    """
    wanted = ("bracket", *params.tables)
    found = [*_main_cells(params), *_more_cells(params)]
    return [cell for cell in found if cell.table in wanted]


def _main_cells(params: LearnParams) -> Iterator[Cell]:
    for seed in range(params.seeds):
        for row in ("random", "oracle"):
            yield Cell("bracket", row, Work("bracket", (row,), seed))
        for terms in SAMPLERS:
            yield _sampler(terms, params.fraction, seed)
        yield _sampler("random", 1.0, seed)
        for name in NETWORKS + (TVM_MODELS if params.data == "shipped" else ()):
            yield Cell("network", f"{name}, equal data", Work("network", (name, "data", "random"), seed))
        for method in METHODS:
            yield _transfer(method, params.orders[0], seed)
        yield Cell("ablation", "none", Work("network", ("tlp", "data", "random"), seed))
        yield Cell("ablation", "+RDU", Work("network", ("tlp", "data", "rdu"), seed))
        yield Cell("ablation", "+Mamba", Work("sampler", ("rdu", params.fraction), seed))
        yield Cell("ablation", "+CKD", Work("continual", (), seed))


def _more_cells(params: LearnParams) -> Iterator[Cell]:
    for seed in range(params.seeds):
        for fraction in params.fractions:
            for terms in ("random", "rdu"):
                yield _sampler(terms, fraction, seed)
        for share in SHARES:
            row = f"random {params.fraction:.0%}, {share:.0%} of the workloads"
            yield Cell("sampler", row, Work("workloads", (share,), seed))
        for name in NETWORKS:
            yield Cell("network", f"{name}, equal time", Work("network", (name, "time", "random"), seed))
        for order in params.orders[1:]:
            for method in METHODS:
                yield _transfer(method, order, seed)


def _sampler(terms: str, fraction: float, seed: int) -> Cell:
    return Cell("sampler", f"{terms} {fraction:.0%}", Work("sampler", (terms, fraction), seed))


def _transfer(method: str, order: tuple[str, ...], seed: int) -> Cell:
    return Cell("transfer", f"{method}, {' → '.join(order)}", Work("transfer", (method, order), seed))


@dataclass(frozen=True)
class Run:
    """What is known of a study: metrics of finished cells, cells that there was no time for, days of measuring."""

    results: dict[Cell, Metrics]
    missing: list[Cell]
    days: list[str]


def run(study: Study, path: Path) -> Run:
    """Measure all cells that the time allows.

    Parameters
    ----------
    study
        The data and the sizes.
    path
        Keeps finished measurements, a line each; those of the same data, params, feature version and machine are not
        made again.
    """
    params = study.params
    context = f"{study.digest()}, {machine()}"
    done = _finished(path, context)
    wanted = cells(params)
    left = [work for work in dict.fromkeys(cell.work for cell in wanted) if work not in done]
    deadline = time.monotonic() + 60 * params.minutes
    global _study
    _study = study  # the workers are forks of this process and find the data here
    with (
        ProcessPoolExecutor(params.workers, multiprocessing.get_context("fork"), _one_thread) as pool,
        path.open("a") as file,
        progress("measurements of the learning benchmark", len(left)) as advance,
    ):
        running: dict[Future[Metrics], Work] = {}
        while left or running:
            while left and len(running) < params.workers and time.monotonic() < deadline:
                work = left.pop(0)
                running[pool.submit(_measure, work)] = work
            if not running:
                break
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                work = running.pop(future)
                done[work] = today(), future.result()
                day, metrics = done[work]
                entry = {"context": context, "date": day, "work": asdict(work), "metrics": metrics}
                file.write(json.dumps(entry) + "\n")
                file.flush()
                advance(1, f"{work.method} {work.arguments}")
    results = {cell: done[cell.work][1] for cell in wanted if cell.work in done}
    missing = [cell for cell in wanted if cell not in results]
    return Run(results, missing, [done[cell.work][0] for cell in results])


_study: Study


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _measure(work: Work) -> Metrics:
    return getattr(_study, work.method)(*work.arguments, work.seed)


def _finished(path: Path, context: str) -> dict[Work, tuple[str, Metrics]]:
    """Day and metrics of what is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found: dict[Work, tuple[str, Metrics]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            entry = json.loads(line)
        except ValueError:  # cut by a kill; it is measured again
            continue
        if entry["context"] == context:
            work = {**entry["work"], "arguments": _tuples(entry["work"]["arguments"])}
            found[Work(**work)] = entry["date"], entry["metrics"]
    return found


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
