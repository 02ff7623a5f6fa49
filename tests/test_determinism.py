"""The same data, seed and settings give the same cost model; the same records and no trials the same program.

Each time in a process that orders its sets in another way.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from command_line import DEVICE, Project, save_matmul

from tcl.records.store import RecordStore


@pytest.mark.slow
def test_distill_gives_the_same_weights_when_records_seed_and_settings_are_the_same(learnt, tmp_path):
    store = RecordStore(learnt.root / "data")
    target = learnt.ok("device", "show", DEVICE)["device"]["target"]
    hashes = []
    for number, name in enumerate(("one", "two", "other seed")):
        project = Project(tmp_path / name)
        project.root.mkdir()
        project.ok("device", "add", "d", "--target", json.dumps(target))
        records = [replace(record, device="d") for record in store.records(DEVICE)]
        RecordStore(project.root / "data").append(store.workloads(DEVICE).values(), records)
        seed = "1" if name == "other seed" else "0"
        made = project.ok("distill", "--device", "d", "--seed", seed, PYTHONHASHSEED=str(number))
        hashes.append(made["model"]["tags"]["sha256"])
    assert hashes[0] == hashes[1] != hashes[2]


def test_compile_without_trials_gives_the_same_schedules_when_it_is_repeated(learnt):
    model = save_matmul(learnt.root / "unmeasured.onnx", 24)
    made = [
        learnt.ok(
            "compile", model, "--device", DEVICE, "--trials", "0", "-o", f"repeated{n}", PYTHONHASHSEED=str(n)
        )
        for n in range(2)
    ]
    assert made[0]["tasks"] == made[1]["tasks"]
    assert made[0]["files"] == made[1]["files"]  # the programs are equal byte for byte
