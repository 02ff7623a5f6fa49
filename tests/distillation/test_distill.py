"""Continual distillation of synthetic devices, from the first one to an interrupted one."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from costmodel.synthetic import make_dataset

from tcl.costmodel.checkpoint import load_model
from tcl.costmodel.groups import Shards
from tcl.costmodel.metrics import rank_correlation
from tcl.costmodel.network import CostModelConfig, build_model, parameter_count
from tcl.costmodel.splits import take_rows, take_tasks
from tcl.costmodel.training import TrainOptions
from tcl.distillation.consolidation import fisher_information, online_fisher
from tcl.distillation.distill import DistillResult, TooFewWorkloads, distill_dataset
from tcl.distillation.gates import choose
from tcl.distillation.knowledge import (
    VALIDATION_ROWS,
    load_knowledge_base,
    save_knowledge_base,
    validation_sample,
)
from tcl.distillation.options import DistillOptions
from tcl.features.dataset import LabelledDataset

OPTIONS = DistillOptions(
    config=CostModelConfig(width=16, layers=1, heads=2, hidden=8),
    train=TrainOptions(epochs=6, learning_rate=1e-2, group=12, groups=4),
    ewc_strengths=(100.0,),
    forgetting_bound=1.0,
)


class Interrupted(Exception):
    """Stands for a killed process."""


def device(name: str, seed: int) -> LabelledDataset:
    data = make_dataset(tasks=10, seed=seed)
    data.batch.device[:] = seed / 10
    return replace(data, devices=[name] * len(data.keys))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> DistillResult:
    return distill_dataset(device("first", 1), "first", None, OPTIONS, tmp_path_factory.mktemp("state"))


def test_first_device_is_trained_from_scratch_and_makes_the_knowledge_base(first: DistillResult) -> None:
    assert first.chosen == "scratch" and "no knowledge base" in first.reason
    assert first.knowledge_base_replaced
    assert list(first.knowledge_base.learned) == ["first"]
    assert {"top_1", "top_5", "top_1_scratch", "parameters", "train_seconds"} <= set(first.metrics)
    assert len(first.predicted) == len(first.measured) > 0
    assert {"loss", "quality", "top_1"} <= set(first.curves)


def test_model_has_learned_what_was_held_out_and_the_evaluated_one_has_not(first: DistillResult) -> None:
    assert first.held_out is not None
    scores = first.evaluated.score(first.held_out.batch)[0]
    assert np.array_equal(scores, first.predicted)
    assert rank_correlation(first.model.score(first.held_out.batch)[0], first.measured) > rank_correlation(
        scores, first.measured
    )
    assert torch.equal(first.model.uncertainty_scale, first.evaluated.uncertainty_scale)


def test_second_device_compares_transfer_with_scratch_and_keeps_the_size(
    first: DistillResult, tmp_path: Path
) -> None:
    result = distill_dataset(device("second", 2), "second", first.knowledge_base, OPTIONS, tmp_path)
    better = result.metrics["top_1_transfer"] > result.metrics["top_1_scratch"]
    assert result.chosen == ("transfer" if better else "scratch")
    assert "held-out" in result.reason
    assert result.knowledge_base_replaced
    assert set(result.knowledge_base.validation) == {"first", "second"}
    assert "forgetting_first" in result.metrics
    size = parameter_count(first.knowledge_base.model)
    assert parameter_count(result.knowledge_base.model) == size
    assert size <= result.metrics["parameters"] <= 2.2 * size


def test_knowledge_base_stays_when_it_would_forget_more_than_the_bound(
    first: DistillResult, tmp_path: Path
) -> None:
    options = replace(OPTIONS, forgetting_bound=-1.0)  # nothing can satisfy it
    result = distill_dataset(device("second", 2), "second", first.knowledge_base, options, tmp_path)
    assert not result.knowledge_base_replaced
    assert result.knowledge_base is first.knowledge_base
    assert "first" in result.knowledge_base_reason and "bound" in result.knowledge_base_reason


def test_distillation_of_a_device_learned_before_does_not_gate_on_itself(
    first: DistillResult, tmp_path: Path
) -> None:
    result = distill_dataset(device("first", 1), "first", first.knowledge_base, OPTIONS, tmp_path)
    assert result.knowledge_base_replaced
    assert not any(name.startswith("forgetting") for name in result.metrics)


def test_distillation_ends_the_same_when_it_was_interrupted(first: DistillResult, tmp_path: Path) -> None:
    data = device("second", 2)

    def stop(stage: str, entry: dict[str, float]) -> None:
        if stage == "transfer" and entry["epoch"] == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        distill_dataset(data, "second", first.knowledge_base, OPTIONS, tmp_path / "a", stop)
    seen: list[tuple[str, float]] = []
    resumed = distill_dataset(
        data,
        "second",
        first.knowledge_base,
        OPTIONS,
        tmp_path / "a",
        lambda stage, entry: seen.append((stage, entry["epoch"])),
    )
    assert seen[0] == ("transfer", 3) and not any(stage == "scratch" for stage, _ in seen)
    whole = distill_dataset(data, "second", first.knowledge_base, OPTIONS, tmp_path / "b")
    assert np.array_equal(resumed.predicted, whole.predicted)
    for resumed_model, whole_model in (
        (resumed.knowledge_base.model, whole.knowledge_base.model),
        (resumed.model, whole.model),
    ):
        mine, other = resumed_model.state_dict(), whole_model.state_dict()
        assert all(torch.equal(mine[name], other[name]) for name in mine)


def test_state_of_other_data_is_not_used(first: DistillResult, tmp_path: Path) -> None:
    stages: list[str] = []
    for seed in (2, 3):
        stages.clear()
        distill_dataset(
            device("second", seed), "second", None, OPTIONS, tmp_path, lambda stage, _: stages.append(stage)
        )
        assert "scratch" in stages


def test_knowledge_base_is_the_same_when_loaded_again(first: DistillResult, tmp_path: Path) -> None:
    save_knowledge_base(first.knowledge_base, tmp_path, {"data_hash": "abc"})
    loaded, metadata = load_knowledge_base(tmp_path)
    assert metadata == {"data_hash": "abc"}
    assert loaded.learned == first.knowledge_base.learned
    assert loaded.forgetting(loaded.model)["first"] == pytest.approx(0, abs=1e-6)
    assert all(torch.equal(value, loaded.fisher[name]) for name, value in first.knowledge_base.fisher.items())
    as_model, _ = load_model(tmp_path)
    batch = device("first", 1).batch
    assert np.array_equal(as_model.score(batch)[0], first.knowledge_base.model.score(batch)[0])


def test_tasks_without_a_success_or_with_one_candidate_are_named_and_left_out(tmp_path: Path) -> None:
    data = device("first", 1)
    data = replace(data, seconds=np.where(data.task == 4, np.inf, data.seconds))
    alone = np.flatnonzero((data.task != 6) | (np.diff(data.task, prepend=-1) != 0))
    result = distill_dataset(
        take_rows(data, alone),
        "first",
        None,
        replace(OPTIONS, train=TrainOptions(epochs=1)),
        tmp_path,
    )
    assert result.excluded == ["workload-4", "workload-6"]
    assert result.metrics["tasks"] == 8


def test_distillation_refuses_a_device_with_too_few_workloads(tmp_path: Path) -> None:
    data = make_dataset(tasks=10)
    one_each = take_rows(data, np.flatnonzero(np.diff(data.task, prepend=-1)))
    for few in (make_dataset(tasks=2), one_each):
        with pytest.raises(TooFewWorkloads, match="at least 3"):
            distill_dataset(few, "cpu", None, OPTIONS, tmp_path)


def test_gate_prefers_scratch_when_transfer_is_not_better() -> None:
    data = make_dataset()
    model = build_model(OPTIONS.config, 0)
    assert choose({"scratch": model, "transfer": model}, data)[0] == "scratch"


def test_fisher_is_greatest_where_scores_react_most() -> None:
    data = make_dataset()
    model = build_model(OPTIONS.config, 0)
    fisher = fisher_information(model, data, TrainOptions())
    assert set(fisher) == {name for name, _ in model.named_parameters()}
    total = sum(float(value.sum()) for value in fisher.values())
    assert total == pytest.approx(sum(value.numel() for value in fisher.values()), rel=1e-4)
    assert fisher["kind.weight"][0].abs().max() == 0  # padding moves no score
    faded = online_fisher(fisher, fisher, 0.5)
    assert torch.allclose(faded["value"], 1.5 * fisher["value"])


def test_validation_sample_is_bounded_and_keeps_the_best_of_each_task() -> None:
    data = make_dataset(tasks=8, rows=400)
    sample = validation_sample(data, 0)
    assert len(sample) <= VALIDATION_ROWS
    for task in range(8):
        assert sample.seconds[sample.task == task].min() == data.seconds[data.task == task].min()


def test_models_are_trained_on_the_stream_when_the_dataset_is_only_a_part(tmp_path: Path) -> None:
    data = device("first", 1)
    asked: list[set[str]] = []

    def stream(keys: Collection[str]) -> Shards:
        asked.append(set(keys))
        part = take_tasks(data, np.array([task for task, key in enumerate(data.keys) if key in keys]))
        return Shards(lambda: [part, part], 2 * len(part))

    result = distill_dataset(data, "first", None, OPTIONS, tmp_path, stream=stream)
    assert len(asked) == 2 and 0 < len(asked[0]) < len(data.keys) - 1 and asked[1] == set(data.keys)
    assert not asked[0] & set(result.knowledge_base.validation["first"].keys)
