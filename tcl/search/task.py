"""The search of one task: what is known, what is worth measuring next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tcl.features.batch import FeatureBatch
from tcl.features.workload import WorkloadSummary
from tcl.search.adaptation import TaskAdaptation, expected_improvement
from tcl.search.evolution import Featuriser, Ranked, evolve
from tcl.search.space import DesignSpace, Population

SHORTLIST = 256
"""Candidates per task that are embedded and weighed exactly; the rest are ranked by score alone."""
_GENERATIONS = 4
_SEEDS = 8  # fastest known candidates that join the first generation
_DISTINCT_GENES = 2  # candidates of one batch differ in at least so many decisions


class Model(Protocol):
    """What the search needs of a cost model."""

    def score(self, batch: FeatureBatch) -> tuple[np.ndarray, np.ndarray]: ...
    def embed(self, batch: FeatureBatch) -> np.ndarray: ...


@dataclass(frozen=True)
class Candidate:
    """A candidate worth measuring.

    Attributes
    ----------
    trace
        JSON text without post-processing.
    score
        The cost model's score, higher is faster.
    gain
        Expected seconds saved per run of the program; infinity where nothing was measured yet.
    identity
        What tells it from the other candidates of its task.
    """

    trace: str
    score: float
    gain: float
    identity: str


@dataclass(frozen=True)
class Observation:
    """A measurement of a task, from an earlier session or this one.

    Attributes
    ----------
    trace
        JSON text, with or without post-processing.
    seconds
        Drift-normalised median; None for a failure.
    is_searched
        Whether a search chose the candidate; else it is of a dataset.
    """

    trace: str
    seconds: float | None
    is_searched: bool = True


class TaskSearch:
    """Search state of one task.

    Parameters
    ----------
    make_space
        Generates the design space; called once, when the search begins.
    summary
        The workload's summary.
    device
        ``float32[D]``, the device's descriptor.
    model
        The cost model.
    population
        Candidates scored in each generation.
    seed
        Seed of the search.
    adapt
        Whether measurements correct the model.
    """

    def __init__(
        self,
        make_space: Callable[[], DesignSpace],
        summary: WorkloadSummary,
        device: np.ndarray,
        model: Model,
        *,
        population: int,
        seed: int,
        adapt: bool = True,
    ) -> None:
        self._make_space = make_space
        self._summary = summary
        self._device = device
        self._model = model
        self._population = population
        self._rng = np.random.default_rng(seed)
        self._adapt = adapt
        self._space: DesignSpace | None = None
        self._featuriser: Featuriser
        self._tried: set[str] = set()
        self._measured: list[tuple[float, Population]] = []
        self.adaptation = TaskAdaptation(slope=-1.0)

    @property
    def space(self) -> DesignSpace:
        """The design space, generated at first use."""
        if self._space is None:
            self._space = self._make_space()
            self._featuriser = Featuriser(self._space, self._summary, self._device)
        return self._space

    def attempt(self, candidate: Candidate) -> None:
        """Note that a candidate goes to be measured, so that it is not proposed again."""
        self._tried.add(candidate.identity)

    def observe(self, observations: Sequence[Observation]) -> None:
        """Take in measurements of this task; failures are not tried again, traces of other spaces are passed over."""
        successes = []
        for observation in observations:
            found = self.space.locate(observation.trace)
            if found is None:
                continue
            self._tried.add(_identity(found, 0))
            if observation.seconds is not None:
                successes.append((observation.seconds, found))
        if not successes:
            return
        batch = self._featuriser.batch([found for _, found in successes])
        scores, embeddings = self._model.score(batch)[0], self._model.embed(batch)
        self.adaptation.add(scores, embeddings, np.array([seconds for seconds, _ in successes]))
        self._measured.extend(successes)

    def score(self, trace: str) -> float | None:
        """The model's score of a trace; None where it is not in the design space."""
        found = self.space.locate(trace)
        return None if found is None else float(self._model.score(self._featuriser.batch([found]))[0][0])

    def propose(self, count: int) -> list[Candidate]:
        """Search and return up to `count` untried candidates, most promising first."""
        ranked = evolve(
            self.space,
            self._featuriser,
            self._model.score,
            population=self._population,
            generations=_GENERATIONS,
            rng=self._rng,
            start=[found for _, found in sorted(self._measured, key=lambda m: m[0])[:_SEEDS]],
        )
        shortlist = _shortlist(ranked, self._tried)
        if not shortlist:
            return []
        scores = np.concatenate([r.mean for r in shortlist])
        if self._adapt and len(self.adaptation):
            embeddings = self._model.embed(self._featuriser.batch([r.population for r in shortlist]))
            mean, std = self.adaptation.predict(scores, embeddings)
            gains = expected_improvement(mean, std, self.adaptation.best)
            order = np.argsort(-gains, kind="stable")
        else:
            gains = np.full(len(scores), np.inf)
            order = np.argsort(-scores, kind="stable")
        return self._pick(shortlist, order, scores, gains, count)

    def _pick(
        self, shortlist: list[Ranked], order: np.ndarray, scores: np.ndarray, gains: np.ndarray, count: int
    ) -> list[Candidate]:
        """Take the first of `order`, passing over near copies of those already taken."""
        flat = [(r.population, row) for r in shortlist for row in range(len(r))]
        taken: list[tuple[int, np.ndarray]] = []
        result = []
        for index in order:
            population, row = flat[index]
            genes = population.genes[row]
            near = any(
                s == population.sketch and np.count_nonzero(genes != g) < _DISTINCT_GENES for s, g in taken
            )
            if near and len(genes) > _DISTINCT_GENES:
                continue
            taken.append((population.sketch, genes))
            trace = self.space.trace(population, row)
            identity = _identity(population, row)
            result.append(Candidate(trace, float(scores[index]), float(gains[index]), identity))
            if len(result) == count:
                break
        return result


def _shortlist(ranked: list[Ranked], tried: set[str]) -> list[Ranked]:
    """The best untried candidates over all sketches."""
    open_rows = [
        np.array([row for row in range(len(r)) if _identity(r.population, row) not in tried], dtype=np.int64)
        for r in ranked
    ]
    left = [r.take(rows) for r, rows in zip(ranked, open_rows, strict=True) if len(rows)]
    if not left:
        return []
    means = np.sort(np.concatenate([r.mean for r in left]))
    cut = means[-min(SHORTLIST, len(means))]
    return [r.take(np.flatnonzero(r.mean >= cut)) for r in left if (r.mean >= cut).any()]


def _identity(population: Population, row: int) -> str:
    return f"{population.sketch}:{population.genes[row].tobytes().hex()}"
