"""Correcting the cost model by what a task has measured so far.

The registered model ranks; it does not know seconds, and it errs on programs unlike any it has seen. Each task
therefore keeps a Gaussian process over the model's embeddings whose mean is a line in the model's score: a few
measurements shift the line, and candidates near a measured one move with it. Exact, as a task has few measurements.
Source: Rasmussen & Williams, Gaussian Processes for Machine Learning, eq. 2.25-2.26, with the line as a linear mean.
"""

from __future__ import annotations

import numpy as np

_SLOPE_SHRINK = 2.0  # measurements that the pooled slope weighs
_RESIDUAL_STD = 0.35  # of log seconds, around the line, before anything is measured
_NOISE_STD = 0.04  # of log seconds, of repeated measurements
_LENGTH = 0.7  # of the kernel, in units of the median distance between embeddings


class TaskAdaptation:
    """Posterior of a task's log seconds.

    Parameters
    ----------
    slope
        Log seconds per unit of score that other tasks showed (negative: higher scores are faster).
    """

    def __init__(self, slope: float) -> None:
        self.slope = slope
        self._scores = np.zeros(0)
        self._embeddings: np.ndarray | None = None
        self._logs = np.zeros(0)

    def __len__(self) -> int:
        return len(self._logs)

    @property
    def best(self) -> float:
        """Least log seconds measured; infinity before the first."""
        return float(self._logs.min()) if len(self) else float("inf")

    def add(self, scores: np.ndarray, embeddings: np.ndarray, seconds: np.ndarray) -> None:
        """Take in measurements: the model's scores ``[n]`` and embeddings ``[n, E]``, and measured seconds ``[n]``."""
        rows = np.asarray(embeddings, dtype=np.float64)
        self._embeddings = rows if self._embeddings is None else np.concatenate([self._embeddings, rows])
        self._scores = np.append(self._scores, scores)
        self._logs = np.append(self._logs, np.log(seconds))

    def line(self) -> tuple[float, float]:
        """Return slope and intercept of log seconds over score, the slope shrunk to the pooled one."""
        x, y = self._scores, self._logs
        dx, dy = x - x.mean(), y - y.mean()
        prior = _SLOPE_SHRINK * max(float(np.var(x)), 1e-3)
        slope = (float(dx @ dy) + prior * self.slope) / (float(dx @ dx) + prior)
        slope = min(slope, 0.1 * self.slope)  # more score never means slower
        return slope, float((y - slope * x).mean())

    def predict(self, scores: np.ndarray, embeddings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and standard deviation of log seconds.

        Parameters
        ----------
        scores
            ``float[n]``, of the cost model.
        embeddings
            ``float[n, E]``, of the cost model.

        Raises
        ------
        ValueError
            Before the first measurement.
        """
        if self._embeddings is None:
            raise ValueError("nothing was measured yet")
        slope, intercept = self.line()
        scale = _LENGTH * _median_distance(np.concatenate([self._embeddings, embeddings[:256]]))
        variance = _RESIDUAL_STD**2
        known = _kernel(self._embeddings, self._embeddings, scale) * variance
        known[np.diag_indices_from(known)] += _NOISE_STD**2
        cross = _kernel(np.asarray(embeddings, dtype=np.float64), self._embeddings, scale) * variance
        residual = self._logs - (intercept + slope * self._scores)
        solved = np.linalg.solve(known, np.column_stack([residual, cross.T]))
        mean = intercept + slope * scores + cross @ solved[:, 0]
        spread = variance - np.einsum("ij,ji->i", cross, solved[:, 1:])
        return mean, np.sqrt(np.maximum(spread, 1e-8))


def expected_improvement(mean: np.ndarray, std: np.ndarray, best: float) -> np.ndarray:
    """Expected seconds saved below ``exp(best)`` when log seconds are normal.

    E[max(b - X, 0)] for log-normal X: b Φ(z) - exp(m + s²/2) Φ(z - s), z = (ln b - m) / s.
    """
    z = (best - mean) / std
    saved = np.exp(best) * _normal_cdf(z) - np.exp(mean + std**2 / 2) * _normal_cdf(z - std)
    return np.maximum(saved, 0.0)


def _normal_cdf(z: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    return ndtr(z)


def _squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T, 0.0)


def _kernel(a: np.ndarray, b: np.ndarray, scale: float) -> np.ndarray:
    return np.exp(-0.5 * _squared_distances(a, b) / scale**2)


def _median_distance(points: np.ndarray) -> float:
    squared = _squared_distances(points.astype(np.float64), points.astype(np.float64))
    positive = squared[squared > 1e-12]
    return float(np.sqrt(np.median(positive))) if len(positive) else 1.0
