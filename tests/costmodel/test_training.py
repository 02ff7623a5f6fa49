"""Training: it learns, repeats itself, stops, and goes on after an interruption."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tcl.costmodel.groups import Shards, epoch_groups, relevance
from tcl.costmodel.losses import target_score
from tcl.costmodel.metrics import mean_ratio
from tcl.costmodel.network import CostModelConfig, build_model
from tcl.costmodel.splits import take_rows, take_tasks
from tcl.costmodel.training import TrainOptions, calibrate, train
from tcl.errors import WorkFailed
from tcl.features.dataset import LabelledDataset

CONFIG = CostModelConfig(width=16, layers=1, heads=2, hidden=8)
OPTIONS = TrainOptions(epochs=12, learning_rate=1e-2, group=12, groups=4)


class Interrupted(Exception):
    """Stands for a killed process."""


def test_training_ranks_held_out_tasks_when_latency_follows_a_feature(dataset: LabelledDataset) -> None:
    model = build_model(CONFIG, 0)
    before = mean_ratio(dataset, model.score(dataset.batch)[0], 1)
    report = train(model, dataset, replace(OPTIONS, epochs=30))
    after = mean_ratio(dataset, model.score(dataset.batch)[0], 1)
    assert after > max(before, 0.85)
    assert report.curve[-1]["loss"] < report.curve[0]["loss"]


def test_training_gives_the_same_weights_when_repeated(dataset: LabelledDataset) -> None:
    results = []
    for _ in range(2):
        model = build_model(CONFIG, 0)
        train(model, dataset, replace(OPTIONS, epochs=2))
        results.append(model.state_dict())
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


def test_training_ends_with_the_same_weights_when_it_was_interrupted(
    dataset: LabelledDataset, tmp_path: Path
) -> None:
    whole = build_model(CONFIG, 0)
    report = train(whole, dataset, replace(OPTIONS, epochs=4))

    def stop(entry: dict[str, float]) -> None:
        if entry["epoch"] == 2:
            raise Interrupted

    options = replace(OPTIONS, epochs=4)
    with pytest.raises(Interrupted):
        train(build_model(CONFIG, 0), dataset, options, stop, state_dir=tmp_path)
    resumed = build_model(CONFIG, 0)
    epochs: list[float] = []
    again = train(resumed, dataset, options, lambda entry: epochs.append(entry["epoch"]), state_dir=tmp_path)
    assert epochs == [2, 3]
    assert [entry["loss"] for entry in again.curve] == [entry["loss"] for entry in report.curve]
    assert all(torch.equal(value, resumed.state_dict()[name]) for name, value in whole.state_dict().items())
    assert not list(tmp_path.iterdir())


def test_training_ignores_a_kept_state_when_the_options_differ(
    dataset: LabelledDataset, tmp_path: Path
) -> None:
    def stop(entry: dict[str, float]) -> None:
        if entry["epoch"] == 1:
            raise Interrupted

    with pytest.raises(Interrupted):
        train(build_model(CONFIG, 0), dataset, OPTIONS, stop, state_dir=tmp_path)
    report = train(build_model(CONFIG, 0), dataset, replace(OPTIONS, epochs=1, seed=5), state_dir=tmp_path)
    assert len(report.curve) == 1


@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_training_begins_anew_when_the_kept_state_is_damaged(
    dataset: LabelledDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: float
) -> None:
    options = replace(OPTIONS, epochs=2)
    whole = build_model(CONFIG, 0)
    train(whole, dataset, options)

    def stop(entry: dict[str, float]) -> None:
        if entry["epoch"] == 1:
            raise Interrupted

    with pytest.raises(Interrupted):
        train(build_model(CONFIG, 0), dataset, options, stop, state_dir=tmp_path)
    (state,) = tmp_path.iterdir()
    state.write_bytes(state.read_bytes()[: int(state.stat().st_size * kept)])
    anew = build_model(CONFIG, 0)
    report = train(anew, dataset, options, state_dir=tmp_path)
    assert len(report.curve) == 2
    assert all(torch.equal(value, anew.state_dict()[name]) for name, value in whole.state_dict().items())
    assert f"{state.name} is damaged" in capsys.readouterr().err


def test_training_stops_early_when_the_held_out_tasks_gain_nothing(dataset: LabelledDataset) -> None:
    noise = replace(dataset, seconds=np.random.default_rng(0).uniform(1, 2, len(dataset)))
    report = train(build_model(CONFIG, 0), noise, replace(OPTIONS, epochs=60, patience=2))
    assert len(report.curve) < 60


def test_training_keeps_the_last_weights_when_nothing_is_held_out(dataset: LabelledDataset) -> None:
    model = build_model(CONFIG, 0)
    report = train(model, dataset, replace(OPTIONS, epochs=3, held_out=0.0))
    assert report.best_epoch == 2 and len(report.curve) == 3
    assert "quality" not in report.curve[-1] and float(model.uncertainty_scale) == 1
    shards = Shards(lambda: [dataset], len(dataset))
    again = build_model(CONFIG, 0)
    train(again, shards, replace(OPTIONS, epochs=3, held_out=0.0))
    assert np.array_equal(model.score(dataset.batch)[0], again.score(dataset.batch)[0])


def test_training_stops_when_its_time_is_over(dataset: LabelledDataset) -> None:
    report = train(
        build_model(CONFIG, 0), dataset, replace(OPTIONS, epochs=10_000, patience=10_000, seconds=0.5)
    )
    assert 1 <= len(report.curve) < 10_000


def test_training_fails_when_there_is_nothing_to_compare(dataset: LabelledDataset) -> None:
    one_each = take_rows(dataset, np.flatnonzero(np.diff(dataset.task, prepend=-1)))
    with pytest.raises(WorkFailed, match="no group"):
        train(build_model(CONFIG, 0), one_each, OPTIONS)


def test_groups_hold_each_row_once_and_never_two_tasks(dataset: LabelledDataset) -> None:
    rows = []
    for _, groups in epoch_groups(Shards(lambda: [dataset], len(dataset)), 7, 3, (0,)):
        for row, mask in zip(groups.rows.numpy(), groups.mask.numpy(), strict=True):
            rows += row[mask].tolist()
            assert len(set(dataset.task[row[mask]])) == 1
    assert sorted(rows) == list(range(len(dataset)))


def test_relevance_is_one_for_the_best_and_zero_for_failures(dataset: LabelledDataset) -> None:
    seconds = dataset.seconds.copy()
    seconds[3] = np.inf
    labels = relevance(replace(dataset, seconds=seconds))
    assert labels[3] == 0 and labels.max() == 1
    assert all(labels[dataset.task == task].max() == 1 for task in range(len(dataset.keys)))


def test_spread_is_as_large_as_the_error_when_calibrated(dataset: LabelledDataset) -> None:
    model = build_model(CONFIG, 0)
    calibrate(model, dataset)
    mean, spread = model.score(dataset.batch)
    error = mean - target_score(torch.from_numpy(relevance(dataset))).numpy()
    for task in range(len(dataset.keys)):
        error[dataset.task == task] -= error[dataset.task == task].mean()
    assert (spread**2).mean() == pytest.approx((error**2).mean(), rel=1e-3)


def test_training_on_shards_sees_every_row_of_each(dataset: LabelledDataset) -> None:
    loads: list[int] = []

    def load() -> list[LabelledDataset]:
        loads.append(1)
        return [take_tasks(dataset, np.arange(4)), take_tasks(dataset, np.arange(4, 8))]

    shards = Shards(load, len(dataset))
    done, rows = zip(
        *((share, int(groups.mask.sum())) for share, groups in epoch_groups(shards, 12, 4, (0,))), strict=True
    )
    assert sum(rows) == len(dataset)
    assert done[0] == 0 and list(done) == sorted(done) and done[-1] < 1
    model = build_model(CONFIG, 0)
    report = train(model, shards, replace(OPTIONS, epochs=2), validation=dataset)
    assert len(report.curve) == 2 and len(loads) == 3
