"""Latency: fresh processes in turn, and honest ratios."""

from __future__ import annotations

import shutil

import pytest

from tcl.compiler.running.latency import Latency, benchmark
from tcl.errors import BadInput


def test_benchmark_times_packages_and_onnxruntime_in_rounds(linear_package):
    folder, model = linear_package
    result = benchmark({"tuned": folder, "untuned": folder}, model, rounds=2)
    assert list(result) == ["tuned", "untuned", "onnxruntime"]
    for latency in result.values():
        assert len(latency.rounds) == 2 and all(seconds > 0 for seconds in latency.rounds)
        assert latency.threads >= 1
    assert set(result["tuned"].to_json()) == {
        "median_seconds",
        "min_seconds",
        "max_seconds",
        "rounds",
        "threads",
    }


def test_benchmark_fails_with_the_reason_when_a_package_does_not_run(linear_package, tmp_path):
    broken = tmp_path / "package"
    shutil.copytree(linear_package[0], broken)
    (broken / "model.so").write_bytes(b"")
    with pytest.raises(BadInput, match="SHA-256"):
        benchmark({"tuned": broken}, rounds=1)


def test_ratio_compares_within_rounds_when_the_machine_drifts():
    ours, theirs = Latency((1.0, 2.0, 4.0), 2), Latency((0.5, 1.0, 1.0), 2)
    assert ours.ratio(theirs) == (2.0, 2.0, 4.0)
    assert ours.median == 2.0
