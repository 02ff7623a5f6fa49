"""The benchmark networks: repeatable files that onnxruntime runs to sane numbers."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from tcl.bench.networks import HELD_OUT, TRAINING, export
from tcl.errors import BadInput

SMALL = (*TRAINING, "squeezenet", "bert_tiny")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("networks")


@pytest.mark.parametrize("name", SMALL)
def test_export_writes_a_network_with_sane_outputs(folder, name):
    session = onnxruntime.InferenceSession(str(export(name, folder)))
    (source,) = session.get_inputs()
    rng = np.random.default_rng(0)
    floats = source.type == "tensor(float)"
    feed = (
        rng.standard_normal(source.shape, dtype=np.float32) if floats else rng.integers(0, 4000, source.shape)
    )
    for result in session.run(None, {source.name: feed}):
        assert np.isfinite(result).all() and result.std() > 1e-4 and np.abs(result).max() < 100


@pytest.mark.parametrize("name", ["squeezenet", "listener"])
def test_export_writes_the_same_bytes_when_called_again(folder, tmp_path, name):
    assert export(name, folder).read_bytes() == export(name, tmp_path).read_bytes()


def test_export_leaves_torch_random_numbers_as_they_are(tmp_path):
    import torch

    state = torch.random.get_rng_state()
    export("listener", tmp_path)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_export_names_the_known_networks_when_it_is_asked_for_another(tmp_path):
    with pytest.raises(BadInput, match=r"squeezenet.*vgg_like"):
        export("nothing", tmp_path)


def test_held_out_and_training_networks_are_disjoint_and_many():
    assert not set(HELD_OUT) & set(TRAINING)
    assert len(TRAINING) >= 8


@pytest.mark.slow
def test_training_networks_share_no_tensor_program_with_held_out_ones(tmp_path):
    from tcl.devices.host import detect_host
    from tcl.jobs.programs import read_network

    def programs(names) -> dict[str, bool]:
        paths = [export(name, tmp_path) for name in names]
        tasks = [task for path in paths for task in read_network(str(path), (), detect_host()).tasks]
        return {task.workload.key: task.worth_tuning for task in tasks}

    # BERT-base repeats the programs of BERT-tiny at other widths, and takes half a gigabyte.
    held_out = programs(name for name in HELD_OUT if name != "bert_base")
    training = programs(TRAINING)
    assert not set(held_out) & set(training)
    assert sum(training.values()) >= 80
