"""The learning benchmark on synthetic devices, as small as it gets."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from costmodel.synthetic import make_dataset
from importers.conftest import ansor_line

from tcl.bench.learn import bench_learn
from tcl.bench.learn_baselines import Stores, numbered
from tcl.bench.learn_data import CLIP, FEWEST_ROWS, PUBLIC_DEVICES, common_tasks, each_task
from tcl.bench.learn_networks import Tlp
from tcl.bench.learn_report import markdown, plot_data, summarise
from tcl.bench.learn_run import METHODS, NETWORKS, SAMPLERS, SHARES, cells, run
from tcl.bench.learn_study import LearnParams, Study
from tcl.bench.machine import today
from tcl.bench.params import read_studies
from tcl.costmodel.network import parameter_count
from tcl.costmodel.splits import take_tasks
from tcl.errors import BadInput
from tcl.features.dataset import LabelledDataset
from tcl.settings import Settings

PARAMS = LearnParams(
    seeds=1,
    folds=3,
    fraction=0.5,
    fractions=(0.2,),
    first_rows=20,
    visits=10,
    most_epochs=1,
    budget_seconds=0.05,
    source="a",
    target="b",
    orders=(("a", "b", "c"),),
    workers=1,
)


KEPT = "measurements.jsonl"


def devices() -> dict[str, LabelledDataset]:
    made = {}
    for number, name in enumerate("abc"):
        data = make_dataset(tasks=9, rows=24, seed=number)
        made[name] = replace(data, devices=[name] * len(data.keys))
    return common_tasks(made)


def study(params: LearnParams, folder: Path) -> Study:
    return Study(devices(), params, folder / "knowledge")


@pytest.mark.slow
def test_run_fills_every_row_and_measures_nothing_again(tmp_path: Path) -> None:
    first = run(study(PARAMS, tmp_path), tmp_path / KEPT)
    results = first.results
    assert not first.missing and set(first.days) == {today()} and set(results) == set(cells(PARAMS))
    for cell, metrics in results.items():
        assert 0 < metrics["top_1"] <= metrics["top_5"] <= 1, cell
        assert 0 < metrics["share_1"] <= metrics["share_5"] <= 1, cell
    stamp = (tmp_path / KEPT).stat().st_mtime_ns
    assert run(study(PARAMS, tmp_path), tmp_path / KEPT) == first
    assert (tmp_path / KEPT).stat().st_mtime_ns == stamp

    summary = summarise(results)
    assert summary["bracket"]["oracle"]["top_1"]["mean"] == 1
    assert len(summary["sampler"]) == len(SAMPLERS) + 3 + len(SHARES)
    rows = {row: metrics.get("rows", {}).get("mean", 0) for row, metrics in summary["sampler"].items()}
    assert 0 < rows["random 50%, 25% of the workloads"] < rows["random 50%"]
    assert len(summary["network"]) == 2 * len(NETWORKS)
    assert len(summary["transfer"]) == len(METHODS)
    assert list(summary["ablation"]) == ["none", "+RDU", "+Mamba", "+CKD"]
    assert summary["ablation"]["+Mamba"] == summary["sampler"]["rdu 50%"]
    assert len(plot_data(summary).splitlines()) == 1 + sum(map(len, summary.values()))
    stored = {"command": "c", "date": "d", "machine": "m", "params": {}, "missing": 0, "summary": summary}
    report = markdown({"tiny": stored})
    assert report.count("| random |") == report.count("| oracle |") == 4
    assert "CKD, a → b → c" in report


def test_run_names_what_is_missing_when_there_is_no_time(tmp_path: Path) -> None:
    found = run(study(replace(PARAMS, minutes=0), tmp_path), tmp_path / KEPT)
    assert not found.results and found.missing == cells(PARAMS)


def test_run_goes_on_when_the_last_line_is_cut(tmp_path: Path) -> None:
    params = replace(PARAMS, tables=())
    run(study(params, tmp_path), tmp_path / KEPT)
    path = tmp_path / KEPT
    path.write_text(path.read_text()[:-20])
    assert set(run(study(params, tmp_path), tmp_path / KEPT).results) == set(cells(params))


def test_held_out_workloads_are_the_same_on_all_devices_and_each_comes_once() -> None:
    small = study(PARAMS, Path())
    held = [[small.fold(device, seed)[1].keys for seed in range(3)] for device in "abc"]
    assert held[0] == held[1] == held[2]
    assert sorted(key for keys in held[0] for key in keys) == sorted(small.datasets["a"].keys)


def test_common_tasks_clips_latencies_by_rank_and_counts_each_task_once() -> None:
    data = make_dataset(tasks=4, rows=40)
    seconds = data.seconds.copy()
    seconds[0] = 489.0
    first, _ = common_tasks({"a": replace(data, seconds=seconds), "b": data}).values()
    own = first.seconds[first.task == 0]
    assert own.max() == pytest.approx(np.percentile(seconds[:40], CLIP))
    np.testing.assert_array_equal(first.weights, np.ones(4))


def test_common_tasks_leaves_out_what_one_device_has_too_little_of() -> None:
    data = make_dataset(tasks=4, rows=40)
    failing = replace(data, seconds=np.where(data.task == 2, np.inf, data.seconds))
    short = each_task(data, 1.0, lambda rows, _: rows[: FEWEST_ROWS - 1] if data.task[rows[0]] == 3 else rows)
    both = common_tasks({"a": failing, "b": short})
    assert both["a"].keys == both["b"].keys == ["workload-0", "workload-1"]
    with pytest.raises(BadInput, match="in common"):
        common_tasks({"a": data, "b": replace(data, keys=[key + "x" for key in data.keys])})


def test_tlp_network_has_the_size_of_tlp_and_ignores_padding() -> None:
    model = Tlp()
    assert 550_000 < parameter_count(model) < 700_000
    batch = make_dataset().batch.take(slice(0, 12))
    alone = np.concatenate([model.head_scores(batch.take([row])) for row in range(12)])
    np.testing.assert_allclose(model.head_scores(batch), alone, rtol=1e-4, atol=1e-4)


def test_params_are_read_by_study(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("learn: {small: {seeds: 2, orders: [[a, b]], first: null}}")
    assert read_studies(path, "learn", LearnParams) == {
        "small": LearnParams(seeds=2, orders=(("a", "b"),), first=None)
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learn: {small: {sed: 2}}", "unknown name sed"),
        ("learn: {small: {first: many}}", "first must be a whole number or null, not 'many'"),
        ("learn: {small: {orders: [a, b]}}", "orders must be a list, each item a list, each item a text"),
        ("other: 1", "no study"),
        (None, "does not exist"),
    ],
)
def test_params_are_refused_when_something_is_unknown_or_missing(
    text: str | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "params.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadInput, match=message):
        read_studies(path, "learn", LearnParams)


def test_params_of_this_project_can_be_read() -> None:
    assert read_studies(Path(__file__).parents[2] / "params.yaml", "learn", LearnParams)


def test_per_store_features_stay_with_their_rows_when_the_dataset_is_divided() -> None:
    data = numbered(make_dataset(tasks=3, rows=8))
    stores = Stores([np.full((1, 172), row, np.float32) for row in range(24)], 0.1)
    part = take_tasks(data, np.array([2, 0]))
    assert [int(array[0, 0]) for array in stores.of(part)] == [*range(8), *range(16, 24)]


def test_study_of_public_logs_is_imported_once_and_written_as_tables(
    settings: Settings, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    for device in PUBLIC_DEVICES:
        (logs / device).mkdir(parents=True)
        for size in (64, 128, 256, 512):
            lines = [ansor_line(n, key=f'["matmul_layer", 128, {size}, 256]') + "\n" for n in range(16)]
            (logs / device / f"matmul_{size}.log").write_text("".join(lines))
    sizes = "{folds: 2, seeds: 1, tables: [sampler], fractions: [], visits: 10, most_epochs: 1, workers: 1}"
    (settings.root / "params.yaml").write_text(f"learn: {{tiny: {sizes}, own: {{data: shipped}}}}")

    results = bench_learn(settings, ["tiny"], logs)
    assert list(results) == ["tiny"] and results["tiny"]["missing"] == 0
    assert set(results["tiny"]["summary"]["bracket"]) == {"random", "oracle"}
    folder = settings.root / "docs" / "results"
    assert sorted(path.name for path in folder.iterdir()) == [
        "learn.md",
        "learn_tiny.csv",
        "learn_tiny.json",
        "learn_tiny.jsonl",
    ]
    assert "### 1. Samplers" in (folder / "learn.md").read_text()

    with pytest.raises(BadInput, match="--logs"):
        bench_learn(settings, ["tiny"])
    with pytest.raises(BadInput, match="no study other"):
        bench_learn(settings, ["other"], logs)
