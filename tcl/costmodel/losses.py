"""Ranking losses over groups of candidates. A group never mixes tasks: latencies of different tasks do not compare."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

GAIN = 4.0
"""Steepness of the gain ``2**(GAIN * relevance) - 1``: the higher, the more the top of the list counts."""


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
    gain = (torch.exp2(GAIN * relevance) - 1) * mask
    with torch.no_grad():
        order = scores.masked_fill(~mask, -torch.inf).argsort(dim=1, descending=True)
        rank = torch.empty_like(order).scatter_(
            1, order, torch.arange(scores.shape[1]).to(order).expand_as(order)
        )
        discount = 1 / torch.log2(rank + 2.0)
        ideal = gain.sort(dim=1, descending=True).values / torch.log2(
            torch.arange(2.0, scores.shape[1] + 2).to(gain)
        )
        ideal = ideal.sum(1).clamp(min=1e-6)
        gap = gain.unsqueeze(2) - gain.unsqueeze(1)
        weight = (
            gap.clamp(min=0) * (discount.unsqueeze(2) - discount.unsqueeze(1)).abs() / ideal[:, None, None]
        )
        weight = weight * (mask.unsqueeze(2) & mask.unsqueeze(1))
    loss = (weight * F.softplus(scores.unsqueeze(1) - scores.unsqueeze(2))).sum((1, 2))
    ordered = weight.sum((1, 2)) > 0
    return loss.sum() / ordered.sum().clamp(min=1)


def list_net(scores: Tensor, relevance: Tensor, mask: Tensor, sharpness: float = 8.0) -> Tensor:
    target = (relevance * sharpness).masked_fill(~mask, -torch.inf).softmax(1)
    logp = scores.masked_fill(~mask, -1e9).log_softmax(1)
    entropy = -(target * target.clamp(min=1e-12).log()).sum(1)
    return (-(target * logp).sum(1) - entropy).mean()


def ranking_loss(scores: Tensor, relevance: Tensor, mask: Tensor) -> Tensor:
    return lambda_rank(scores, relevance, mask)
