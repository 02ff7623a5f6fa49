"""The networks whose tensor programs fill the shipped dataset.

Their resolutions, widths and sequence lengths differ from those of the held-out networks, so that no program
occurs in both. Each program is small enough (at most 0.3 GFLOP) for thousands of schedules to be measured.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from tcl.bench.blocks import (
    Bottleneck,
    Branches,
    EncoderLayer,
    GlobalAverage,
    Patches,
    Residual,
    Tokens,
    conv_bn,
)


def vgg_like() -> nn.Module:
    """Plain 3x3 convolutions with biases, as in VGG."""
    layers: list[nn.Module] = []
    inputs = 3
    for outputs in (24, 48, 80, 112):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        inputs = outputs
    layers += [nn.Flatten(), nn.Linear(112 * 100, 320), nn.ReLU(), nn.Linear(320, 100)]
    return nn.Sequential(*layers)


def densenet_like() -> nn.Module:
    """Pre-activated layers whose inputs grow by concatenation, as in DenseNet."""
    growth, width = 24, 40
    layers: list[nn.Module] = [conv_bn(3, width, 7, 2, activation=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
    for last, depth in ((False, 3), (False, 3), (True, 3)):
        for _ in range(depth):
            grow = nn.Sequential(
                nn.BatchNorm2d(width),
                nn.ReLU(),
                conv_bn(width, 96, 1, activation=nn.ReLU()),
                nn.Conv2d(96, growth, 3, padding=1, bias=False),
            )
            layers.append(Branches(nn.Identity(), grow))
            width += growth
        if not last:
            layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1), nn.AvgPool2d(2)]
            width //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU(), GlobalAverage(), nn.Linear(width, 120))


class _Shuffle(nn.Module):
    """Interleave the channels of the groups (`nn.ChannelShuffle` cannot be exported)."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        grouped = x.reshape(batch, self.groups, channels // self.groups, height, width)
        return grouped.transpose(1, 2).reshape(batch, channels, height, width)


