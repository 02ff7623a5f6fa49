"""A schedule whose results are wrong is planted among the records: no package may be made with it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import onnxruntime
from copies import add_device, records_of


def test_compile_takes_the_next_best_when_the_fastest_schedule_gives_wrong_results(learnt, tmp_path):
    store, records = records_of(learnt, "[1, 48]")
    key = records[0].workload
    add_device(learnt, "planted")
    product = next(  # the first one named is the workload's own; parts of it may follow
        instruction[2][0]
        for instruction in json.loads(records[0].trace)[0]
        if instruction[0] == "GetSBlock" and "matmul" in instruction[2][0]
    )
    rounding = [["GetSBlock", [], [product, "main"], ["b0"]], ["UnsafeSetDType", ["b0"], [0, "float16"], []]]
    planted = replace(
        records[0], device="planted", trace=json.dumps([rounding, []]), run_seconds=(1e-9,), error=None
    )
    store.append([], [planted, *(replace(record, device="planted") for record in records)])

    outcome = learnt.run(
        "compile", "matmul48.onnx", "--device", "planted", "--trials", "0", "-o", "planted", "--json"
    )
    assert outcome.code == 0, outcome.err
    (row,) = [row for row in outcome.json["tasks"] if row["workload"] == key]
    assert row["schedule"] == "tuned" and "1 schedule discarded: the best gives wrong results" in row["note"]
    assert outcome.json["verification"]["max_rel"] <= 1e-4
    kept = (learnt.root / "planted" / "records" / "database_tuning_record.json").read_text()
    assert "UnsafeSetDType" not in kept

    feed = {"x": np.random.default_rng(5).standard_normal((1, 64), dtype=np.float32)}
    np.savez(tmp_path / "in.npz", **feed)
    learnt.ok("run", "planted", "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    expected = onnxruntime.InferenceSession(learnt.root / "matmul48.onnx").run(None, feed)[0]
    with np.load(tmp_path / "out.npz", allow_pickle=False) as arrays:
        np.testing.assert_allclose(arrays["y"], expected, rtol=1e-4, atol=1e-4)

    again = learnt.ok("compile", "matmul48.onnx", "--device", "planted", "--trials", "0", "-o", "planted")
    (row,) = [row for row in again["tasks"] if row["workload"] == key]
    assert row["note"] == "measured before"
