"""RDU: choose the candidates that are worth measuring by representativeness, diversity and uncertainty together.

The three names are those of TCL (arXiv 2604.12891), whose formulae are not public; these are ours:

* Representativeness with diversity: k-means divides the pool into as many clusters as a quarter of the wanted
  candidates, and each cluster gives in proportion to its size, so that the choice is spread as the pool is.
* Diversity: within a cluster (without representativeness: within the pool) greedy k-center (Gonzalez 1985), the next is
  the farthest from all before.
* Uncertainty: the distance to the nearest choice is multiplied by a weight between a half (the surest candidate) and 1.
* Without diversity: the highest kernel density (of a Gaussian as wide as the median distance, against a sample of the
  pool), uncertainty, or product of the two.

Uncertainty and density enter as ranks, so that their scales do not matter. A pool of more than `CELL` candidates is
divided by mini-batch k-means (Sculley 2010) in any case, which keeps time and memory linear in the pool.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

from tcl.errors import BadInput

TERMS = frozenset("rdu")
"""Representativeness, diversity, uncertainty."""

CELL = 4096
"""Candidates above which a pool is divided."""

_PER_CELL = 4  # wanted candidates of a cluster
_MOST_CELLS = 1024
_FLOOR = 0.5  # weight of the least uncertain candidate; 1 is that of the most uncertain
_REFERENCES = 1024  # candidates that stand for the pool in the density
_CHUNK = 16384  # rows of one distance matrix


def select(
    embeddings: np.ndarray,
    uncertainty: np.ndarray,
    count: int,
    *,
    chosen: np.ndarray | None = None,
    terms: frozenset[str] = TERMS,
    seed: int,
) -> np.ndarray:
    """Choose `count` candidates of a pool.

    Parameters
    ----------
    embeddings : float32[n, E]
        Where the model sees each candidate.
    uncertainty : float32[n]
        How unsure the model is of each; only the order counts.
    count
        Candidates to choose; all that are left when there are fewer.
    chosen : int64[c], optional
        Candidates chosen before: never chosen again, and diversity keeps away from them.
    terms
        Any of "r", "d", "u"; without one the choice is random.
    seed
        Decides ties and random samples. Same arguments, same choice.

    Returns
    -------
    int64[count]
        Indices into the pool in the order of choice, without repetition.

    Raises
    ------
    BadInput
        For unknown terms, a negative count, or arrays that do not fit or are not finite.
    """
    _check(embeddings, uncertainty, count, terms)
    rng = np.random.default_rng(seed)
    free = np.ones(len(embeddings), bool)
    if chosen is not None:
        free[chosen] = False
    count = min(count, int(free.sum()))
    if count == 0:
        return np.empty(0, np.int64)
    unsure = _ranks(uncertainty, rng) if "u" in terms else np.ones(len(embeddings))
    if "d" not in terms:
        appeal = unsure * _ranks(_density(embeddings, rng), rng) if "r" in terms else unsure
        pool = rng.permutation(np.flatnonzero(free))
        return pool[np.argsort(-appeal[pool], kind="stable")[:count]]
    cells = _cells(embeddings, max(1, count // _PER_CELL) if "r" in terms else 1, rng)
    limits = [int(free[cell].sum()) for cell in cells]
    sizes = np.array([len(cell) for cell in cells], np.float64)
    weights = _FLOOR + (1 - _FLOOR) * unsure
    picks = [
        cell[_farthest(embeddings[cell], weights[cell], free[cell], int(share), rng)]
        for cell, share in zip(cells, allot(count, sizes, limits), strict=True)
    ]
    return np.concatenate(picks)


def allot(total: int, weights: np.ndarray, limits: list[int]) -> np.ndarray:
    """Divide `total` in proportion to `weights` without exceeding `limits`, by largest remainders: int64[k]."""
    limit = np.asarray(limits, np.int64)
    total = min(total, int(limit.sum()))
    shares = np.zeros(len(limit), np.int64)
    while (left := total - int(shares.sum())) > 0:
        open_ = np.where(shares < limit, np.maximum(weights, 1e-12), 0.0)
        exact = left * open_ / open_.sum()
        add = np.minimum(np.floor(exact).astype(np.int64), limit - shares)
        if not add.any():  # fewer than one each: to the largest claims
            first = np.argsort(-exact, kind="stable")[:left]
            add[first] = shares[first] < limit[first]
        shares += add
    return shares


def _check(embeddings: np.ndarray, uncertainty: np.ndarray, count: int, terms: frozenset[str]) -> None:
    if not terms <= TERMS:
        raise BadInput(f"unknown sampling terms {sorted(terms - TERMS)}; the terms are r, d and u")
    if count < 0:
        raise BadInput(f"cannot choose {count} candidates")
    if embeddings.ndim != 2 or uncertainty.shape != embeddings.shape[:1]:
        raise BadInput(
            f"embeddings {embeddings.shape} and uncertainty {uncertainty.shape} do not fit together"
        )
    if not np.isfinite(uncertainty).all() or not all(np.isfinite(part).all() for part in _chunks(embeddings)):
        raise BadInput("an embedding or an uncertainty is not a finite number; the model has diverged")


def _ranks(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Ranks scaled to (0, 1], the greatest value 1; ties broken at random."""
    order = np.lexsort((rng.random(len(values)), values))
    ranks = np.empty(len(values))
    ranks[order] = np.arange(1, len(values) + 1) / len(values)
    return ranks


