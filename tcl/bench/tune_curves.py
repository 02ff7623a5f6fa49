"""What a search had found when: latency of the whole network against seconds and trials."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Kept = dict[str, Any]
"""What the runner keeps of a step."""


def curve(start: Kept, kept: Kept) -> Iterator[tuple[float, int, float]]:
    """(seconds, trials, network seconds) after each trial: the sum of weight x best latency of each tunable program.

    A program without a success counts with the schedule that nobody chose; the first point is where all start.
    """
    weights = {task["key"]: task["weight"] for task in start["tasks"]}
    best = dict(start["default_seconds"])
    total = sum(weights[key] * seconds for key, seconds in best.items())
    yield 0.0, 0, total
    for number, (seconds, key, latency) in enumerate(kept["trials"], 1):
        if latency is not None and latency < best.get(key, float("inf")):
            best[key] = latency
            total = sum(weights[name] * found for name, found in best.items())
        yield seconds, number, total


def final_estimate(start: Kept, kept: Kept) -> float:
    """Network seconds at the end of a search, of `curve`, or as timed afterwards where nothing was measured."""
    if any(kept["final_seconds"].values()):
        best = {
            **start["default_seconds"],
            **{k: s for k, s in kept["final_seconds"].items() if s is not None},
        }
        return sum(task["weight"] * best[task["key"]] for task in start["tasks"] if task["key"] in best)
    return list(curve(start, kept))[-1][2]


def covered_seconds(start: Kept, kept: Kept) -> float | None:
    """When every tunable program had a successful measurement; None when that never was."""
    first: dict[str, float] = {}
    for seconds, key, latency in kept["trials"]:
        if latency is not None:
            first.setdefault(key, seconds)
    keys = [task["key"] for task in start["tasks"]]
    return max(first.values()) if all(key in first for key in keys) else None
