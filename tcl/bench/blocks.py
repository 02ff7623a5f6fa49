"""Building blocks that the benchmark networks share."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def conv_bn(
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int] = 3,
    stride: int = 1,
    groups: int = 1,
    activation: nn.Module | None = None,
) -> nn.Sequential:
    """Convolution with "same" padding, batch normalisation and an optional activation."""
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    padding = (height // 2, width // 2)
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, (height, width), stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([activation] if activation is not None else []))


class Residual(nn.Module):
    """``after(body(x) + shortcut(x))``."""

    def __init__(
        self, body: nn.Module, shortcut: nn.Module | None = None, after: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut or nn.Identity()
        self.after = after or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.body(x) + self.shortcut(x))


class Branches(nn.Module):
    """Concatenation, along the channels, of what each branch makes of the input."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class GlobalAverage(nn.Module):
    """Mean over the pixels: [n, c, h, w] to [n, c]."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))


class Bottleneck(Residual):
    """Bottleneck of ResNet (groups 1) and ResNeXt."""

    def __init__(self, inputs: int, width: int, outputs: int, stride: int, groups: int = 1) -> None:
        body = nn.Sequential(
            conv_bn(inputs, width, 1, activation=nn.ReLU()),
            conv_bn(width, width, 3, stride, groups, activation=nn.ReLU()),
            conv_bn(width, outputs, 1),
        )
        shortcut = conv_bn(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else None
        super().__init__(body, shortcut, nn.ReLU())


class Attention(nn.Module):
    """Multi-head self-attention over [n, length, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        head = width // self.heads

        def split(values: Tensor) -> Tensor:  # [n, heads, length, head]
            return values.reshape(batch, length, self.heads, head).transpose(1, 2)

        query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = query @ key.transpose(-1, -2) * head**-0.5
        mixed = torch.softmax(scores, dim=-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class EncoderLayer(nn.Module):
    """Transformer encoder layer with the norms before (ViT) or after (BERT) the sub-layers."""

    def __init__(
        self, width: int, heads: int, hidden: int, norm_first: bool, activation: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attention = Attention(width, heads)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, hidden), activation or nn.GELU(), nn.Linear(hidden, width)
        )
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x: Tensor) -> Tensor:
        for norm, layer in zip(self.norms, (self.attention, self.feed_forward), strict=True):
            x = x + layer(norm(x)) if self.norm_first else norm(x + layer(x))
        return x


class Tokens(nn.Module):
    """Token and position embeddings: int64 [n, length] to [n, length, width]."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.zeros(length, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        return self.norm(self.words(ids) + self.positions)


class Patches(nn.Module):
    """Non-overlapping image patches as a sequence: [n, 3, size, size] to [n, (size / patch)², width]."""

    def __init__(self, patch: int, width: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(3, width, patch, patch)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(x).flatten(2).transpose(1, 2)
