"""TVM's own cost models, for comparison: MetaSchedule's XGBModel and Tenset-MLP (its MLPModel).

Both read features of each buffer store of the lowered program, so every candidate is replayed and lowered first. The
models are TVM's; only the feeding is ours, since TVM's trainers read a tuning session or a folder of logs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.s_tir import meta_schedule as ms

from tcl.compiler.programs.traces import replay, tuning_context
from tcl.files import atomic_write

Stores = list[np.ndarray]
"""float32[stores, 172] of each candidate; no rows where the candidate does not lower."""


def store_features(program: str, traces: Sequence[str], target: dict[str, Any]) -> Stores:
    """Per-store features of candidates of one workload, with the workload's own eight numbers (as Tenset-MLP has them).

    Parameters
    ----------
    program
        `Workload.program`.
    traces
        Schedule traces as JSON text.
    target
        TVM target as JSON.
    """
    module = ms.database.Workload.from_json(json.loads(program)).mod
    context = tuning_context(module, tvm.target.Target(target))
    extractor = ms.feature_extractor.PerStoreFeature(extract_workload=True)
    found = []
    for trace in traces:
        try:
            candidate = ms.MeasureCandidate(replay(context, trace), [])
            found.append(extractor.extract_from(context, [candidate])[0].numpy().astype(np.float32))
        except (ValueError, TypeError, RuntimeError, AttributeError):
            found.append(np.zeros((0, 172), np.float32))
    return found


@dataclass
class XgbRanker:
    """MetaSchedule's XGBModel with its own settings, trained once on many tasks."""

    seed: int

    def fit(self, stores: Stores, relevance: np.ndarray, task: np.ndarray) -> None:
        """Train on the relative speed (best of the task = 1), as XGBModel does."""
        from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig, XGBModel

        config = XGBConfig(seed=self.seed, nthread=1)
        self.model = XGBModel(config=config)
        usable = [row for row, array in enumerate(stores) if len(array)]
        self.model._train([_plain(stores[row]) for row in usable], relevance[usable].astype(np.float32))

    def score(self, stores: Stores) -> np.ndarray:
        """Scores, float32[n]; candidates that do not lower come last."""
        return _rank_lowered(stores, lambda arrays: self.model._predict([_plain(array) for array in arrays]))


@dataclass
class TensetMlp:
    """Tenset-MLP: TVM's SegmentSumMLP and its LambdaRank with the trainer's numbers, in batches of one task.

    TVM's loader scales features by the maximum of whatever it loads; here it is always the training data's.
    """

    seed: int

    def fit(self, stores: Stores, relevance: np.ndarray, task: np.ndarray) -> None:
        """Train for the trainer's 50 epochs."""
        import torch
        from tvm.s_tir.meta_schedule.cost_model.mlp_model import SegmentSumMLP, TrainerConfig

        config = TrainerConfig()
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            self.model = SegmentSumMLP()
        usable = np.array([row for row, array in enumerate(stores) if len(array)])
        self.scale = np.concatenate([stores[row] for row in usable]).max(0)
        self.scale[self.scale == 0] = 1
        self._train(stores, relevance, task, config.num_epoch_full)

    def learn_on(self, stores: Stores, relevance: np.ndarray) -> None:
        """Train on candidates of one task for the trainer's 5 incremental epochs."""
        from tvm.s_tir.meta_schedule.cost_model.mlp_model import TrainerConfig

        self._train(stores, relevance, np.zeros(len(stores), np.int32), TrainerConfig().num_epoch_incremental)

    def save(self, path: Path) -> None:
        """Write weights and scale as safetensors."""
        import torch
        from safetensors.torch import save

        tensors = self.model.state_dict() | {"scale": torch.from_numpy(self.scale)}
        atomic_write(path, save({name: value.contiguous() for name, value in tensors.items()}))

    @classmethod
    def load(cls, path: Path, seed: int = 0) -> TensetMlp:
        """Read what `save` wrote."""
        from safetensors.torch import load_file
        from tvm.s_tir.meta_schedule.cost_model.mlp_model import SegmentSumMLP

        tensors = load_file(path)
        loaded = cls(seed)
        loaded.scale = tensors.pop("scale").numpy()
        loaded.model = SegmentSumMLP()
        loaded.model.load_state_dict(tensors)
        return loaded

    def _train(self, stores: Stores, relevance: np.ndarray, task: np.ndarray, epochs: int) -> None:
        import torch
        from tvm.s_tir.meta_schedule.cost_model.mlp_model import TrainerConfig, lambda_rank_loss

        config = TrainerConfig()
        usable = np.array([row for row, array in enumerate(stores) if len(array)], dtype=np.int64)
        optimizer = torch.optim.Adam(
            self.model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        rng = np.random.default_rng(self.seed)
        for _ in range(epochs):
            for number in rng.permutation(np.unique(task[usable])):
                rows = rng.permutation(usable[task[usable] == number])[: config.batch_size]
                if len(rows) < 2:
                    continue
                loss = lambda_rank_loss(
                    self._forward([stores[row] for row in rows]), torch.from_numpy(relevance[rows])
                )
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.grad_clip_norm)
                optimizer.step()

    def score(self, stores: Stores) -> np.ndarray:
        """Scores, float32[n]; candidates that do not lower come last."""
        return _rank_lowered(stores, lambda arrays: self._forward(arrays).detach().numpy())

    def _forward(self, arrays: Stores) -> Any:
        import torch

        sizes = torch.tensor([len(array) for array in arrays], dtype=torch.int32)
        return self.model(sizes, torch.from_numpy(np.concatenate(arrays) / self.scale)).reshape(-1)


def _plain(features: np.ndarray) -> np.ndarray:
    """XGBModel's 164 numbers: without the workload's eight."""
    return features[:, :164]


def _rank_lowered(stores: Stores, predict: Any) -> np.ndarray:
    usable = [row for row, array in enumerate(stores) if len(array)]
    scores = np.full(len(stores), -np.inf, np.float32)
    scores[usable] = predict([stores[row] for row in usable])
    return np.nan_to_num(scores, neginf=float(scores[usable].min()) - 1)
