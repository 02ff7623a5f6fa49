"""A small design space and a model whose word is law, for the tests of the search."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tcl.features.batch import FeatureBatch
from tcl.features.workload import WorkloadSummary
from tcl.search.space import DesignSpace

INSTRUCTIONS: list[Any] = [
    ["GetSBlock", [], ["matmul", "main"], ["b0"]],
    ["GetSBlock", [], ["root", "main"], ["b1"]],
    ["Annotate", ["b0", '"SSRSRS"'], ["meta_schedule.tiling_structure"], []],
    ["GetLoops", ["b0"], [], ["l2", "l3", "l4"]],
    ["SamplePerfectTile", ["l2"], [4, 64], ["v5", "v6", "v7", "v8"]],
    ["Split", ["l2", "v5", "v6", "v7", "v8"], [True, False], ["l9", "l10", "l11", "l12"]],
    ["SamplePerfectTile", ["l3"], [4, 64], ["v13", "v14", "v15", "v16"]],
    ["Split", ["l3", "v13", "v14", "v15", "v16"], [True, False], ["l17", "l18", "l19", "l20"]],
    ["SamplePerfectTile", ["l4"], [2, 64], ["v21", "v22"]],
    ["Split", ["l4", "v21", "v22"], [True, False], ["l23", "l24"]],
    ["Reorder", ["l9", "l17", "l10", "l18", "l23", "l11", "l19", "l24", "l12", "l20"], [], []],
    ["SampleCategorical", [], [[0, 16, 64, 512], [0.25, 0.25, 0.25, 0.25]], ["v25"]],
    ["Annotate", ["b1", "v25"], ["meta_schedule.unroll_explicit"], []],
]
DECISIONS = [[4, [1, 4, 4, 2]], [6, [2, 1, 1, 16]], [8, [8, 4]], [11, 1]]
SUMMARY = WorkloadSummary("matmul", "float32", 65536.0, 8192.0, 4096.0, (32, 32), (32,), 1)
DEVICE = np.zeros(4, np.float32)


@pytest.fixture
def space() -> DesignSpace:
    """One sketch of a 32 x 32 x 32 matmul."""
    return DesignSpace([[INSTRUCTIONS, DECISIONS]], [{}])


class Oracle:
    """Scores a candidate by a linear function of its step values; embeds it as those values."""

    def embed(self, batch: FeatureBatch) -> np.ndarray:
        return batch.values.reshape(len(batch), -1)[:, :64].astype(np.float32)

    def score(self, batch: FeatureBatch) -> tuple[np.ndarray, np.ndarray]:
        flat = self.embed(batch)
        weights = np.random.default_rng(5).normal(size=flat.shape[1])
        return (flat @ weights).astype(np.float32), np.full(len(batch), 0.1, np.float32)


def decisions_of(trace: str) -> Any:
    return json.loads(trace)[1]
