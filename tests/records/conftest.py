"""Records made up for the store."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tcl.features.workload import WorkloadSummary
from tcl.records.record import MeasureRecord, Workload, compact_json

MakeRecord = Callable[..., MeasureRecord]


@pytest.fixture(scope="session")
def traces() -> dict[str, list]:
    return json.loads((Path(__file__).parents[1] / "data" / "traces.json").read_text())


@pytest.fixture(scope="session")
def workload() -> Workload:
    summary = WorkloadSummary("conv2d", "float32", 2e8, 1e6, 8e5, (1, 4, 56, 56, 16), (64, 3, 3), 4)
    return Workload.create("metaschedule", "fused_conv2d", '["123","AAAA"]', summary)


@pytest.fixture(scope="session")
def make_record(traces: dict[str, list], workload: Workload) -> MakeRecord:
    """A record that differs with its number: decisions, post-processing, time, seconds; every tenth failed."""
    instructions, decisions = traces["cpu_conv2d"]

    def make(number: int, device: str = "here") -> MeasureRecord:
        rng = random.Random(number)
        taken = [
            [i, rng.sample(v, len(v)) if isinstance(v, list) else rng.randrange(4)] for i, v in decisions
        ]
        step = rng.choice([16, 64, 512])
        tail = [
            ["EnterPostproc", [], [], []],
            ["GetLoops", ["b1"], [], ["l100", "l101"]],
            ["Split", ["l101", "None", rng.randrange(1, 64)], [1, 0], ["l102", "l103"]],
            ["Annotate", ["l100", step], ["pragma_auto_unroll_max_step"], []],
        ]
        failed = number % 10 == 9
        return MeasureRecord(
            device=device,
            workload=workload.key,
            trace=compact_json([instructions + tail, taken]),
            run_seconds=() if failed else (rng.uniform(1e-5, 1e-2), rng.uniform(1e-5, 1e-2)),
            reference_seconds=rng.uniform(1e-4, 2e-4),
            error="timeout: 10 s" if failed else None,
            timestamp=1.7e9 + number,
            tvm_version="0.27.0.post1",
            feature_version=1,
            origin=rng.choice(["random", "rdu"]),
        )

    return make