def _chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(array), _CHUNK):
        yield array[start : start + _CHUNK]


def _squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * (a @ b.T), 0)


def _density(embeddings: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Kernel density of each candidate against a random sample of the pool: float64[n]."""
    sample = embeddings[rng.permutation(len(embeddings))[:_REFERENCES]]
    width = np.median(_squared_distances(sample, sample)) or 1.0
    parts = [np.exp(-_squared_distances(part, sample) / width).mean(1) for part in _chunks(embeddings)]
    return np.concatenate(parts)


def _cells(embeddings: np.ndarray, count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Indices of each of about `count` k-means clusters, of more where they would hold over `CELL` candidates."""
    n = len(embeddings)
    count = min(max(count, 4 * n // CELL if n > CELL else 1), _MOST_CELLS, n)
    if count <= 1:
        return [np.arange(n)]
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning

    seed = int(rng.integers(2**31))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct candidates than clusters
        if n <= CELL:
            labels = KMeans(count, n_init=1, max_iter=20, random_state=seed).fit_predict(embeddings)
        else:
            means = MiniBatchKMeans(count, batch_size=4096, n_init=1, max_iter=5, random_state=seed)
            means.fit(embeddings[rng.permutation(n)[: 64 * count]])
            labels = np.concatenate([means.predict(part) for part in _chunks(embeddings)])
    order = np.argsort(labels, kind="stable")
    cells = np.split(order, np.cumsum(np.bincount(labels, minlength=count))[:-1])
    return [cell for cell in cells if len(cell)]


def _farthest(
    embeddings: np.ndarray, weights: np.ndarray, free: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Greedy k-center, the distance to the nearest choice multiplied by a weight."""
    distance = np.full(len(embeddings), np.inf)
    for taken in np.flatnonzero(~free):
        distance = np.minimum(distance, _squared_distances(embeddings, embeddings[taken : taken + 1])[:, 0])
    available = free.copy()
    picks = np.empty(count, np.int64)
    ties = 1 + 1e-9 * rng.random(len(embeddings))
    for i in range(count):
        reach = np.ones(len(embeddings)) if np.isinf(distance[0]) else np.sqrt(distance) + 1e-12
        picks[i] = best = int(np.argmax(np.where(available, weights * reach * ties, -1.0)))
        available[best] = False
        distance = np.minimum(distance, _squared_distances(embeddings, embeddings[best : best + 1])[:, 0])
    return picks
