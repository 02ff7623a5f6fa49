"""TVM's own cost models on candidates of a small program."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcl.compiler.bootstrap import import_tvm

TARGET = {"kind": "llvm", "num-cores": 1}


@pytest.fixture(scope="module")
def candidates() -> Any:
    """Workload program, traces, and per-store features of a matrix product's candidates."""
    import_tvm(TARGET)
    import tvm
    from tvm import te

    from tcl.compiler.metaschedule.cost_models import store_features
    from tcl.compiler.programs.tasks import TuningTask, describe, design_space

    a, b = te.placeholder((64, 32), name="A"), te.placeholder((32, 64), name="B")
    k = te.reduce_axis((0, 32), name="k")
    product = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    module = tvm.IRModule({"main": te.create_prim_func([a, b, product]).with_attr("global_symbol", "main")})
    workload = describe(module, "matmul")
    space = design_space(TuningTask(workload, 1, module, ("main",)), tvm.target.Target(TARGET))
    populations = space.sample(24, np.random.default_rng(0))
    traces = [space.trace(population, row) for population in populations for row in range(len(population))]
    return SimpleNamespace(
        program=workload.program, traces=traces, features=store_features(workload.program, traces, TARGET)
    )


def test_store_features_have_a_row_for_each_store(candidates: Any) -> None:
    assert len(candidates.features) == len(candidates.traces)
    assert all(array.shape[1] == 172 and array.dtype == np.float32 for array in candidates.features)
    assert sum(len(array) > 0 for array in candidates.features) > len(candidates.traces) / 2


def test_store_features_are_empty_when_a_trace_does_not_apply(candidates: Any) -> None:
    from tcl.compiler.metaschedule.cost_models import store_features

    broken = json.dumps([[["GetSBlock", [], ["nothing", "main"], ["b0"]]], []])
    assert [len(array) for array in store_features(candidates.program, [broken], TARGET)] == [0]


@pytest.mark.parametrize("name", ["XgbRanker", "TensetMlp"])
def test_baseline_learns_to_rank_and_puts_what_does_not_lower_last(name: str, candidates: Any) -> None:
    from tcl.compiler.metaschedule import cost_models as baselines

    lowered = [array for array in candidates.features if len(array)]
    stores = [*lowered, np.zeros((0, 172), np.float32)]
    totals = np.stack([array[:, :164].sum(0) for array in lowered])
    order = totals[:, totals.std(0).argmax()].argsort().argsort()  # something that the features say
    relevance = np.append((order + 1) / len(lowered), 0).astype(np.float32)
    model = getattr(baselines, name)(seed=0)
    model.fit(stores, relevance, np.zeros(len(stores), np.int32))
    scores = model.score(stores)
    assert np.isfinite(scores).all() and scores.argmin() == len(lowered)
    assert np.corrcoef(scores[:-1], relevance[:-1])[0, 1] > 0.5
