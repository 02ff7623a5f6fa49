"""The tuning benchmark's figures: of each search, of the comparisons with TCL and of the tuned packages."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tcl.bench.tune_curves import Kept, covered_seconds, curve, final_estimate
from tcl.bench.tune_run import Runner
from tcl.bench.tune_study import cells

_HEAVY = 0.05  # of the network's time, from which a program is in the table of kernels

Summary = dict[str, Any]


def summarise(runner: Runner) -> Summary:
    """Everything that is known by now of a study, by network."""
    found: Summary = {}
    for network in runner.params.networks:
        stem = Path(network).stem
        if (start := runner.read(f"{stem}.start")) is None:
            continue
        timed = runner.read(f"{stem}.latency") or {"latency": {}, "refused": {}}
        searches: dict[str, list[Summary]] = {}
        peak = 0.0
        for cell in cells(runner.params):
            if cell.network == network and (kept := runner.read(cell.name)) is not None:
                peak = max(peak, kept["peak_flops"])
                rounds = timed["latency"].get(cell.name, {}).get("rounds")
                searches.setdefault(cell.contender, []).append(
                    {
                        "seed": cell.seed,
                        "limit": cell.trials,
                        **_search(start, kept),
                        "package_rounds": rounds,
                    }
                )
        engines = {name: entry["rounds"] for name, entry in timed["latency"].items() if "." not in name}
        found[stem] = {
            "programs": len(start["tasks"]),
            "read_seconds": start["read_seconds"],
            "peak_gflops": peak / 1e9,
            "searches": searches,
            "engines": engines,
            "refused": timed["refused"],
            "kernels": _kernels(runner, network, start, peak),
            "run": _run_parts(runner, network, start, peak),
            "comparison": _compare(runner, network, start, timed["latency"]),
        }
    return found


def _search(start: Kept, kept: Kept) -> Summary:
    """The figures of one search."""
    covered = covered_seconds(start, kept)
    tuned = kept["seconds"] if not kept["trials"] else covered
    return {
        "final_seconds": final_estimate(start, kept),
        "search_seconds": kept["seconds"],
        "trials": len(kept["trials"]),
        "failures": sum(latency is None for _, _, latency in kept["trials"]),
        "stopped": kept["stopped"],
        "first_package_seconds": None
        if tuned is None
        else start["read_seconds"] + tuned + kept["package_seconds"],
        "max_rel_error": kept["max_rel_error"],
        "refused": kept["refused"],
    }


def reach(points: Iterable[tuple[float, int, float]], latency: float) -> tuple[float, int] | None:
    """(seconds, trials) after which a curve is at or below a latency; None where it never is."""
    return next(((seconds, trials) for seconds, trials, found in points if found <= latency), None)


def _compare(runner: Runner, network: str, start: Kept, timed: Kept) -> list[Summary]:
    """TCL against each other contender that measures, seed by seed.

    `speedup` is how many times sooner TCL was at the other's final latency than the other itself; where TCL never was,
    `reached` is false and `speedup` is what it would be had it been there at the end of its search: an upper bound.
    """
    found = []
    by_name = {(cell.contender, cell.seed): cell for cell in cells(runner.params) if cell.network == network}
    for (contender, seed), cell in by_name.items():
        mine = runner.read(by_name["tcl", seed].name) if ("tcl", seed) in by_name else None
        theirs = runner.read(cell.name)
        if contender in ("tcl", "tcl-0", "stock") or mine is None or theirs is None or not theirs["trials"]:
            continue
        goal = final_estimate(start, theirs)
        there = reach(curve(start, theirs), goal)
        here = reach(curve(start, mine), goal)
        assert there is not None, "a curve reaches its own end"
        seconds = here[0] if here else mine["seconds"]
        found.append(
            {
                "contender": contender,
                "seed": seed,
                "seconds": there[0],
                "tcl_seconds": seconds,
                "reached": here is not None,
                "speedup": there[0] / seconds if seconds > 0 else None,
                "estimate_ratio": goal / final_estimate(start, mine),
                "package_ratio": paired(
                    *(timed.get(name, {}).get("rounds") for name in (cell.name, by_name["tcl", seed].name))
                ),
            }
        )
    return found


def _kernels(runner: Runner, network: str, start: Kept, peak: float) -> list[Summary]:
    """TCL's heavy programs with the first seed: share of the network's time and of the machine's peak."""
    cell = next((c for c in cells(runner.params) if c.network == network and c.contender == "tcl"), None)
    kept = runner.read(cell.name) if cell else None
    if kept is None:
        return []
    best = dict(start["default_seconds"])
    for _, key, latency in kept["trials"]:
        if latency is not None:
            best[key] = min(latency, best.get(key, math.inf))
    total = sum(task["weight"] * best[task["key"]] for task in start["tasks"] if task["key"] in best)
    rows = []
    for task in start["tasks"]:
        if task["key"] in best and task["weight"] * best[task["key"]] > _HEAVY * total:
            rate = task["flops"] / best[task["key"]]
            rows.append(
                {
                    "program": task["name"],
                    "op": task["op"],
                    "calls": task["weight"],
                    "share_of_time": task["weight"] * best[task["key"]] / total,
                    "gflops": rate / 1e9,
                    "share_of_peak": rate / peak,
                }
            )
    return sorted(rows, key=lambda row: -row["share_of_time"])


def _run_parts(runner: Runner, network: str, start: Kept, peak: float) -> Summary | None:
    """What makes up a run of the package of TCL's first seed, from the machine's peak to the whole."""
    kept = runner.read(f"{Path(network).stem}.profile")
    cell = next((c for c in cells(runner.params) if c.network == network and c.contender == "tcl"), None)
    found = runner.read(cell.name) if cell else None
    if kept is None or found is None:
        return None
    flops = sum(task["weight"] * task["flops"] for task in start["tasks"])
    parts = {f"{name}_seconds": seconds for name, seconds in kept["part_seconds"].items()}
    return {
        "at_peak_seconds": flops / peak,
        "alone_seconds": final_estimate(start, found),
        **parts,
        "run_seconds": kept["run_seconds"],
    }


def geometric_mean(values: Sequence[float]) -> float | None:
    """Of positive numbers; None without any."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else None


def curves_csv(runner: Runner) -> str:
    """Every trial of every search: what the plots and `dvc plots show` draw."""
    lines = ["network,contender,seed,seconds,trials,network_seconds"]
    for cell in cells(runner.params):
        stem = Path(cell.network).stem
        start, kept = runner.read(f"{stem}.start"), runner.read(cell.name)
        if start and kept and kept["trials"]:
            prefix = f"{stem},{cell.contender},{cell.seed}"
            lines += [f"{prefix},{s:.1f},{n},{latency:.6g}" for s, n, latency in curve(start, kept)]
    return "\n".join(lines) + "\n"


def paired(rounds: Sequence[float] | None, base: Sequence[float] | None) -> float | None:
    """Median quotient of the rounds that were beside one another."""
    if not rounds or not base:
        return None
    return statistics.median(mine / its for mine, its in zip(rounds, base, strict=True))
