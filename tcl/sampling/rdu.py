"""RDU: choose the candidates that are worth measuring by representativeness, diversity and uncertainty together.

The three names are those of TCL (arXiv 2604.12891), whose formulae are not public; these are ours:

* Representativeness of a candidate is a kernel density: the mean of a Gaussian kernel between its embedding and a
  sample of the pool, with the median distance of the sample as the kernel's width. As a rank in (0, 1].
* Uncertainty is what the caller's model says, as a rank in (0, 1].
* Diversity is the distance to the nearest candidate that is chosen already (greedy k-center, Gonzalez 1985).

Candidates are picked one after another: the next is the one with the greatest product of the terms that are switched
on. Ranks make the product free of scales. A pool of more than `CELL` candidates is first divided by mini-batch k-means
(Sculley 2010) into cells that are served in proportion to their size, which keeps time and memory linear in the pool.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tcl.errors import BadInput

TERMS = frozenset("rdu")
"""Representativeness, diversity, uncertainty."""

CELL = 4096
"""Candidates above which a pool is divided."""

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
    appeal = _ranks(rng.random(len(embeddings)))
    if "u" in terms:
        appeal = _ranks(uncertainty, appeal)
    if "r" in terms:
        density = _ranks(_density(embeddings, rng), appeal)
        appeal = density * appeal if "u" in terms else density
    if "d" not in terms:
        pool = np.flatnonzero(free)
        return pool[np.argsort(-appeal[pool], kind="stable")[:count]]
    if not terms & {"r", "u"}:
        appeal = np.ones_like(appeal)
    cells = list(_cells(embeddings, rng))
    shares = allot(
        count, np.array([free[cell].sum() for cell in cells], np.float64), [int(free[c].sum()) for c in cells]
    )
    picks = [
        cell[_greedy(embeddings[cell], appeal[cell], free[cell], share, rng)]
        for cell, share in zip(cells, shares, strict=True)
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


def _ranks(values: np.ndarray, ties: np.ndarray | None = None) -> np.ndarray:
    """Ranks scaled to (0, 1], the greatest value 1; equal values in the order of `ties`."""
    order = np.lexsort((values,) if ties is None else (ties, values))
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


def _cells(embeddings: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Indices of each cell: all of a small pool, else k-means cells of `CELL` / 4 candidates on average."""
    n = len(embeddings)
    if n <= CELL:
        yield np.arange(n)
        return
    from sklearn.cluster import MiniBatchKMeans

    count = min(1024, 4 * n // CELL)
    means = MiniBatchKMeans(
        count, batch_size=4096, n_init=1, max_iter=5, random_state=int(rng.integers(2**31))
    )
    means.fit(embeddings[rng.permutation(n)[: 64 * count]])
    labels = np.concatenate([means.predict(part) for part in _chunks(embeddings)])
    order = np.argsort(labels, kind="stable")
    for cell in np.split(order, np.cumsum(np.bincount(labels, minlength=count))[:-1]):
        if len(cell):
            yield cell


def _greedy(
    embeddings: np.ndarray, appeal: np.ndarray, free: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Pick the greatest product of appeal and distance to the nearest pick, `count` times."""
    distance = np.full(len(embeddings), np.inf)
    for start in np.array_split(np.flatnonzero(~free), max(1, (~free).sum() // 256)):
        if len(start):
            distance = np.minimum(distance, _squared_distances(embeddings, embeddings[start]).min(1))
    available = free.copy()
    picks = np.empty(count, np.int64)
    jitter = 1 + 1e-9 * rng.random(len(embeddings))
    for i in range(count):
        reach = np.ones_like(distance) if np.isinf(distance[0]) else np.sqrt(distance) + 1e-12
        picks[i] = best = int(np.argmax(np.where(available, appeal * reach * jitter, -1.0)))
        available[best] = False
        distance = np.minimum(distance, _squared_distances(embeddings, embeddings[best : best + 1])[:, 0])
    return picks
