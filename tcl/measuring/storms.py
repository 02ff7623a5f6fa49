"""Tells when the machine is too unsteady to believe a timing."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


class StormWatch:
    """Follows the reference kernel through a session.

    A steady slow phase is no storm as long as it is not too slow: latencies are normalised by the reference
    kernel afterwards. A storm is speed that changes while a candidate is timed, or that is far below what the
    session has seen.

    Parameters
    ----------
    spread_ratio
        Largest quotient of the upper and lower quartile of the reference runs beside one candidate.
    floor_ratio
        Largest quotient of their median and the session's floor, which is its lowest median.
    """

    def __init__(self, spread_ratio: float, floor_ratio: float) -> None:
        self._spread_ratio = spread_ratio
        self._floor_ratio = floor_ratio
        self.floor = float("inf")

    def is_storm(self, reference_seconds: Sequence[float]) -> bool:
        """Judge the reference runs beside one candidate, and remember them."""
        median = statistics.median(reference_seconds)
        self.floor = min(self.floor, median)
        return median > self._floor_ratio * self.floor or _spread(reference_seconds) > self._spread_ratio


def _spread(seconds: Sequence[float]) -> float:
    """Quotient of upper and lower quartile; of largest and smallest for fewer than four values."""
    ordered = sorted(seconds)
    quarter = len(ordered) // 4
    return ordered[-1 - quarter] / ordered[quarter]
