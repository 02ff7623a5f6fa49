"""Models and training states on disk: safetensors for numbers, JSON for the rest."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save

from tcl.console import note
from tcl.costmodel.network import CostModel, CostModelConfig
from tcl.errors import BadInput
from tcl.features.batch import FEATURE_VERSION
from tcl.features.vocabulary import KINDS
from tcl.files import atomic_json, atomic_write

if TYPE_CHECKING:
    from tcl.costmodel.training import TrainReport

WEIGHTS, MODEL = "weights.safetensors", "model.json"
EVALUATED = "evaluated/"
"""Prefix of the extra tensors of the model that a saved model's metrics are of."""

_EXTRA = "extra/"


def save_model(
    model: CostModel, folder: Path, metadata: dict[str, Any], extra: dict[str, torch.Tensor] | None = None
) -> None:
    """Write `weights.safetensors` and `model.json` into `folder`.

    `metadata` is any JSON object about the model; `load_model` gives it back. `extra` tensors lie beside the
    weights for `load_extra`; scoring does not need them.
    """
    description = {
        "format": "tcl-cost-model",
        "feature_version": FEATURE_VERSION,
        "vocabulary": list(KINDS),
        "config": asdict(model.config),
        "knowledge_base": model.knowledge_base is not None,
        "metadata": metadata,
    }
    tensors = model.state_dict() | {f"{_EXTRA}{name}": value for name, value in (extra or {}).items()}
    atomic_write(folder / WEIGHTS, save({name: value.contiguous() for name, value in tensors.items()}))
    atomic_json(folder / MODEL, description)


def load_model(folder: Path) -> tuple[CostModel, dict[str, Any]]:
    """Read what `save_model` wrote: the model, ready to score, and its metadata.

    Raises
    ------
    BadInput
        When a file is missing or damaged, or the model reads features of another version.
    """
    if missing := [file for file in (MODEL, WEIGHTS) if not (folder / file).is_file()]:
        raise BadInput(f"{folder} holds no cost model: {missing[0]} is missing")
    try:
        description = json.loads((folder / MODEL).read_text())
        if description["feature_version"] != FEATURE_VERSION:
            raise BadInput(
                f"the cost model in {folder} reads features of version {description['feature_version']}, this "
                f"installation makes version {FEATURE_VERSION}; train it again with `tcl distill`"
            )
        if description["vocabulary"] != list(KINDS):
            raise BadInput(
                f"the cost model in {folder} has another vocabulary of schedule steps; train it again"
            )
        config = CostModelConfig(**description["config"])
        model = CostModel(config, CostModel(config) if description["knowledge_base"] else None)
        tensors = load_file(folder / WEIGHTS)
        model.load_state_dict({name: t for name, t in tensors.items() if not name.startswith(_EXTRA)})
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise BadInput(f"the cost model in {folder} is damaged: {error}") from None
    return model.eval(), description["metadata"]


def load_extra(folder: Path) -> dict[str, torch.Tensor]:
    """The `extra` tensors that `save_model` put beside the weights."""
    tensors = load_file(folder / WEIGHTS)
    return {name.removeprefix(_EXTRA): t for name, t in tensors.items() if name.startswith(_EXTRA)}


def load_evaluated(folder: Path) -> CostModel:
    """The model that the saved one's metrics are of: itself before it learned the held-out workloads too.

    A model that lies there without such a past is its own.
    """
    model, _ = load_model(folder)
    past = {
        name.removeprefix(EVALUATED): tensor
        for name, tensor in load_extra(folder).items()
        if name.startswith(EVALUATED)
    }
    if past:
        model.load_state_dict(past)
    return model


class TrainingState:
    """The state of a training between two epochs, in one safetensors file so that it is whole or absent.

    Parameters
    ----------
    folder
        Where `training.safetensors` is kept.
    options
        What the training depends on, as JSON; a state of other options is ignored.
    """

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self.path = folder / "training.safetensors"
        self.options = json.loads(json.dumps(options))

    def save(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        report: TrainReport,
        best: dict[str, torch.Tensor] | None,
    ) -> None:
        """Keep the state after an epoch."""
        tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in (best or {}).items()}
        for index, moments in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": value for name, value in moments.items()}
        about = {"options": json.dumps(self.options), "report": json.dumps(asdict(report))}
        atomic_write(self.path, save({name: t.contiguous() for name, t in tensors.items()}, about))

    def restore(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, report: TrainReport
    ) -> dict[str, torch.Tensor] | None:
        """Put a kept state back into model, optimizer and report; return the best weights, None when none is kept.

        A damaged state is none: the training begins anew.
        """
        if not self.path.exists():
            return None
        try:
            about, tensors = self._read()
            if about["options"] != self.options:
                return None
            moments: dict[int, dict[str, torch.Tensor]] = {}
            for name, value in tensors["optimizer"].items():
                index, moment = name.split(".", 1)
                moments.setdefault(int(index), {})[moment] = value
            if _shapes(tensors["model"]) != _shapes(model.state_dict()):
                raise ValueError("it is of another model")
            kept = dict(about["report"])
        except (KeyError, TypeError, ValueError, SafetensorError, OSError) as error:
            note(f"{self.path} is damaged ({error}); the training begins anew")
            return None
        model.load_state_dict(tensors["model"])
        optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
        vars(report).update(kept)
        return tensors["best"]

    def _read(self) -> tuple[dict[str, Any], dict[str, dict[str, torch.Tensor]]]:
        """What `save` wrote: options and report, and the tensors by part."""
        tensors: dict[str, dict[str, torch.Tensor]] = {"model": {}, "best": {}, "optimizer": {}}
        with safe_open(self.path, "pt") as file:
            about = {name: json.loads(value) for name, value in (file.metadata() or {}).items()}
            for name in file.keys():  # noqa: SIM118 (no dictionary)
                part, rest = name.split(".", 1)
                tensors[part][rest] = file.get_tensor(name)
        return about, tensors

    def clear(self) -> None:
        """Forget the state: the training is over."""
        self.path.unlink(missing_ok=True)


def _shapes(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in tensors.items()}
