"""The RDU sampler."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcl.errors import BadInput
from tcl.sampling import rdu
from tcl.sampling.rdu import allot, select

ALL_TERMS = [frozenset(c) for size in range(4) for c in combinations("rdu", size)]


def pool(n: int, seed: int = 0, width: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, width)).astype(np.float32), rng.random(n).astype(np.float32)


def spread(embeddings: np.ndarray, picks: np.ndarray) -> float:
    """Greatest distance of a candidate to its nearest pick."""
    return float(np.linalg.norm(embeddings[:, None] - embeddings[picks][None], axis=2).min(1).max())


@settings(max_examples=40)
@given(
    st.integers(1, 60),
    st.integers(0, 80),
    st.sampled_from(ALL_TERMS),
    st.lists(st.integers(0, 59), max_size=20),
)
def test_select_gives_new_distinct_candidates_and_repeats_itself(
    n: int, count: int, terms: frozenset[str], before: list[int]
) -> None:
    embeddings, uncertainty = pool(n)
    chosen = np.array([i for i in before if i < n], np.int64)
    picks = select(embeddings, uncertainty, count, chosen=chosen, terms=terms, seed=1)
    assert len(picks) == min(count, n - len(set(chosen.tolist())))
    assert len(set(picks.tolist())) == len(picks)
    assert not set(picks.tolist()) & set(chosen.tolist())
    assert np.array_equal(picks, select(embeddings, uncertainty, count, chosen=chosen, terms=terms, seed=1))


def test_uncertainty_alone_takes_the_most_uncertain() -> None:
    embeddings, uncertainty = pool(200)
    picks = select(embeddings, uncertainty, 20, terms=frozenset("u"), seed=0)
    assert np.array_equal(picks, np.argsort(-uncertainty)[:20])


def test_representativeness_alone_takes_the_dense_part() -> None:
    rng = np.random.default_rng(0)
    embeddings = np.concatenate([rng.normal(0, 0.1, (150, 2)), rng.uniform(-9, 9, (50, 2))]).astype(
        np.float32
    )
    picks = select(embeddings, np.zeros(200, np.float32), 20, terms=frozenset("r"), seed=0)
    assert (picks < 150).all()


def test_diversity_covers_the_pool_better_than_chance() -> None:
    embeddings, uncertainty = pool(400, width=2)
    diverse = select(embeddings, uncertainty, 20, terms=frozenset("d"), seed=0)
    chance = [
        spread(embeddings, select(embeddings, uncertainty, 20, terms=frozenset(), seed=s)) for s in range(5)
    ]
    assert spread(embeddings, diverse) < min(chance)


def test_all_terms_avoid_outliers_that_diversity_alone_takes() -> None:
    rng = np.random.default_rng(0)
    embeddings = np.concatenate([rng.normal(0, 1, (300, 2)), rng.normal(0, 1, (3, 2)) + 40]).astype(
        np.float32
    )
    uncertainty = np.ones(303, np.float32)
    outliers = {300, 301, 302}
    diverse = set(select(embeddings, uncertainty, 10, terms=frozenset("d"), seed=0).tolist())
    joint = select(embeddings, uncertainty, 10, seed=0)
    assert diverse & outliers
    assert len(set(joint.tolist()) & outliers) <= len(diverse & outliers)


def test_diversity_keeps_away_from_what_was_chosen_before() -> None:
    embeddings = np.array([[0.0], [0.1], [10.0], [10.1]], np.float32)
    picks = select(embeddings, np.ones(4, np.float32), 1, chosen=np.array([0]), terms=frozenset("d"), seed=0)
    assert picks[0] == 3


def test_choice_does_not_depend_on_the_scale_of_embeddings_or_uncertainty() -> None:
    embeddings, uncertainty = pool(300)
    picks = select(embeddings, uncertainty, 30, seed=0)
    assert np.array_equal(picks, select(embeddings * 8, uncertainty * 100, 30, seed=0))


def test_large_pool_is_served_by_cells_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdu, "CELL", 256)
    rng = np.random.default_rng(0)
    near, far = rng.normal(0, 1, (3000, 3)), rng.normal(0, 1, (1000, 3)) + 30
    embeddings = np.concatenate([near, far]).astype(np.float32)
    picks = select(embeddings, rng.random(4000).astype(np.float32), 400, seed=0)
    assert len(set(picks.tolist())) == 400
    assert 60 <= (picks >= 3000).sum() <= 140


@pytest.mark.slow
def test_select_handles_a_million_candidates() -> None:
    embeddings, uncertainty = pool(1_000_000, width=8)
    picks = select(embeddings, uncertainty, 10_000, seed=0)
    assert len(set(picks.tolist())) == 10_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"terms": frozenset("x")}, "unknown sampling terms"),
        ({"count": -1}, "cannot choose"),
        ({"uncertainty": np.zeros(3, np.float32)}, "do not fit"),
        ({"uncertainty": np.full(10, np.nan, np.float32)}, "not a finite number"),
    ],
)
def test_select_refuses_what_makes_no_sense(change: dict[str, object], message: str) -> None:
    embeddings, uncertainty = pool(10)
    arguments: dict[str, object] = {
        "embeddings": embeddings,
        "uncertainty": uncertainty,
        "count": 2,
        "seed": 0,
    }
    with pytest.raises(BadInput, match=message):
        select(**{**arguments, **change})  # type: ignore[arg-type]


@settings(max_examples=50)
@given(st.integers(0, 200), st.lists(st.tuples(st.floats(0, 10), st.integers(0, 40)), min_size=1, max_size=9))
def test_allot_spends_all_it_can_within_the_limits(total: int, claims: list[tuple[float, int]]) -> None:
    weights, limits = np.array([w for w, _ in claims]), [limit for _, limit in claims]
    shares = allot(total, weights, limits)
    assert shares.sum() == min(total, sum(limits))
    assert all(0 <= share <= limit for share, limit in zip(shares, limits, strict=True))


def test_allot_follows_the_weights() -> None:
    assert allot(10, np.array([3.0, 1.0, 1.0]), [100, 100, 100]).tolist() == [6, 2, 2]
