"""The networks that compiling is judged on; none of their tensor programs is in the shipped dataset."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tcl.bench.blocks import Bottleneck, EncoderLayer, GlobalAverage, Residual, Tokens, conv_bn


def _resnet(groups: int, width: int) -> nn.Module:
    layers: list[nn.Module] = [conv_bn(3, 64, 7, 2, activation=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        outputs = 256 << stage
        for block in range(depth):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Bottleneck(inputs, width << stage, outputs, stride, groups))
            inputs = outputs
    return nn.Sequential(*layers, GlobalAverage(), nn.Linear(inputs, 1000))


def resnet50() -> nn.Module:
    """ResNet-50 (He et al., 2015, arXiv:1512.03385), stride in the 3x3 convolution."""
    return _resnet(groups=1, width=64)


def resnext50_32x4d() -> nn.Module:
    """ResNeXt-50 32x4d (Xie et al., 2016, arXiv:1611.05431)."""
    return _resnet(groups=32, width=128)


def mobilenet_v2() -> nn.Module:
    """MobileNetV2 1.0 (Sandler et al., 2018, arXiv:1801.04381)."""
    layers: list[nn.Module] = [conv_bn(3, 32, 3, 2, activation=nn.ReLU6())]
    inputs = 32
    for expansion, outputs, depth, first_stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for block in range(depth):
            stride = first_stride if block == 0 else 1
            width = inputs * expansion
            expand = [conv_bn(inputs, width, 1, activation=nn.ReLU6())] if expansion > 1 else []
            body = nn.Sequential(
                *expand,
                conv_bn(width, width, 3, stride, width, activation=nn.ReLU6()),
                conv_bn(width, outputs, 1),
            )
            layers.append(Residual(body) if stride == 1 and inputs == outputs else body)
            inputs = outputs
    head = conv_bn(inputs, 1280, 1, activation=nn.ReLU6())
    return nn.Sequential(*layers, head, GlobalAverage(), nn.Linear(1280, 1000))


class _Bert(nn.Module):
    """BERT (Devlin et al., 2018, arXiv:1810.04805): hidden states and the pooled first token."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        heads = width // 64
        self.tokens = Tokens(30522, 128, width)
        self.layers = nn.Sequential(
            *(EncoderLayer(width, heads, 4 * width, norm_first=False) for _ in range(layers))
        )
        self.pooler = nn.Linear(width, width)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.layers(self.tokens(ids))
        return hidden, torch.tanh(self.pooler(hidden[:, 0]))


def bert_tiny() -> nn.Module:
    """BERT-tiny: 2 layers of width 128 over 128 tokens."""
    return _Bert(layers=2, width=128)


def bert_base() -> nn.Module:
    """BERT-base: 12 layers of width 768 over 128 tokens."""
    return _Bert(layers=12, width=768)
