"""Top-k by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.synthetic import make_dataset
from tcl.costmodel.metrics import mean_ratio, rank_correlation, top_k, top_ks
from tcl.costmodel.splits import take_rows
from tcl.errors import BadInput
from tcl.features.dataset import LabelledDataset


def small(
    dataset: LabelledDataset, seconds: list[float], weights: tuple[float, float] = (1.0, 1.0)
) -> LabelledDataset:
    """Two tasks of three candidates."""
    part = take_rows(dataset, np.arange(6))
    part = replace(part, task=np.array([0, 0, 0, 1, 1, 1], np.int32), seconds=np.array(seconds))
    return replace(part, keys=["a", "b"], devices=["cpu", "cpu"], weights=np.array(weights))


SCORES = np.array([3.0, 2.0, 1.0, 1.0, 3.0, 2.0])


def test_top_k_equals_the_formula_when_computed_by_hand(dataset: LabelledDataset) -> None:
    data = small(dataset, [2.0, 1.0, 9.0, 3.0, 8.0, 6.0], (1.0, 2.0))
    assert top_k(data, SCORES, 1) == pytest.approx((1 + 2 * 3) / (2 + 2 * 8))
    assert top_k(data, SCORES, 2) == pytest.approx((1 + 2 * 3) / (1 + 2 * 6))
    assert top_ks(data, SCORES, (1, 3)) == {"top_1": top_k(data, SCORES, 1), "top_3": 1.0}
    assert mean_ratio(data, SCORES, 1) == pytest.approx((1 / 2 + 3 / 8) / 2)


def test_top_k_counts_the_slowest_success_when_all_picks_failed(dataset: LabelledDataset) -> None:
    data = small(dataset, [np.inf, 1.0, 9.0, 3.0, 8.0, 6.0])
    assert top_k(data, SCORES, 1) == pytest.approx((1 + 3) / (9 + 8))
    assert top_k(data, SCORES, 2) == pytest.approx((1 + 3) / (1 + 6))


def test_top_k_names_the_task_when_it_has_no_success(dataset: LabelledDataset) -> None:
    data = small(dataset, [2.0, 1.0, 9.0, np.inf, np.inf, np.inf])
    with pytest.raises(BadInput, match="task b of device cpu"):
        top_k(data, SCORES, 1)


def test_top_k_refuses_a_task_without_rows(dataset: LabelledDataset) -> None:
    data = small(dataset, [2.0, 1.0, 9.0, 3.0, 8.0, 6.0])
    with pytest.raises(BadInput, match="task b"):
        top_k(take_rows(data, np.arange(3)), SCORES[:3], 1)


@pytest.mark.parametrize("scores", [np.full(6, np.nan), np.zeros(5)])
def test_top_k_refuses_scores_that_are_not_finite_or_do_not_fit(
    dataset: LabelledDataset, scores: np.ndarray
) -> None:
    with pytest.raises(BadInput):
        top_k(small(dataset, [1.0] * 6), scores, 1)


@settings(max_examples=30)
@given(st.lists(st.floats(1e-6, 1e3), min_size=6, max_size=6), st.permutations(range(6)))
def test_top_k_is_one_for_the_oracle_and_never_falls_with_k(seconds: list[float], order: list[int]) -> None:
    data = small(make_dataset(), seconds)
    scores = np.array(order, float)
    values = [top_k(data, scores, k) for k in (1, 2, 3)]
    assert top_k(data, -data.seconds, 1) == pytest.approx(1.0)
    assert values == sorted(values) and values[-1] == pytest.approx(1.0)


def test_rank_correlation_sees_the_order_alone() -> None:
    values = np.array([1.0, 5.0, 2.0, 9.0])
    assert rank_correlation(values, values**3) == pytest.approx(1)
    assert rank_correlation(values, -values) == pytest.approx(-1)
