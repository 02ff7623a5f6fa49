"""What a compile has tuned costs nothing again, teaches the dataset, and can be profiled."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from command_line import DEVICE, Project, save_model
from onnx import helper

from tcl.jobs.dataset import take_over_tuning
from tcl.jobs.ledger import note_tuned, thoroughness
from tcl.settings import Settings, load_settings

COMPILE = ("compile", "--device", DEVICE, "--trials", "2", "-o")


def save_products(path: Path, widths: list[int]) -> Path:
    """``y = relu(... relu(x w0) w1 ...)``: each product is a tensor program of its own."""
    rng = np.random.default_rng(3)
    weights, nodes = {}, []
    for i, (depth, columns) in enumerate(itertools.pairwise(widths)):
        weights[f"w{i}"] = rng.standard_normal((depth, columns), dtype=np.float32)
        nodes.append(helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"p{i}"]))
        nodes.append(helper.make_node("Relu", [f"p{i}"], [f"h{i + 1}"]))
    return save_model(path, nodes, {"h0": [4, widths[0]]}, {f"h{len(widths) - 1}": [4, widths[-1]]}, weights)


@pytest.fixture(scope="module")
def first(learnt: Project) -> dict:
    """The first compile of a network of one program."""
    return learnt.ok(*COMPILE, "reuse", save_products(learnt.root / "one.onnx", [72, 56]))


def test_compile_costs_no_trial_when_the_network_was_tuned_before(learnt: Project, first: dict):
    assert (first["measured_trials"], first["known_programs"]) == (2, 0)
    again = learnt.run(*COMPILE, "again", learnt.root / "one.onnx", "--json")
    assert (again.json["measured_trials"], again.json["known_programs"]) == (0, 1)
    row = again.json["tasks"][0]
    assert (row["schedule"], row["note"]) == ("tuned", "measured before")


def test_compile_spends_its_trials_on_new_programs_when_it_shares_others(learnt: Project, first: dict):
    shared = learnt.ok(*COMPILE, "shared", save_products(learnt.root / "two.onnx", [72, 56, 88]))
    trials = {row["workload"]: row["trials"] for row in shared["tasks"]}
    assert trials.pop(first["tasks"][0]["workload"]) == 0
    assert list(trials.values()) == [2]


def test_tuned_programs_are_tuned_once_more_when_the_list_of_them_is_damaged(settings: Settings):
    note_tuned(settings, "board", ["a", "b"], 4.0)
    note_tuned(settings, "board", ["a"], 2.0)  # less thorough: changes nothing
    assert thoroughness(settings, "board") == {"a": 4.0, "b": 4.0}
    for text in ("", "{", "[1]", '{"a": null}'):
        (settings.state_dir / "tuned" / "board.json").write_text(text)
        assert thoroughness(settings, "board") == {}
    note_tuned(settings, "board", ["b"], 1.0)
    assert thoroughness(settings, "board") == {"b": 1.0}


def test_dataset_takes_over_what_compiling_measured_once(learnt: Project, first: dict):
    settings = load_settings(learnt.root)
    assert take_over_tuning(settings, DEVICE) >= first["measured_trials"]
    assert take_over_tuning(settings, DEVICE) == 0


def test_profile_names_each_kernel_with_its_share_of_the_peak(learnt: Project, first: dict):
    profile = learnt.ok("run", "reuse", "--profile")
    kernel = next(k for k in profile["kernels"] if k["op"] == "matmul")
    assert kernel["calls"] == 1
    assert kernel["flops_per_second"] * kernel["seconds"] == pytest.approx(first["tasks"][0]["flops"])
    assert kernel["peak_share"] == pytest.approx(kernel["flops_per_second"] / profile["peak_flops"])
    assert 1e9 < profile["peak_flops"] < 1e13
    assert sum(k["share"] for k in profile["kernels"]) == pytest.approx(1)
