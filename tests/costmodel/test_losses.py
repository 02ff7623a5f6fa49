"""The ranking loss."""

import pytest
import torch

from tcl.costmodel.losses import lambda_rank, ranking_loss, speed_regression

RELEVANCE = torch.tensor([[1.0, 0.5, 0.2, 0.0], [0.3, 1.0, 0.0, 0.0]])
MASK = torch.tensor([[True, True, True, True], [True, True, False, False]])


def test_loss_is_smaller_when_the_order_is_right() -> None:
    right = ranking_loss(RELEVANCE.clone(), RELEVANCE, MASK)
    wrong = ranking_loss(-RELEVANCE, RELEVANCE, MASK)
    assert right < wrong


def test_lambda_rank_weighs_the_top_more_when_one_pair_is_swapped() -> None:
    top = lambda_rank(torch.tensor([[2.0, 3.0, 1.0, 0.0]]), RELEVANCE[:1], MASK[:1])
    bottom = lambda_rank(torch.tensor([[3.0, 2.0, 0.0, 1.0]]), RELEVANCE[:1], MASK[:1])
    assert top > bottom


@pytest.mark.parametrize("loss", [lambda_rank, speed_regression, ranking_loss])
def test_loss_ignores_what_is_masked(loss: object) -> None:
    scores = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    changed = torch.where(MASK, scores, torch.tensor(50.0))
    assert callable(loss)
    torch.testing.assert_close(loss(scores, RELEVANCE, MASK), loss(changed, RELEVANCE, MASK))


def test_lambda_rank_is_zero_with_finite_gradient_when_all_candidates_failed() -> None:
    scores = torch.randn(1, 4, requires_grad=True)
    loss = lambda_rank(scores, torch.zeros(1, 4), MASK[:1])
    loss.backward()
    assert loss == 0
    assert scores.grad is not None and torch.isfinite(scores.grad).all()


def test_lambda_rank_never_compares_two_groups_when_they_lie_side_by_side() -> None:
    scores = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    shifted = scores + torch.tensor([[0.0], [9.0]])
    torch.testing.assert_close(lambda_rank(scores, RELEVANCE, MASK), lambda_rank(shifted, RELEVANCE, MASK))


def test_speed_regression_is_zero_when_scores_are_the_documented_targets() -> None:
    scores = torch.tensor([[1.0, 1 - 1 / 3, 0.0, -1.0]])
    relevance = torch.tensor([[1.0, 0.5, 0.125, 0.0]])
    assert speed_regression(scores, relevance, torch.ones(1, 4, dtype=torch.bool)) < 1e-12
