"""Correction of the model by measurements."""

from __future__ import annotations

import numpy as np
import pytest

from tcl.search.adaptation import TaskAdaptation, expected_improvement


def test_predict_refuses_when_nothing_was_measured() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        TaskAdaptation(-1.0).predict(np.zeros(1), np.zeros((1, 2)))


def test_predict_meets_the_measurements_and_is_sure_of_them() -> None:
    rng = np.random.default_rng(0)
    embeddings, scores = rng.normal(size=(8, 4)), rng.normal(size=8)
    seconds = np.exp(-scores + 0.3 * embeddings[:, 0])
    adaptation = TaskAdaptation(-1.0)
    adaptation.add(scores, embeddings, seconds)
    mean, std = adaptation.predict(scores, embeddings)
    far_mean, far_std = adaptation.predict(np.zeros(1), np.full((1, 4), 50.0))
    assert np.abs(mean - np.log(seconds)).max() < 0.1
    assert std.max() < 0.1 < far_std[0]
    assert np.isfinite(far_mean).all()


def test_line_never_says_that_a_higher_score_is_slower() -> None:
    adaptation = TaskAdaptation(-1.0)
    adaptation.add(np.array([0.0, 1.0, 2.0]), np.eye(3), np.array([1.0, 2.0, 4.0]))
    assert adaptation.line()[0] < 0


def test_expected_improvement_matches_sampling() -> None:
    mean, std, best = np.array([0.1, -0.5]), np.array([0.4, 0.2]), 0.0
    draws = np.exp(np.random.default_rng(0).normal(mean, std, size=(200_000, 2)))
    sampled = np.maximum(1.0 - draws, 0).mean(axis=0)
    assert np.allclose(expected_improvement(mean, std, best), sampled, atol=3e-3)
