"""The tuning benchmark's report in Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from tcl.bench.networks import HELD_OUT
from tcl.bench.tune_figures import Summary, geometric_mean, paired
from tcl.bench.tune_study import CONTENDERS


def markdown(studies: dict[str, Summary]) -> str:
    """The report of what `tcl.bench.tune` stores of each study."""
    lines = ["# Tuning benchmark", "", *_INTRODUCTION, ""]
    lines += [f"- **{name}**: {text}." for name, text in CONTENDERS.items()]
    for name, study in studies.items():
        origin = f"`{study['command']}`, {study['date']}, on {study['device']}: {study['machine']}."
        lines += ["", f"## {name}", "", origin, ""]
        lines += [f"Sizes: {', '.join(f'{key} {value}' for key, value in study['params'].items())}.", ""]
        lines += [f"Models: {', '.join(f'{key} {value}' for key, value in study['models'].items())}.", ""]
        if study["missing"]:
            lines += [f"Not run for want of time: {', '.join(study['missing'])}.", ""]
        lines += _searches_table(study["networks"])
        lines += _comparison_table(study["networks"])
        lines += _kernels_table(study["networks"])
        lines += _run_table(study["networks"])
        lines += [f"![Latency against time and trials]({name}.svg)", ""]
    return "\n".join([*lines, *_all_networks(studies)])


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
                if run["package_rounds"] and (ratio := paired(run["package_rounds"], base))
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
            ratio = paired(rounds, base)
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
                mine = [ratio for run in _rounds(found, contender) if (ratio := paired(run, rounds))]
                if mine:
                    quotients.setdefault(base, []).append(statistics.fmean(mine))
        parts = [f"{geometric_mean(v):.2f} of {base}'s ({len(v)} networks)" for base, v in quotients.items()]
        if parts:
            lines.append(f"- {contender}: the package's latency is, as a geometric mean, {', '.join(parts)}")
    return lines


def _all_networks(studies: dict[str, Summary]) -> list[str]:
    """The geometric means over the whole networks of all studies; of one that is in several, the first."""
    networks: Summary = {}
    for study in studies.values():
        for network, found in study["networks"].items():
            if network in HELD_OUT:
                networks.setdefault(network, found)
    return (
        ["", f"## All networks: {', '.join(networks)}", "", *_geometric_means(networks), ""]
        if networks
        else []
    )


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
        "no longer in the nearer caches. Then the other programs and the virtual machine, and the whole run. All but",
        "the first two are of the calmest of as many processes as there are rounds.",
        "",
        "| network | at the peak | alone | in the network | other programs | virtual machine | run |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *rows,
        "",
    ]


def _spread(values: Sequence[float], digits: int | None = None) -> str:
    if not values:
        return ""
    mean, std = statistics.fmean(values), statistics.pstdev(values)
    return f"{mean:.{digits}f} ± {std:.{digits}f}" if digits is not None else f"{mean:.3g} ± {std:.2g}"
