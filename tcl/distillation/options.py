"""How a device is learned."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tcl.costmodel.network import CostModelConfig
from tcl.costmodel.training import TrainOptions


@dataclass(frozen=True)
class DistillOptions:
    """How a device is learned.

    Attributes
    ----------
    config
        Shape of the models; with a knowledge base, its shape is taken.
    train
        How each stage is trained; its `seconds` are the budget of the whole distillation.
    held_out
        Share of the workloads for early stopping, and as much again for the gates and the reported metrics.
    ewc_strengths
        Weights of EWC's penalty, tried one after another until the knowledge base forgets little enough.
    fisher_decay
        How much of the earlier devices' importance remains with each new device.
    forgetting_bound
        Top-1 that the knowledge base may lose on an earlier device.
    """

    config: CostModelConfig = field(default_factory=CostModelConfig)
    train: TrainOptions = field(default_factory=TrainOptions)
    held_out: float = 0.15
    ewc_strengths: tuple[float, ...] = (100.0, 1000.0, 10000.0)
    fisher_decay: float = 0.95
    forgetting_bound: float = 0.02


_SHARES = {"only": 0.45, "only, all": 0.55, "scratch": 0.2, "transfer": 0.3, "compress": 0.15, "all": 0.35}


def stage_options(options: TrainOptions, stage: str) -> TrainOptions:
    """How a stage is trained: its share of the time budget.

    Compressing goes slower and longer, since its teachers have no noise that it could learn by heart, and takes all of
    its epochs: what it gives up on the way, the knowledge of earlier devices, is no part of what early stopping sees.
    """
    options = replace(options, seconds=options.seconds and options.seconds * _SHARES[stage])
    if stage != "compress":
        return options
    epochs, rate = -(-3 * options.epochs // 2), options.learning_rate / 2
    return replace(options, epochs=epochs, learning_rate=rate, patience=None)
