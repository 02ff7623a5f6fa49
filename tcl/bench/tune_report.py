"""The tuning benchmark's results: figures of each search, comparisons with TCL, and the Markdown report."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tcl.bench.tune_run import Kept, Runner, covered_seconds, curve, final_estimate
from tcl.bench.tune_study import CONTENDERS, cells

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
                "package_ratio": _paired(
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


def markdown(studies: dict[str, Summary]) -> str:
    """The report of what `tcl.bench.tune` stores of each study."""
    lines = ["# Tuning benchmark", "", *_INTRODUCTION, ""]
    lines += [f"- **{name}**: {text}." for name, text in CONTENDERS.items()]
    for name, study in studies.items():
        lines += ["", f"## {name}", "", f"`{study['command']}`, {study['date']}, {study['machine']}.", ""]
        lines += [f"Sizes: {', '.join(f'{key} {value}' for key, value in study['params'].items())}.", ""]
        lines += [f"Models: {', '.join(f'{key} {value}' for key, value in study['models'].items())}.", ""]
        if study["missing"]:
            lines += [f"Not run for want of time: {', '.join(study['missing'])}.", ""]
        lines += _searches_table(study["networks"])
        lines += _comparison_table(study["networks"])
        lines += _kernels_table(study["networks"])
        lines += _run_table(study["networks"])
        lines += [f"![Latency against time and trials](tune_{name}.svg)", ""]
    return "\n".join(lines)


_INTRODUCTION = (
    "All contenders tune the same programs of the same network on the same measuring engine, with the same build",
    "workers. The searches of MetaSchedule are its own, with its task scheduler, population and cost models at their",
    "defaults and as many threads as cores; only the candidates of one visit of a task are fewer than its 64, so that",
    "a small budget reaches every task. None of the programs is in the records that the models learned from.",
    "",
    "- **estimate**: sum over the tunable programs of calls x fastest measured latency, all at one machine speed.",
    "- **package**: latency of the finished package, median of fresh processes that took turns with all others.",
    "- **first package**: seconds from reading the ONNX file to a verified package in which every program has a",
    "  schedule that was measured, or for `tcl-0` predicted.",
    "- Times are seconds of wall clock, ± is the standard deviation over the seeds.",
)


def _searches_table(networks: Summary) -> list[str]:
    lines = [
        "| network | contender | seeds | trials | search s | first package s | estimate ms | package ms |"
        " over onnxruntime | largest error | ended |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for network, found in networks.items():
        base = found["engines"].get("onnxruntime")
        for contender, runs in found["searches"].items():
            packages = [
                1e3 * statistics.median(run["package_rounds"]) for run in runs if run["package_rounds"]
            ]
            ratios = [
                ratio
                for run in runs
                if run["package_rounds"] and (ratio := _paired(run["package_rounds"], base))
            ]
            ended = sorted({run["refused"] or run["stopped"] for run in runs})
            row = (
                network,
                contender,
                len(runs),
                _spread([run["trials"] for run in runs], 0),
                _spread([run["search_seconds"] for run in runs], 0),
                _spread([run["first_package_seconds"] for run in runs if run["first_package_seconds"]], 0),
                _spread([1e3 * run["final_seconds"] for run in runs]),
                _spread(packages),
                _spread(ratios),
                f"{max(run['max_rel_error'] or 0.0 for run in runs):.1e}",
                ", ".join(ended),
            )
            lines.append(f"| {' | '.join(map(str, row))} |")
        for engine, rounds in found["engines"].items():
            ratio = _paired(rounds, base)
            lines.append(
                f"| {network} | {engine} | | | | | | {1e3 * statistics.median(rounds):.3g} | {ratio or 0:.2f} | | |"
            )
        lines += [
            f"| {network} | {engine} | | | | | | | | | {why} |" for engine, why in found["refused"].items()
        ]
    return [*lines, "", *_geometric_means(networks), ""]


def _geometric_means(networks: Summary) -> list[str]:
    """Whole packages over the networks: against each engine, and against TCL's with trials."""
    lines = []
    for contender in CONTENDERS:
        quotients: dict[str, list[float]] = {}
        for found in networks.values():
            bases = dict(found["engines"])
            if contender != "tcl" and (tuned := _rounds(found, "tcl")):
                bases["tcl"] = tuned[0]
            for base, rounds in bases.items():
                mine = [ratio for run in _rounds(found, contender) if (ratio := _paired(run, rounds))]
                if mine:
                    quotients.setdefault(base, []).append(statistics.fmean(mine))
        parts = [f"{geometric_mean(v):.2f} of {base}'s ({len(v)} networks)" for base, v in quotients.items()]
        if parts:
            lines.append(f"- {contender}: the package's latency is, as a geometric mean, {', '.join(parts)}")
    return lines


