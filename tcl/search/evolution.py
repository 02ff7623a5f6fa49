"""Evolution of schedules under a cost model: everything happens on integer genes and in large scored batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tcl.features.batch import FeatureBatch
from tcl.features.metaschedule import SketchEncoder
from tcl.features.workload import WorkloadSummary
from tcl.search.space import DesignSpace, Population

_NEAR = 4  # tilings are in lexicographic order: a step of a few rows keeps the outer factors
_ELITE_SHARE = 0.25
_CROSSOVER_SHARE = 0.3


class Featuriser:
    """Features of a task's candidates.

    Parameters
    ----------
    space
        The task's design space.
    summary
        Its workload's summary.
    device
        ``float32[D]``, the device's descriptor.
    """

    def __init__(self, space: DesignSpace, summary: WorkloadSummary, device: np.ndarray) -> None:
        self._space = space
        self._encoders = [SketchEncoder(sketch.instructions, summary) for sketch in space.sketches]
        self._workload = summary.vector()
        self._device = device

    def batch(self, populations: list[Population]) -> FeatureBatch:
        """Return the features of all candidates, population after population."""
        parts = []
        for population in populations:
            count = len(population)
            kinds, values = self._encoders[population.sketch].encode_arrays(
                self._space.columns(population), count
            )
            parts.append(
                FeatureBatch(
                    kinds,
                    values,
                    np.broadcast_to(self._workload, (count, len(self._workload))),
                    np.broadcast_to(self._device, (count, len(self._device))),
                )
            )
        return FeatureBatch.concat(parts)


@dataclass
class Ranked:
    """Candidates of one sketch with their scores (higher is faster).

    Attributes
    ----------
    population
        The candidates, best first.
    mean, std
        ``float32[n]``: predicted score and its uncertainty.
    """

    population: Population
    mean: np.ndarray
    std: np.ndarray

    def __len__(self) -> int:
        return len(self.population)

    def take(self, rows: np.ndarray) -> Ranked:
        """Return the candidates of the given rows."""
        genes = Population(self.population.sketch, self.population.genes[rows])
        return Ranked(genes, self.mean[rows], self.std[rows])


Scorer = Callable[[FeatureBatch], tuple[np.ndarray, np.ndarray]]


def evolve(
    space: DesignSpace,
    featuriser: Featuriser,
    scorer: Scorer,
    *,
    population: int,
    generations: int,
    rng: np.random.Generator,
    start: list[Population] | None = None,
) -> list[Ranked]:
    """Search a space for candidates of high predicted score.

    Parameters
    ----------
    scorer
        Features → (mean, std), higher is faster.
    population
        Candidates scored in each generation.
    generations
        Rounds of mutation and crossover after the first, random one.
    start
        Known candidates that join the first generation.

    Returns
    -------
    list of Ranked
        Per sketch, every distinct candidate that was scored, best first.
    """
    known: dict[int, Ranked] = {}
    fresh = [*space.sample(population, rng), *(start or [])]
    for generation in range(generations + 1):
        _score_into(known, space, featuriser, scorer, fresh)
        if generation == generations or all(len(r) >= space.sketches[s].size for s, r in known.items()):
            break
        fresh = _offspring(known, space, population, rng)
        if not fresh:
            break
    return list(known.values())


def _score_into(
    known: dict[int, Ranked],
    space: DesignSpace,
    featuriser: Featuriser,
    scorer: Scorer,
    fresh: list[Population],
) -> None:
    """Score new candidates in one batch and merge them into the ranking of their sketch."""
    new = []
    for sketch in {p.sketch for p in fresh}:
        genes = np.unique(np.concatenate([p.genes for p in fresh if p.sketch == sketch]), axis=0)
        if sketch in known:
            seen = {row.tobytes() for row in known[sketch].population.genes}
            genes = genes[[row.tobytes() not in seen for row in genes]]
        if len(genes):
            new.append(Population(sketch, genes))
    if not new:
        return
    mean, std = scorer(featuriser.batch(new))
    offset = 0
    for part in new:
        rows = slice(offset, offset + len(part))
        offset += len(part)
        genes, means, stds = part.genes, mean[rows], std[rows]
        if part.sketch in known:
            old = known[part.sketch]
            genes = np.concatenate([old.population.genes, genes])
            means, stds = np.concatenate([old.mean, means]), np.concatenate([old.std, stds])
        order = np.argsort(-means, kind="stable")
        known[part.sketch] = Ranked(Population(part.sketch, genes[order]), means[order], stds[order])


def _offspring(
    known: dict[int, Ranked], space: DesignSpace, count: int, rng: np.random.Generator
) -> list[Population]:
    """Mutate and cross the best candidates over all sketches."""
    means = np.concatenate([r.mean for r in known.values()])
    elite = max(4, int(count * _ELITE_SHARE))
    cut = np.sort(means)[-min(elite, len(means))]
    result = []
    for sketch, ranked in known.items():
        parents = ranked.population.genes[: max(1, int((ranked.mean >= cut).sum()))]
        sizes = np.array([len(c.options) for c in space.sketches[sketch].choices])
        children = round(count * len(parents) / elite) if (ranked.mean >= cut).any() else 0
        if children == 0 or not (sizes > 1).any():
            continue
        result.append(Population(sketch, _breed(parents, sizes, children, rng)))
    return result


def _breed(parents: np.ndarray, sizes: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    genes = parents[rng.integers(0, len(parents), count)].copy()
    crossed = rng.random(count) < _CROSSOVER_SHARE
    others = parents[rng.integers(0, len(parents), count)]
    swap = (rng.random(genes.shape) < 0.5) & crossed[:, None]
    genes[swap] = others[swap]
    # Everyone mutates in one or two open genes: half of the time to a near option, else to any.
    open_genes = np.flatnonzero(sizes > 1)
    rows = np.arange(count)
    for _ in range(2):
        column = open_genes[rng.integers(0, len(open_genes), count)]
        size = sizes[column]
        step = rng.integers(1, _NEAR + 1, count) * rng.choice([-1, 1], count)
        near = (genes[rows, column] + step) % size
        value = np.where(rng.random(count) < 0.5, near, rng.integers(0, size))
        changed = rng.random(count) < 0.7
        genes[rows[changed], column[changed]] = value[changed]
    return genes
