"""What goes into the measuring engine and what comes out of it."""

from __future__ import annotations

import os
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_MOST_DRIFT = 1.1
"""Beyond it the reference kernel's slowdown no longer tells a candidate's."""


@dataclass(frozen=True)
class MeasureRequest:
    """One candidate to build and time.

    Attributes
    ----------
    workload
        Key of the workload; requests with one key share one program.
    program
        The MetaSchedule workload as JSON text: ``[structural hash, module]``.
    target
        TVM target as JSON.
    trace
        The schedule trace as JSON text. With an ``EnterPostproc`` instruction it is replayed as it stands;
        without one, the target's post-processing is applied and added.
    origin
        What chose the candidate: ``"random"``, ``"rdu"`` or ``"search"``.
    """

    workload: str
    program: str
    target: dict[str, Any]
    trace: str
    origin: str


@dataclass(frozen=True)
class MeasureResult:
    """What became of a request.

    Attributes
    ----------
    trace
        The full trace, with post-processing; the request's own trace when it did not get that far.
    run_seconds
        Seconds of each timed run, raw; empty when the candidate failed.
    reference_seconds
        Median seconds of the reference kernel's runs in between; None when the candidate failed.
    error
        None, or ``"<cause>: <detail>"`` with a cause of build, run, timeout, crash, memory.
    timestamp
        End of the measurement, seconds since the epoch.
    """

    request: MeasureRequest
    trace: str
    run_seconds: tuple[float, ...]
    reference_seconds: float | None
    error: str | None
    timestamp: float


def seconds_at_usual_speed(
    run_seconds: Sequence[float], reference_seconds: float | None, usual: float | None
) -> float:
    """State a candidate's time at the device's usual speed, to compare it with others'.

    The correction is a tenth at most: with more, the winner among many would be one that a slow phase of the machine
    happened to leave alone.

    Parameters
    ----------
    run_seconds
        Of its runs; their median counts.
    reference_seconds
        The reference kernel's time beside them, in seconds; None where it was not timed.
    usual
        The reference kernel's usual time, in seconds; None where it is not known.
    """
    seconds = statistics.median(run_seconds)
    if not reference_seconds or not usual:
        return seconds
    return seconds / min(max(reference_seconds / usual, 1 / _MOST_DRIFT), _MOST_DRIFT)


@dataclass(frozen=True)
class MeasureOptions:
    """How to measure.

    Attributes
    ----------
    builders
        Build workers; None means one for each core of this machine.
    repeats
        Timed runs of a candidate, each with a run of the reference kernel before it.
    budget_seconds
        A candidate gets fewer repeats, down to one, when they would take longer than this.
    hopeless_factor
        A candidate this many times slower than the best of its workload is timed once.
    build_timeout, run_timeout
        Seconds after which a build or the whole timing of a candidate is given up.
    memory_bytes
        Memory that one build or one candidate may take; None means half of this machine's.
    storm_spread, storm_floor
        A candidate was timed in a storm when the reference kernel's runs beside it differ by the factor
        `storm_spread` (upper to lower quartile), or take `storm_floor` times the session's least.
    storm_retries
        How often a candidate that was timed in a storm is timed again, after the others in the queue.
    overlap
        Whether builds go on while a candidate is timed. Without it the build workers are stopped meanwhile.
        Devices reached through RPC always overlap.
    device_wait
        Seconds that a board which went away is waited for, each time.
    """

    builders: int | None = None
    repeats: int = 15
    budget_seconds: float = 0.15
    hopeless_factor: float = 8.0
    build_timeout: float = 30.0
    run_timeout: float = 10.0
    memory_bytes: int | None = None
    storm_spread: float = 1.25
    storm_floor: float = 1.6
    storm_retries: int = 2
    overlap: bool = False
    device_wait: float = 600.0


def half_of_memory() -> int:
    """Half of this machine's memory, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def summarise_failures(results: Iterable[MeasureResult]) -> str:
    """Describe the failures among `results` in one line: how many of how many, by cause, with one example.

    Returns
    -------
    str
        For instance ``"2 of 9 candidates failed (crash 1, timeout 1), for example crash: signal 11"``; an
        empty string when none failed.
    """
    results = list(results)
    errors = [result.error for result in results if result.error is not None]
    if not errors:
        return ""
    causes = Counter(error.split(":", 1)[0] for error in errors)
    counted = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
    common = causes.most_common(1)[0][0]
    example = next(error for error in errors if error.startswith(common))
    return f"{len(errors)} of {len(results)} candidates failed ({counted}), for example {example}"