def _rounds(found: Summary, contender: str) -> list[list[float]]:
    return [run["package_rounds"] for run in found["searches"].get(contender, []) if run["package_rounds"]]


def _comparison_table(networks: Summary) -> list[str]:
    others = sorted({row["contender"] for found in networks.values() for row in found["comparison"]})
    lines: list[str] = []
    for other in others:
        rows = [
            (n, row)
            for n, found in networks.items()
            for row in found["comparison"]
            if row["contender"] == other
        ]
        lines += [
            f"TCL against {other}: how many times sooner TCL is at the other's final estimate (< where it never was: a"
            " bound from the end of its search), the other's final estimate over TCL's, and its package's latency over"
            " TCL's.",
            "",
            f"| network | seed | {other} there after s | TCL after s | times sooner | estimates' ratio |"
            " packages' ratio |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
        for network, row in rows:
            sign, speedup = "" if row["reached"] else "< ", row["speedup"]
            lines.append(
                f"| {network} | {row['seed']} | {row['seconds']:.0f} | {'' if row['reached'] else 'never in '}"
                f"{row['tcl_seconds']:.0f} | {sign}{'∞' if speedup is None else f'{speedup:.2f}'} |"
                f" {row['estimate_ratio']:.3f} | {row['package_ratio'] or math.nan:.3f} |"
            )
        speedups = [row["speedup"] for _, row in rows if row["speedup"]]
        missed = sum(not row["reached"] for _, row in rows)
        mean, ratio = geometric_mean(speedups), geometric_mean([row["estimate_ratio"] for _, row in rows])
        packages = geometric_mean([row["package_ratio"] for _, row in rows if row["package_ratio"]])
        sign = "at most " if missed else ""
        lines += [
            "",
            f"Geometric means: {sign}{mean or math.nan:.2f} times sooner ({missed} of {len(rows)} never reached),"
            f" estimates' ratio {ratio:.3f}, packages' ratio {packages or math.nan:.3f}.",
            "",
        ]
    return lines


def _kernels_table(networks: Summary) -> list[str]:
    lines = [
        "Heavy kernels of TCL's first seed. The peak is the most that a kernel of fused multiply-adds reached",
        "beside any search of the network.",
        "",
        "| network | program | op | calls | share of time | GFLOP/s | share of peak |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for network, found in networks.items():
        for row in found["kernels"]:
            lines.append(
                f"| {network} | {row['program']} | {row['op']} | {row['calls']} | {row['share_of_time']:.0%} |"
                f" {row['gflops']:.1f} | {row['share_of_peak']:.0%} of {found['peak_gflops']:.0f} |"
            )
    return [*lines, ""]


def _run_table(networks: Summary) -> list[str]:
    """Where the time of a run goes, in milliseconds."""
    rows = [
        f"| {network} | {' | '.join(f'{1e3 * seconds:.3g}' for seconds in found['run'].values())} |"
        for network, found in networks.items()
        if found["run"]
    ]
    if not rows:
        return []
    return [
        "Where a run of the package of TCL's first seed spends its time, in ms. Tuned programs: what their operations",
        "would take at the peak, timed alone while tuning (the estimate), and in the network, where their weights are",
        "no longer in the nearer caches. Then the other programs and the virtual machine, and the whole run.",
        "",
        "| network | at the peak | alone | in the network | other programs | virtual machine | run |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *rows,
        "",
    ]


def _paired(rounds: Sequence[float] | None, base: Sequence[float] | None) -> float | None:
    """Median quotient of the rounds that were beside one another."""
    if not rounds or not base:
        return None
    return statistics.median(mine / its for mine, its in zip(rounds, base, strict=True))


def _spread(values: Sequence[float], digits: int | None = None) -> str:
    if not values:
        return ""
    mean, std = statistics.fmean(values), statistics.pstdev(values)
    return f"{mean:.{digits}f} ± {std:.{digits}f}" if digits is not None else f"{mean:.3g} ± {std:.2g}"
