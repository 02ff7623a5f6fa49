"""Runs the cells of the learning benchmark's tables in a few processes.

Each finished cell is kept and none is begun when the time is over, so that a run can be bounded, interrupted and
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

import numpy as np

from tcl.bench.learn_baselines import NAMES as TVM_MODELS
from tcl.bench.learn_study import LearnParams, Metrics, Study
from tcl.console import progress
from tcl.features.batch import FEATURE_VERSION

SAMPLERS = ("random", "u", "d", "r", "du", "ru", "rd", "rdu")
NETWORKS = ("mlp", "lstm", "tlp", "mamba1", "mamba2")
METHODS = ("from scratch", "fine-tuning", "joint", "CKD")
ABLATION = ("none", "+RDU", "+Mamba", "+CKD")


@dataclass(frozen=True)
class Cell:
    """One number of a table: which table and row, and which seed; `arguments` go to the study's method."""

    table: str
    row: str
    seed: int
    arguments: tuple[Any, ...]


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
            yield Cell("bracket", row, seed, (row,))
        for terms in SAMPLERS:
            yield _sampler(terms, params.fraction, seed)
        yield _sampler("random", 1.0, seed)
        for name in NETWORKS + (TVM_MODELS if params.data == "shipped" else ()):
            yield Cell("network", f"{name}, equal data", seed, (name, "data"))
        for method in METHODS:
            yield _transfer(method, params.orders[0], seed)
        for row in ABLATION:
            yield Cell("ablation", row, seed, (row,))


def _more_cells(params: LearnParams) -> Iterator[Cell]:
    for seed in range(params.seeds):
        for fraction in params.fractions:
            for terms in ("random", "rdu"):
                yield _sampler(terms, fraction, seed)
        for name in NETWORKS:
            yield Cell("network", f"{name}, equal time", seed, (name, "time"))
        for order in params.orders[1:]:
            for method in METHODS:
                yield _transfer(method, order, seed)


def _sampler(terms: str, fraction: float, seed: int) -> Cell:
    return Cell("sampler", f"{terms} {fraction:.0%}", seed, (terms, fraction))


def _transfer(method: str, order: tuple[str, ...], seed: int) -> Cell:
    return Cell("transfer", f"{method}, {' → '.join(order)}", seed, (method, order))


def run(study: Study, folder: Path) -> tuple[dict[Cell, Metrics], list[Cell]]:
    """Measure all cells that the time allows.

    Parameters
    ----------
    study
        The data and the sizes.
    folder
        Keeps finished cells (`cells.jsonl`) of the same data, params and feature version.

    Returns
    -------
    results, missing
        The metrics of each finished cell, and the cells that there was no time for.
    """
    params = study.params
    context = _context(study)
    results = _finished(folder / "cells.jsonl", context)
    left = [cell for cell in cells(params) if cell not in results]
    deadline = time.monotonic() + 60 * params.minutes
    global _study
    _study = study  # the workers are forks of this process and find the data here
    with (
        ProcessPoolExecutor(params.workers, multiprocessing.get_context("fork"), _one_thread) as pool,
        (folder / "cells.jsonl").open("a") as file,
        progress("cells of the learning benchmark", len(left)) as advance,
    ):
        running: dict[Future[Metrics], Cell] = {}
        while left or running:
            while left and len(running) < params.workers and time.monotonic() < deadline:
                cell = left.pop(0)
                running[pool.submit(_measure, cell)] = cell
            if not running:
                break
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                cell = running.pop(future)
                results[cell] = future.result()
                file.write(
                    json.dumps({"context": context, "cell": asdict(cell), "metrics": results[cell]}) + "\n"
                )
                file.flush()
                advance(1, f"{cell.table} {cell.row}")
    return results, left


_study: Study


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _measure(cell: Cell) -> Metrics:
    return getattr(_study, cell.table)(*cell.arguments, cell.seed)


def _context(study: Study) -> dict[str, Any]:
    """What a kept cell must agree with to be used."""
    sizes = asdict(study.params)
    for name in (
        "minutes",
        "workers",
        "seeds",
        "orders",
        "fractions",
    ):  # which cells there are, not what they give
        sizes.pop(name)
    data = {
        name: [len(dataset), float(np.log(dataset.weights).sum())] for name, dataset in study.datasets.items()
    }
    return json.loads(json.dumps({"params": sizes, "data": data, "feature_version": FEATURE_VERSION}))


def _finished(path: Path, context: dict[str, Any]) -> dict[Cell, Metrics]:
    path.parent.mkdir(parents=True, exist_ok=True)
    found: dict[Cell, Metrics] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            entry = json.loads(line)
        except ValueError:  # cut by a kill; the cell runs again
            continue
        if entry["context"] == context:
            found[Cell(**{**entry["cell"], "arguments": _tuples(entry["cell"]["arguments"])})] = entry[
                "metrics"
            ]
    return found


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
