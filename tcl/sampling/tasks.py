"""One measuring budget for many tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tcl.features.batch import FeatureBatch
from tcl.sampling.rdu import TERMS, allot, select

_LEAST, _MOST = 0.5, 2.0  # how far a task's uncertainty moves its weight


class Model(Protocol):
    """What sampling needs of a cost model."""

    def score(self, batch: FeatureBatch) -> tuple[np.ndarray, np.ndarray]: ...
    def embed(self, batch: FeatureBatch) -> np.ndarray: ...


def most_share(even: int) -> int:
    """Most candidates that `select_tasks` gives a task whose size alone would give `even`."""
    return int(np.ceil(even * _MOST / _LEAST))


def select_tasks(
    batches: Sequence[FeatureBatch],
    model: Model,
    total: int,
    *,
    chosen: Sequence[np.ndarray] | None = None,
    terms: frozenset[str] = TERMS,
    seed: int,
) -> list[np.ndarray]:
    """Divide a budget over tasks and choose by RDU in each.

    A task's share follows the size of its pool and, with "u", how unsure the model is of it on average: between half
    and twice what its size alone would give. Only one task's embeddings are in memory at a time.

    Parameters
    ----------
    batches
        The candidates of each task.
    model
        Embeds them and says how unsure it is.
    total
        Candidates to choose in all; fewer where the pools are smaller.
    chosen
        Candidates of each task chosen before; they do not count against `total`.
    terms, seed
        As of `select`.

    Returns
    -------
    list
        The indices of each task's chosen candidates, int64[.].
    """
    before = [np.unique(rows) for rows in chosen or [np.empty(0, np.int64)] * len(batches)]
    uncertainty = [model.score(batch)[1] for batch in batches]
    left = np.array([len(batch) - len(rows) for batch, rows in zip(batches, before, strict=True)])
    weights = left.astype(np.float64)
    if "u" in terms:
        means = np.array([values.mean() if len(values) else 0.0 for values in uncertainty])
        weights *= np.clip(means / max(float(np.average(means, weights=weights + 1e-9)), 1e-9), _LEAST, _MOST)
    shares = allot(total, weights, left.tolist())
    return [
        select(model.embed(batch), spread, int(share), chosen=rows, terms=terms, seed=seed)
        for batch, spread, rows, share in zip(batches, uncertainty, before, shares, strict=True)
    ]
