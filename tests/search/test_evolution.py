"""Evolution under a cost model."""

from __future__ import annotations

import numpy as np

from tcl.search.evolution import Featuriser, evolve
from tcl.search.space import DesignSpace

from .conftest import DEVICE, SUMMARY, Oracle


def test_evolve_beats_drawing_at_random_when_the_model_is_right(space: DesignSpace) -> None:
    featuriser, oracle = Featuriser(space, SUMMARY, DEVICE), Oracle()
    rng = np.random.default_rng(0)
    ranked = evolve(space, featuriser, oracle.score, population=64, generations=6, rng=rng)
    total = sum(len(r) for r in ranked)
    drawn, _ = oracle.score(featuriser.batch(space.sample(total, np.random.default_rng(0))))
    assert max(r.mean[0] for r in ranked) > drawn.max()


def test_evolve_gives_distinct_candidates_best_first(space: DesignSpace) -> None:
    featuriser = Featuriser(space, SUMMARY, DEVICE)
    (ranked,) = evolve(
        space, featuriser, Oracle().score, population=64, generations=3, rng=np.random.default_rng(0)
    )
    assert (np.diff(ranked.mean) <= 0).all()
    assert len(np.unique(ranked.population.genes, axis=0)) == len(ranked)


def test_evolve_is_the_same_when_the_seed_is(space: DesignSpace) -> None:
    featuriser = Featuriser(space, SUMMARY, DEVICE)
    first, second = (
        evolve(space, featuriser, Oracle().score, population=32, generations=3, rng=np.random.default_rng(7))
        for _ in range(2)
    )
    assert (first[0].population.genes == second[0].population.genes).all()


def test_evolve_keeps_a_known_candidate_in_the_ranking(space: DesignSpace) -> None:
    featuriser = Featuriser(space, SUMMARY, DEVICE)
    start = space.sample(1, np.random.default_rng(99))
    (ranked,) = evolve(
        space,
        featuriser,
        Oracle().score,
        population=16,
        generations=1,
        rng=np.random.default_rng(0),
        start=start,
    )
    assert (ranked.population.genes == start[0].genes[0]).all(axis=1).any()
