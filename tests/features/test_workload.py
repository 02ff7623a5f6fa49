"""Workload summaries: JSON and vectors."""

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tcl.features.workload import OPS, WORKLOAD_WIDTH, WorkloadSummary

extents = st.lists(st.integers(0, 2**40), max_size=9).map(tuple)
sizes = st.floats(0, 1e30)
summaries = st.builds(
    WorkloadSummary,
    op=st.sampled_from([*OPS, "something new"]),
    dtype=st.sampled_from(["float32", "float16", "int8", "bool"]),
    flops=sizes,
    read_bytes=sizes,
    write_bytes=sizes,
    spatial=extents,
    reduce=extents,
    blocks=st.integers(0, 100),
)


@given(summaries)
def test_summary_survives_json(summary: WorkloadSummary) -> None:
    assert WorkloadSummary.from_json(json.loads(json.dumps(summary.to_json()))) == summary


@given(summaries)
def test_vector_is_finite_and_scaled(summary: WorkloadSummary) -> None:
    vector = summary.vector()
    assert vector.shape == (WORKLOAD_WIDTH,) and vector.dtype == np.float32
    assert np.isfinite(vector).all() and np.abs(vector).max() <= 64
    assert vector[: len(OPS)].sum() == 1


def test_vector_aligns_the_innermost_spatial_axis_when_ranks_differ() -> None:
    def vector(spatial: tuple[int, ...]) -> np.ndarray:
        return WorkloadSummary("matmul", "float32", 1.0, 4.0, 4.0, spatial, (64,), 1).vector()

    last_spatial = WORKLOAD_WIDTH - 5 - 1
    assert vector((8, 256))[last_spatial] == vector((2, 4, 256))[last_spatial]