def shufflenet_like() -> nn.Module:
    """Grouped 1x1 and depthwise convolutions around a channel shuffle, as in ShuffleNet."""
    groups = 4
    layers: list[nn.Module] = [conv_bn(3, 48, 3, 2, activation=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
    layers.append(conv_bn(48, 112, 1, activation=nn.ReLU()))
    inputs = 112
    for outputs, depth in ((112, 1), (224, 2), (448, 2)):
        for block in range(depth):
            stride = 2 if block == 0 and inputs != outputs else 1
            middle = outputs // 4
            body = nn.Sequential(
                conv_bn(inputs, middle, 1, groups=groups, activation=nn.ReLU()),
                _Shuffle(groups),
                conv_bn(middle, middle, 3, stride, middle),
                conv_bn(middle, outputs, 1, groups=groups),
            )
            shortcut = conv_bn(inputs, outputs, 1, stride, groups) if stride == 2 else None
            layers.append(Residual(body, shortcut, nn.ReLU()))
            inputs = outputs
    return nn.Sequential(*layers, GlobalAverage(), nn.Linear(inputs, 200))


class _Excite(nn.Module):
    """Squeeze and excitation: channels scaled by what their means say."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.SiLU(),
            nn.Conv2d(squeezed, channels, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale(x)


def efficientnet_like() -> nn.Module:
    """Inverted residuals with squeeze and excitation and SiLU, as in EfficientNet."""
    layers: list[nn.Module] = [conv_bn(3, 40, 3, 2, activation=nn.SiLU())]
    inputs = 40
    for outputs, kernel, stride, depth in ((24, 3, 1, 1), (40, 5, 2, 2), (80, 3, 2, 2), (112, 5, 2, 2)):
        for block in range(depth):
            step = stride if block == 0 else 1
            width = inputs * 3
            body = nn.Sequential(
                conv_bn(inputs, width, 1, activation=nn.SiLU()),
                conv_bn(width, width, kernel, step, width, activation=nn.SiLU()),
                _Excite(width, max(8, inputs // 4)),
                conv_bn(width, outputs, 1),
            )
            layers.append(Residual(body) if step == 1 and inputs == outputs else body)
            inputs = outputs
    head = conv_bn(inputs, 480, 1, activation=nn.SiLU())
    return nn.Sequential(*layers, head, GlobalAverage(), nn.Linear(480, 150))


def inception_like() -> nn.Module:
    """Parallel branches with factorised 1x7 / 7x1 and 1x3 / 3x1 convolutions, as in Inception-v3."""

    def branch(inputs: int, *convolutions: tuple[int, int | tuple[int, int]]) -> nn.Module:
        layers = []
        for outputs, kernel in convolutions:
            layers.append(conv_bn(inputs, outputs, kernel, activation=nn.ReLU()))
            inputs = outputs
        return nn.Sequential(*layers)

    def average(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.AvgPool2d(3, 1, 1), conv_bn(inputs, outputs, 1, activation=nn.ReLU()))

    stem = [conv_bn(3, 24, 3, 2, activation=nn.ReLU()), conv_bn(24, 40, 3, activation=nn.ReLU())]
    return nn.Sequential(
        *stem,
        nn.MaxPool2d(3, 2),
        conv_bn(40, 80, 1, activation=nn.ReLU()),
        conv_bn(80, 96, 3, 2, activation=nn.ReLU()),
        Branches(
            branch(96, (48, 1)),
            branch(96, (40, 1), (48, 5)),
            branch(96, (40, 1), (56, 3), (56, 3)),
            average(96, 40),
        ),
        Branches(conv_bn(192, 128, 3, 2, activation=nn.ReLU()), nn.MaxPool2d(3, 2, 1)),
        Branches(
            branch(320, (96, 1)),
            branch(320, (80, 1), (80, (1, 7)), (96, (7, 1))),
            branch(320, (80, 1), (80, (7, 1)), (80, (1, 7)), (96, (1, 3)), (96, (3, 1))),
            average(320, 48),
        ),
        GlobalAverage(),
        nn.Linear(336, 80),
    )


def mobilenet_v1_like() -> nn.Module:
    """Depthwise separable convolutions without residuals, as in MobileNet 0.75."""
    layers: list[nn.Module] = [conv_bn(3, 24, 3, 2, activation=nn.ReLU())]
    inputs = 24
    for outputs, stride in ((48, 1), (96, 2), (96, 1), (192, 2), (192, 1), (384, 2), (384, 1), (768, 2)):
        layers.append(conv_bn(inputs, inputs, 3, stride, inputs, activation=nn.ReLU()))
        layers.append(conv_bn(inputs, outputs, 1, activation=nn.ReLU()))
        inputs = outputs
    return nn.Sequential(*layers, GlobalAverage(), nn.Linear(inputs, 250), nn.Softmax(-1))


def regnet_like() -> nn.Module:
    """Wide-grouped bottlenecks with strided shortcuts, as in RegNet."""
    layers: list[nn.Module] = [conv_bn(3, 32, 3, 2, activation=nn.ReLU())]
    inputs = 32
    for width, groups, depth in ((48, 2, 1), (96, 4, 2), (208, 13, 2), (432, 9, 1)):
        for block in range(depth):
            layers.append(Bottleneck(inputs, width, width, 2 if block == 0 else 1, groups))
            inputs = width
    return nn.Sequential(*layers, GlobalAverage(), nn.Linear(inputs, 90))


class _ConvNextBlock(nn.Module):
    """Depthwise 7x7, layer normalisation over the channels and a two-layer perceptron."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.depthwise(x).permute(0, 2, 3, 1)
        return x + self.perceptron(self.norm(mixed)).permute(0, 3, 1, 2)


def convnext_like() -> nn.Module:
    """Large depthwise kernels and channel-last perceptrons, as in ConvNeXt."""
    return nn.Sequential(
        nn.Conv2d(3, 40, 4, 4),
        _ConvNextBlock(40),
        nn.Conv2d(40, 88, 2, 2),
        _ConvNextBlock(88),
        nn.Conv2d(88, 176, 2, 2),
        _ConvNextBlock(176),
        GlobalAverage(),
        nn.LayerNorm(176),
        nn.Linear(176, 70),
    )


class _Up(nn.Module):
    """Enlarge `deep` and join it with the features `skipped` of that size, as in U-Net."""

    def __init__(self, inputs: int, outputs: int, learned: bool) -> None:
        super().__init__()
        self.enlarge: nn.Module
        if learned:
            self.enlarge = nn.ConvTranspose2d(inputs, outputs, 2, 2)
        else:
            upsample = nn.Upsample(scale_factor=2, mode="nearest")
            self.enlarge = nn.Sequential(upsample, nn.Conv2d(inputs, outputs, 1))
        self.join = conv_bn(2 * outputs, outputs, 3, activation=nn.ReLU())

    def forward(self, deep: Tensor, skipped: Tensor) -> Tensor:
        return self.join(torch.cat([self.enlarge(deep), skipped], dim=1))


class _UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = (16, 40, 72)
        self.first = conv_bn(3, widths[0], 5, activation=nn.ReLU())
        self.downs = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), conv_bn(a, b, 3, activation=nn.LeakyReLU(0.1)))
            for a, b in pairwise(widths)
        )
        self.ups = nn.ModuleList([_Up(72, 40, learned=True), _Up(40, 16, learned=False)])
        self.classes = nn.Conv2d(16, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        features = [self.first(x)]
        for down in self.downs:
            features.append(down(features[-1]))
        deep = features.pop()
        for up in self.ups:
            deep = up(deep, features.pop())
        return torch.softmax(self.classes(deep), dim=1)


def unet_like() -> nn.Module:
    """Encoder and decoder with skip connections, one transposed convolution and one resize, as in U-Net."""
    return _UNet()


class _MeanTokens(nn.Module):
    """Mean over the sequence: [n, length, width] to [n, width]."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=1)


def vit_like() -> nn.Module:
    """Two pre-normalised encoder layers over 144 image patches, as in ViT."""
    layers = [EncoderLayer(192, 3, 576, norm_first=True) for _ in range(2)]
    return nn.Sequential(Patches(14, 192), *layers, nn.LayerNorm(192), _MeanTokens(), nn.Linear(192, 60))


class _MixerLayer(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.tokens = nn.Sequential(nn.Linear(tokens, 224), nn.GELU(), nn.Linear(224, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 640), nn.GELU(), nn.Linear(640, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


def mixer_like() -> nn.Module:
    """Perceptrons across patches and across channels, as in MLP-Mixer."""
    return nn.Sequential(Patches(12, 320), _MixerLayer(100, 320), _MeanTokens(), nn.Linear(320, 110))


def text_encoder() -> nn.Module:
    """Embeddings of 96 tokens and two pre-normalised encoder layers of width 384 with ReLU."""
    layers = [EncoderLayer(384, 6, 960, norm_first=True, activation=nn.ReLU()) for _ in range(2)]
    return nn.Sequential(Tokens(4000, 96, 384), *layers, nn.LayerNorm(384), _MeanTokens(), nn.Linear(384, 30))


class _Listener(nn.Module):
    """One-dimensional convolutions, attention over time, and reductions of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(80, 160, 3, padding=1), nn.ReLU(), nn.AvgPool1d(2))
        self.layer = EncoderLayer(160, 4, 448, norm_first=False, activation=nn.Tanh())
        self.gate = nn.Linear(160, 160)
        self.words = nn.Linear(160, 1200)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.layer(self.front(x).transpose(1, 2))
        weights = torch.softmax(self.gate(hidden), dim=1)
        summary = torch.cat([(weights * hidden).sum(1), hidden.amax(1), hidden.square().mean(1)], dim=-1)
        return torch.log_softmax(self.words(hidden), dim=-1), summary


def listener() -> nn.Module:
    """A small speech model over 128 frames, heavy in normalisations, soft-maxima, pools and reductions."""
    return _Listener()
