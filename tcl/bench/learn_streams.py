"""Ways to learn one device after another, side by side in the table of transfer."""

from __future__ import annotations

import copy
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from tcl.bench.learn_data import each_task
from tcl.costmodel.network import CostModel, CostModelConfig, build_model, parameter_count
from tcl.features.dataset import LabelledDataset

if TYPE_CHECKING:
    from tcl.bench.learn_study import Study


class _Stream(ABC):
    """One way to learn a stream of devices: the first from `first_rows` labels a task, the others from a fraction."""

    def __init__(self, study: Study, order: tuple[str, ...], seed: int) -> None:
        self.study, self.seed, self.seconds = study, seed, 0.0
        self.base = study.knowledge(order[0], seed)
        self.models: list[CostModel] = [self.base.model]
        first = study.fold(order[0], seed)[0]
        rng = np.random.default_rng(seed)
        self.data = [each_task(first, 1.0, lambda rows, _: rng.permutation(rows)[: study.params.first_rows])]

    def labels(self, device: str) -> LabelledDataset:
        self.data.append(self.study.chosen(device, "random", self.study.params.fraction, self.seed))
        return self.data[-1]

    def train(self, model: CostModel, data: LabelledDataset) -> None:
        self.seconds += self.study.fit(model, data, self.seed).seconds
        self.models.append(model)

    def remembering(self) -> list[CostModel]:
        """The model that answers for each device at the end."""
        return [self.models[-1]] * len(self.models)

    def parameters(self) -> int:
        """Parameters that answer for all devices at the end."""
        return parameter_count(self.models[-1])

    @abstractmethod
    def learn(self, device: str) -> None:
        """Learn the next device; its model is the last of `models`."""


class _Scratch(_Stream):
    """A model for each device."""

    def learn(self, device: str) -> None:
        learned = self.study.scratch(device, "random", self.study.params.fraction, self.seed)
        self.seconds += learned.seconds
        self.models.append(learned.model)

    def remembering(self) -> list[CostModel]:
        return self.models

    def parameters(self) -> int:
        return sum(map(parameter_count, self.models))


class _FineTuning(_Stream):
    """The previous device's model, trained on."""

    def learn(self, device: str) -> None:
        self.train(copy.deepcopy(self.models[-1]).requires_grad_(True), self.labels(device))


class _Joint(_Stream):
    """A new model on all devices' data, all of which is kept."""

    def learn(self, device: str) -> None:
        self.labels(device)
        self.train(build_model(CostModelConfig(), self.seed), LabelledDataset.concat(self.data))


class _Continual(_Stream):
    """Progress and compress with both gates; the knowledge base answers for earlier devices."""

    def learn(self, device: str) -> None:
        data = self.labels(device)
        model, evaluated, seconds = self.study.progress(self.base, device, "random", self.seed)
        started = time.process_time()
        self.base = self.study.compress(self.base, evaluated, device, data, self.seed)
        self.seconds += seconds + time.process_time() - started
        self.models.append(model)

    def remembering(self) -> list[CostModel]:
        return [self.base.model] * len(self.models)


METHODS: dict[str, type[_Stream]] = {
    "from scratch": _Scratch,
    "fine-tuning": _FineTuning,
    "joint": _Joint,
    "CKD": _Continual,
}
