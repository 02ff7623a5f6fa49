"""The ranking loss over groups of candidates. A group never mixes tasks: their latencies do not compare.

It is the sum of two: LambdaRank puts the fast candidates in front; a robust regression to the logarithm of the relative
speed keeps very slow ones away from the front and gives the scores a scale, on which the heads' spread means something.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

GAIN = 4.0
"""Steepness of the gain ``2**(GAIN * relevance) - 1``: the higher, the more the top of the list counts."""

SHARPNESS = 4.0
"""What scores are multiplied with in LambdaRank's logistic, so that it agrees with the regression's scale."""

SLOWEST = 2.0**-6
"""Relative speed below which candidates count as equally slow; failures too."""


def ranking_loss(scores: Tensor, relevance: Tensor, mask: Tensor) -> Tensor:
    """LambdaRank plus regression; see `lambda_rank` for the parameters."""
    return lambda_rank(SHARPNESS * scores, relevance, mask) + speed_regression(scores, relevance, mask)


def lambda_rank(scores: Tensor, relevance: Tensor, mask: Tensor) -> Tensor:
    """Pairwise logistic loss weighted by the change of NDCG when a pair swaps (Burges 2010, MSR-TR-2010-82).

    Parameters
    ----------
    scores : float[g, m]
        Predicted scores of g groups of m candidates.
    relevance : float[g, m]
        Best latency of the task over the candidate's latency, in [0, 1]; 0 for failures.
    mask : bool[g, m]
        Which entries are candidates.

    Returns
    -------
    float[]
        Mean over the groups that order anything; 0 when none does.
    """
    with torch.no_grad():
        gain = (torch.exp2(GAIN * relevance) - 1) * mask
        positions = torch.arange(scores.shape[1], device=scores.device)
        order = scores.masked_fill(~mask, -torch.inf).argsort(dim=1, descending=True)
        rank = torch.empty_like(order).scatter_(1, order, positions.expand_as(order))
        discount = 1 / torch.log2(rank + 2.0)
        ideal = (
            (gain.sort(dim=1, descending=True).values / torch.log2(positions + 2.0)).sum(1).clamp(min=1e-6)
        )
        better = (gain.unsqueeze(2) - gain.unsqueeze(1)).clamp(min=0)
        weight = better * (discount.unsqueeze(2) - discount.unsqueeze(1)).abs() / ideal[:, None, None]
        weight = weight * (mask.unsqueeze(2) & mask.unsqueeze(1))
        ordering = (weight.sum((1, 2)) > 0).sum().clamp(min=1)
    return (weight * F.softplus(scores.unsqueeze(1) - scores.unsqueeze(2))).sum() / ordering


def speed_regression(scores: Tensor, relevance: Tensor, mask: Tensor) -> Tensor:
    """Huber loss to `target_score`."""
    loss = F.huber_loss(scores, target_score(relevance), reduction="none")
    return (loss * mask).sum() / mask.sum().clamp(min=1)


def target_score(relevance: Tensor) -> Tensor:
    """``1 + log2(relevance) / 3``: 1 for the best, 0 for eight times slower, -1 from `SLOWEST` on."""
    return 1 + torch.log2(relevance.clamp(min=SLOWEST)) / 3
