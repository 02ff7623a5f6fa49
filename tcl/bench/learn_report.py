"""The learning benchmark's results as JSON metrics and as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tcl.bench.learn_run import Cell
from tcl.bench.learn_study import Metrics

TITLES = {
    "sampler": "1. Samplers (default cost model, from scratch)",
    "network": "2. Networks (same random rows, from scratch)",
    "transfer": "3. Transfer to new devices",
    "ablation": "4. Ablation",
}
COLUMNS = {
    "sampler": ("top_1", "top_5", "share_1", "share_5", "rows"),
    "network": (
        "top_1",
        "top_5",
        "share_1",
        "share_5",
        "parameters",
        "seconds",
        "candidates_per_second",
        "spread_error_correlation",
    ),
    "transfer": ("top_1", "top_5", "share_1", "share_5", "forgetting", "parameters", "seconds"),
    "ablation": ("top_1", "top_5", "share_1", "share_5", "parameters", "seconds"),
}

Summary = dict[str, dict[str, dict[str, dict[str, float]]]]
"""Table → row → metric → mean, standard deviation and number of seeds."""


def summarise(results: dict[Cell, Metrics]) -> Summary:
    """Mean and spread over the seeds."""
    values: dict[str, dict[str, dict[str, list[float]]]] = {}
    for cell, metrics in sorted(results.items(), key=lambda item: item[0].work.seed):
        row = values.setdefault(cell.table, {}).setdefault(cell.row, {})
        for name, value in metrics.items():
            row.setdefault(name, []).append(value)
    return {
        table: {
            row: {
                name: {"mean": float(np.mean(found)), "std": float(np.std(found)), "seeds": len(found)}
                for name, found in metrics.items()
            }
            for row, metrics in rows.items()
        }
        for table, rows in values.items()
    }


def plot_data(summary: Summary) -> str:
    """The means as CSV, a row of a table each: what `dvc plots show` draws."""
    names = ("top_1", "top_5", "share_1", "share_5")
    lines = [f"row,{','.join(names)}"]
    for table, rows in summary.items():
        for row, metrics in rows.items():
            values = ",".join(f"{metrics[name]['mean']:.4f}" for name in names)
            lines.append(f'"{table}: {row}",{values}')
    return "\n".join(lines) + "\n"


def markdown(studies: dict[str, dict[str, Any]]) -> str:
    """The report: how it was made, then each study's tables, every one between the rows random and oracle.

    `studies` are by name what `tcl.bench.learn` stores of each.
    """
    lines = [
        "# Learning benchmark",
        "",
        "Mean ± standard deviation over the seeds; each seed holds out another fold of the workloads, the same on all",
        "devices.",
        "",
        "- **top 1, top 5**: `sum(weight * best) / sum(weight * best of the first k)` over the held-out workloads, the",
        "  field's metric. Every workload occurs once here, so the slow ones decide, and single bad picks of them.",
        "- **share 1, share 5**: mean over the workloads of best latency over best latency among the first k, in which",
        "  no single workload can dominate.",
        "- Latencies are clipped at each workload's 95th percentile; a failed pick counts as that.",
        "- Every network learns from all of its rows, as many candidates as `visits` says, without early stopping.",
        "- **forgetting**: share 1 lost on the earlier device that lost most, at the end of the stream.",
        "",
    ]
    for name, study in studies.items():
        lines += [f"## {name}", "", f"`{study['command']}`, {study['date']}, {study['machine']}.", ""]
        lines += [f"Sizes: {', '.join(f'{key} {value}' for key, value in study['params'].items())}.", ""]
        if study["missing"]:
            lines += [f"{study['missing']} cells are missing: the time was over.", ""]
        summary = study["summary"]
        for table, title in TITLES.items():
            if table in summary:
                rows = {**summary["bracket"], **summary[table]}
                lines += [f"### {title}", "", *_table(rows, COLUMNS[table]), ""]
    return "\n".join(lines)


def _table(rows: dict[str, dict[str, dict[str, float]]], columns: Iterable[str]) -> list[str]:
    columns = list(columns)
    lines = [
        "| | seeds | " + " | ".join(name.replace("_", " ") for name in columns) + " |",
        "|---|---:|" + "---:|" * len(columns),
    ]
    for row, metrics in rows.items():
        numbers = " | ".join(_number(metrics.get(name)) for name in columns)
        lines.append(f"| {row} | {metrics['top_1']['seeds']} | {numbers} |")
    return lines


def _number(metric: dict[str, float] | None) -> str:
    if metric is None:
        return ""
    if abs(metric["mean"]) >= 10:
        return f"{metric['mean']:,.0f}"
    return f"{metric['mean']:.3f}" + (f" ± {metric['std']:.3f}" if metric["seeds"] > 1 else "")
