"""The network: padding, determinism, size, batching."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from tcl.costmodel.network import BLOCKS, CostModelConfig, build_model, parameter_count
from tcl.features.batch import FeatureBatch, pad_steps

Batches = Callable[[int, int, int], FeatureBatch]


@pytest.mark.parametrize("block", BLOCKS)
def test_scores_do_not_depend_on_padding_when_sequences_are_padded_with_anything(
    block: str, batches: Batches
) -> None:
    batch = batches(20, 9, 0)
    model = build_model(CostModelConfig(block=block), 1)
    padded = FeatureBatch(
        pad_steps(batch.kinds, 30), pad_steps(batch.values, 30), batch.workload, batch.device
    )
    padded.values[padded.kinds == 0] = 7.0
    alone = np.concatenate([model.head_scores(batch.take([row])) for row in range(20)])
    np.testing.assert_allclose(model.head_scores(padded), alone, rtol=1e-4, atol=1e-5)


def test_default_model_stays_within_its_budget_and_two_columns_within_twice_of_it() -> None:
    model = build_model(CostModelConfig(), 0)
    assert parameter_count(model) <= 100_000
    assert parameter_count(build_model(CostModelConfig(), 0, model)) <= 220_000
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


def test_build_model_gives_the_same_weights_when_the_seed_is_the_same(batches: Batches) -> None:
    batch = batches(5, 4, 0)
    state = torch.random.get_rng_state()
    first, second, other = (build_model(CostModelConfig(), seed).head_scores(batch) for seed in (3, 3, 4))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)
    assert torch.equal(state, torch.random.get_rng_state())


def test_score_gives_finite_means_and_spreads_in_the_order_of_the_rows(batches: Batches) -> None:
    batch = batches(1100, 12, 0)
    model = build_model(CostModelConfig(), 0)
    mean, spread = model.score(batch)
    assert mean.shape == spread.shape == (1100,)
    assert mean.dtype == spread.dtype == np.float32
    assert np.isfinite(mean).all() and (spread > 0).all()
    rows = [7, 1050, 3]
    np.testing.assert_allclose(mean[rows], model.score(batch.take(rows))[0], rtol=1e-4, atol=1e-5)
    assert model.embed(batch).shape == (1100, 3 * model.config.width)


def test_score_and_embed_give_nothing_when_the_batch_is_empty(batches: Batches) -> None:
    model = build_model(CostModelConfig(), 0)
    empty = batches(3, 4, 0).take(slice(0, 0))
    assert model.score(empty)[0].shape == (0,)
    assert model.embed(empty).shape[0] == 0


def test_active_column_starts_as_a_model_on_its_own_and_leaves_the_knowledge_base_frozen(
    batches: Batches,
) -> None:
    batch = batches(6, 5, 0)
    knowledge_base = build_model(CostModelConfig(), 1)
    column = build_model(CostModelConfig(), 2, knowledge_base)
    np.testing.assert_array_equal(
        column.head_scores(batch), build_model(CostModelConfig(), 2).head_scores(batch)
    )
    trainable = {name for name, parameter in column.named_parameters() if parameter.requires_grad}
    assert not any(name.startswith("knowledge_base") for name in trainable)
    assert any(name.startswith("laterals") for name in trainable)


def test_score_changes_when_only_the_device_changes(batches: Batches) -> None:
    batch = batches(6, 5, 0)
    model = build_model(CostModelConfig(), 1)
    other = replace(batch, device=batch.device[::-1].copy())
    assert not np.allclose(model.score(batch)[0], model.score(other)[0])
