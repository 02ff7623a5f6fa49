"""The networks that the learning benchmark compares with: TLP's."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tcl.costmodel.network import Inputs, Scorer
from tcl.features.batch import STEP_WIDTH
from tcl.features.vocabulary import PADDING, VOCABULARY_SIZE


class Tlp(Scorer):
    """TLP's network (Zhai et al. 2023, arXiv 2211.03578) on our step sequences.

    One-hot kind and values of each step → 64-128-256-256 → self-attention with 8 heads → two residual blocks →
    256-128-64-1, summed over the steps. The original sums padding too; here padding is masked. It reads the schedule
    alone, neither the workload nor the device.
    """

    def __init__(self) -> None:
        super().__init__(heads=1)
        self.encoder = _layers(VOCABULARY_SIZE + STEP_WIDTH, 64, 128, 256, 256)
        self.attention = nn.MultiheadAttention(256, 8, batch_first=True)
        self.residual = nn.ModuleList(nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(2))
        self.decoder = nn.Sequential(_layers(256, 256, 128, 64), nn.Linear(64, 1))

    def forward(self, inputs: Inputs) -> Tensor:
        """Scores, float[n, 1]."""
        kinds = F.one_hot(inputs.kinds, VOCABULARY_SIZE).to(inputs.values)
        hidden = self.encoder(torch.cat([kinds, inputs.values], dim=-1))  # (n, L, 256)
        padding = inputs.kinds == PADDING
        hidden = self.attention(hidden, hidden, hidden, key_padding_mask=padding, need_weights=False)[0]
        for block in self.residual:
            hidden = hidden + block(hidden)
        return self.decoder(hidden).masked_fill(padding.unsqueeze(-1), 0).sum(1)


def _layers(*widths: int) -> nn.Sequential:
    steps: list[nn.Module] = []
    for before, after in pairwise(widths):
        steps += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*steps)
