"""Models on disk."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tcl.costmodel.checkpoint import EVALUATED, load_evaluated, load_extra, load_model, save_model
from tcl.costmodel.network import CostModelConfig, build_model
from tcl.errors import BadInput
from tcl.features.batch import FeatureBatch

Batches = Callable[[int, int, int], FeatureBatch]
CONFIG = CostModelConfig(width=16, layers=1)


@pytest.mark.parametrize("columns", [1, 2])
def test_model_scores_the_same_when_loaded_again(columns: int, tmp_path: Path, batches: Batches) -> None:
    model = build_model(CONFIG, 0, build_model(CONFIG, 1) if columns == 2 else None)
    save_model(model, tmp_path, {"device": "cpu"}, {"fisher": torch.ones(2)})
    loaded, metadata = load_model(tmp_path)
    batch = batches(9, 6, 0)
    assert np.array_equal(model.score(batch)[0], loaded.score(batch)[0])
    assert np.array_equal(model.score(batch)[1], loaded.score(batch)[1])
    assert metadata == {"device": "cpu"}
    assert torch.equal(load_extra(tmp_path)["fisher"], torch.ones(2))
    assert {path.suffix for path in tmp_path.iterdir()} == {".safetensors", ".json"}


def test_load_evaluated_gives_the_model_that_the_metrics_are_of(tmp_path: Path, batches: Batches) -> None:
    model, past = build_model(CONFIG, 0), build_model(CONFIG, 1)
    batch = batches(9, 6, 0)
    save_model(model, tmp_path, {}, {EVALUATED + name: value for name, value in past.state_dict().items()})
    assert np.array_equal(load_evaluated(tmp_path).score(batch)[0], past.score(batch)[0])
    assert np.array_equal(load_model(tmp_path)[0].score(batch)[0], model.score(batch)[0])
    save_model(model, tmp_path, {})
    assert np.array_equal(load_evaluated(tmp_path).score(batch)[0], model.score(batch)[0])


def test_load_names_both_versions_when_the_features_are_of_another(tmp_path: Path) -> None:
    save_model(build_model(CONFIG, 0), tmp_path, {})
    path = tmp_path / "model.json"
    description = json.loads(path.read_text())
    path.write_text(json.dumps({**description, "feature_version": 987}))
    with pytest.raises(BadInput, match=rf"987.*{description['feature_version']}"):
        load_model(tmp_path)


def test_load_refuses_a_model_of_another_vocabulary(tmp_path: Path) -> None:
    save_model(build_model(CONFIG, 0), tmp_path, {})
    path = tmp_path / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "vocabulary": ["padding"]}))
    with pytest.raises(BadInput, match="vocabulary"):
        load_model(tmp_path)


@pytest.mark.parametrize("file", ["model.json", "weights.safetensors"])
def test_load_says_which_file_is_missing(file: str, tmp_path: Path) -> None:
    save_model(build_model(CONFIG, 0), tmp_path, {})
    (tmp_path / file).unlink()
    with pytest.raises(BadInput, match=file):
        load_model(tmp_path)


@pytest.mark.parametrize("file", ["model.json", "weights.safetensors"])
def test_load_says_damaged_when_a_file_is_cut(file: str, tmp_path: Path) -> None:
    save_model(build_model(CONFIG, 0), tmp_path, {})
    content = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(content[: len(content) // 2])
    with pytest.raises(BadInput, match="damaged"):
        load_model(tmp_path)
