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


_SHARES = {"only": 1.0, "scratch": 0.35, "transfer": 0.45, "compress": 0.2}


def stage_options(options: TrainOptions, stage: str) -> TrainOptions:
    """The stage's share of the time budget; compressing needs fewer epochs, since its teacher has no noise."""
    epochs = options.epochs if stage != "compress" else max(1, options.epochs // 3)
    return replace(options, epochs=epochs, seconds=options.seconds and options.seconds * _SHARES[stage])
