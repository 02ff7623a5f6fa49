"""One measuring budget for many tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from tcl.features.batch import FeatureBatch
from tcl.sampling.rdu import TERMS, allot, select

if TYPE_CHECKING:
    from tcl.costmodel.network import CostModel

_LEAST, _MOST = 0.5, 2.0  # how far a task's uncertainty moves its share


def select_tasks(
    batches: Mapping[str, FeatureBatch],
    model: CostModel,
    total: int,
    *,
    chosen: Mapping[str, np.ndarray] | None = None,
    terms: frozenset[str] = TERMS,
    seed: int,
) -> dict[str, np.ndarray]:
    """Divide a budget over tasks and choose by RDU in each.

    A task's share follows the size of its pool and, with "u", how unsure the model is of it on average: between half
    and twice what its size alone would give. Only one task's embeddings are in memory at a time.

    Parameters
    ----------
    batches
        The candidates of each task, by workload key.
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
    dict
        For every task the indices of its chosen candidates, int64[.].
    """
    before = {key: np.unique((chosen or {}).get(key, np.empty(0, np.int64))) for key in batches}
    uncertainty = {key: model.score(batch)[1] for key, batch in batches.items()}
    left = np.array([len(batch) - len(before[key]) for key, batch in batches.items()])
    weights = left.astype(np.float64)
    if "u" in terms:
        means = np.array([values.mean() if len(values) else 0.0 for values in uncertainty.values()])
        weights *= np.clip(means / max(float(np.average(means, weights=weights + 1e-9)), 1e-9), _LEAST, _MOST)
    return {
        key: select(
            model.embed(batch), uncertainty[key], int(share), chosen=before[key], terms=terms, seed=seed
        )
        for (key, batch), share in zip(batches.items(), allot(total, weights, left.tolist()), strict=True)
    }
