"""The knowledge base: one model of all devices so far, what it must not forget, and how that is checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tcl.costmodel.checkpoint import load_extra, load_model, save_model
from tcl.costmodel.metrics import mean_ratio
from tcl.costmodel.network import CostModel
from tcl.costmodel.splits import take_rows
from tcl.errors import BadInput
from tcl.features.batch import FeatureBatch
from tcl.features.dataset import LabelledDataset

VALIDATION_ROWS = 1024
"""Most candidates that are kept of a device to check forgetting: about 1 MB, independent of the size of its data."""


@dataclass
class KnowledgeBase:
    """A model of all devices so far; its size does not depend on their number.

    Attributes
    ----------
    model
        Scores candidates of any device, told by its descriptor.
    fisher
        Importance of each parameter for the devices so far (online EWC), by parameter name.
    validation
        A few measured candidates of each device. Nothing is ever trained on them.
    learned
        Top-1 on them right after the device was learned, by device.
    """

    model: CostModel
    fisher: dict[str, Tensor]
    validation: dict[str, LabelledDataset] = field(default_factory=dict)
    learned: dict[str, float] = field(default_factory=dict)

    def forgetting(self, model: CostModel, without: str = "") -> dict[str, float]:
        """Top-1 that `model` lacks on each device but `without`, against when it was learned; negative is a gain."""
        return {
            device: self.learned[device] - top_1(model, data)
            for device, data in self.validation.items()
            if device != without
        }

    def descriptors(self, without: str = "") -> np.ndarray:
        """Descriptors of the devices so far but `without`: float32[k, D]."""
        known = [data.batch.device[0] for device, data in self.validation.items() if device != without]
        return np.array(known, np.float32).reshape(len(known), self.model.config.device)


def top_1(model: CostModel, dataset: LabelledDataset) -> float:
    """Top-1 with every task weighing the same (`mean_ratio` of the first), by which the gates decide."""
    return mean_ratio(dataset, model.score(dataset.batch)[0], 1)


def validation_sample(dataset: LabelledDataset, seed: int) -> LabelledDataset:
    """At most `VALIDATION_ROWS` candidates of the dataset, of each task its best one and a random share of the rest."""
    if len(dataset) <= VALIDATION_ROWS:
        return dataset
    rng = np.random.default_rng(seed)
    each = max(2, VALIDATION_ROWS // len(dataset.keys))
    rows = []
    for task in range(len(dataset.keys)):
        own = np.flatnonzero(dataset.task == task)
        order = own[np.argsort(dataset.seconds[own], kind="stable")]
        rows.append(np.append(order[:1], rng.permutation(order[1:])[: each - 1]))
    return take_rows(dataset, np.sort(np.concatenate(rows)))


def save_knowledge_base(knowledge_base: KnowledgeBase, folder: Path, metadata: dict[str, Any]) -> None:
    """Write the knowledge base as a cost model that `load_model` reads, with what it must not forget beside it."""
    extra = {f"fisher/{name}": value for name, value in knowledge_base.fisher.items()}
    about: dict[str, Any] = {}
    for device, data in knowledge_base.validation.items():
        arrays = {**vars(data.batch), "task": data.task, "seconds": data.seconds, "weights": data.weights}
        arrays["values"] = arrays["values"].astype(np.float16)
        extra |= {f"validation/{device}/{name}": torch.from_numpy(array) for name, array in arrays.items()}
        about[device] = {"keys": data.keys, "learned": knowledge_base.learned[device]}
    save_model(knowledge_base.model, folder, {**metadata, "devices": about}, extra)


def load_knowledge_base(folder: Path) -> tuple[KnowledgeBase, dict[str, Any]]:
    """Read what `save_knowledge_base` wrote.

    Raises
    ------
    BadInput
        When the folder holds no model, or a model that is no knowledge base.
    """
    model, metadata = load_model(folder)
    extra = load_extra(folder)
    if "devices" not in metadata:
        raise BadInput(f"the model in {folder} is a device's, not a knowledge base")
    fisher = {name.removeprefix("fisher/"): t for name, t in extra.items() if name.startswith("fisher/")}
    knowledge_base = KnowledgeBase(model, fisher)
    for device, about in metadata.pop("devices").items():
        arrays = {
            name: extra[f"validation/{device}/{name}"].numpy()
            for name in ("kinds", "values", "workload", "device", "task", "seconds", "weights")
        }
        batch = FeatureBatch(
            arrays["kinds"], arrays["values"].astype(np.float32), arrays["workload"], arrays["device"]
        )
        keys = about["keys"]
        knowledge_base.validation[device] = LabelledDataset(
            batch,
            arrays["task"],
            arrays["seconds"],
            keys,
            [device] * len(keys),
            arrays["weights"],
            ["validation"] * len(batch),
        )
        knowledge_base.learned[device] = about["learned"]
    return knowledge_base, metadata
