"""Ansor steps as step sequences."""

import copy
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcl.features.ansor import StepsEncoder, encode_steps
from tcl.features.batch import MAX_STEPS, STEP_WIDTH
from tcl.features.tracker import AXIS, EXTENT, MAIN, NUMBER, ROLE, SCOPE
from tcl.features.vocabulary import KINDS
from tcl.records.traces import split_trace

GPU_MATMUL = [
    ["CHW", 2, "local"],
    ["SP", 2, 0, 128, [2, 4, 4, 1], 1],
    ["SP", 2, 5, 1000, [1, 50, 1, 1], 1],
    ["SP", 2, 10, 2048, [8, 16], 1],
    ["RE", 2, [0, 5, 1, 6, 2, 7, 10, 11, 3, 8, 12, 4, 9]],
    ["FSP", 3, 0, 1, 3],
    ["FSP", 3, 4, 2, 3],
    ["RE", 3, [0, 4, 1, 5, 2, 6, 3, 7]],
    ["CA", 2, 3, 5],
    ["CHR", 1, "shared", [2]],
    ["CA", 2, 3, 6],
    ["CHR", 0, "shared", [3]],
    ["CA", 1, 4, 6],
    ["FU", 5, [0, 1]],
    ["AN", 5, 0, 5],
    ["FU", 5, [1, 2]],
    ["AN", 5, 1, 4],
    ["FU", 5, [2, 3]],
    ["AN", 5, 2, 6],
    ["FU", 3, [0, 1]],
    ["SP", 3, 0, 16, [2], 1],
    ["AN", 3, 1, 2],
    ["FFSP", 3, 0, [2, 1], 1, 1],
    ["AN", 3, 1, 6],
    ["FU", 1, [0, 1]],
    ["SP", 1, 0, 64, [1], 1],
    ["AN", 1, 1, 2],
    ["FFSP", 1, 0, [2, 1], 1, 1],
    ["AN", 1, 1, 6],
    ["PR", 4, 0, "auto_unroll_max_step$512"],
]
CPU_MATMUL = [
    ["SP", 2, 0, 128, [4, 2, 8], 1],
    ["SP", 2, 4, 64, [2, 1, 16], 1],
    ["SP", 2, 8, 256, [4], 1],
    ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]],
    ["FU", 2, [0, 1, 2, 3]],
    ["AN", 2, 0, 3],
    ["PR", 2, 0, "auto_unroll_max_step$16"],
    ["AN", 2, 6, 2],
]


def text(steps: list) -> str:
    return json.dumps(steps, separators=(",", ":"))


def encode(steps: list, op: str = "matmul") -> tuple[list[str], np.ndarray]:
    kinds, values = encode_steps([text(steps)], op)
    return [KINDS[kind] for kind in kinds[0]], values[0]


def test_gpu_steps_become_a_short_sequence() -> None:
    kinds, values = encode(GPU_MATMUL)
    assert kinds == [
        "summary_spatial",
        "summary_reduce",
        "summary_schedule",
        "summary_resources",
        "summary_memory",
        "cache_write",
        "split",
        "split",
        "split",
        "cache_read",
        "cache_read",
        "bind_block",
        "bind_vthread",
        "bind_thread",
        "cooperative_fetch",
        "cooperative_fetch",
        "auto_unroll",
    ]
    assert values.shape == (len(kinds), STEP_WIDTH)


def test_gpu_binds_know_their_extents_when_splits_are_followed() -> None:
    kinds, values = encode(GPU_MATMUL)
    extents = {
        kind: 2 ** (5 * values[kinds.index(kind)][EXTENT]) for kind in kinds if kind.startswith("bind")
    }
    # rows 128 = 4 x 2 x 4 x 4 x 1, columns 1000 = 20 x 1 x 50 x 1 x 1: blocks, virtual threads, threads, ...
    assert extents == pytest.approx({"bind_block": 80, "bind_vthread": 2, "bind_thread": 200}, rel=1e-3)


def test_splits_know_factors_role_and_axis() -> None:
    kinds, values = encode(CPU_MATMUL)
    rows, columns, reduction = (values[at] for at, kind in enumerate(kinds) if kind == "split")
    assert rows[:5] == pytest.approx([0, 1 / 4, 2 / 4, 1 / 4, 3 / 4])
    assert (rows[ROLE], columns[ROLE], reduction[ROLE]) == (1, 1, -1)
    assert (rows[AXIS], columns[AXIS]) == (1 / 4, 0)
    assert reduction[:5] == pytest.approx([0, 0, 0, 6 / 4, 2 / 4])
    assert rows[MAIN] == 1


def test_cpu_loops_know_their_extents() -> None:
    kinds, values = encode(CPU_MATMUL)
    assert values[kinds.index("parallel")][EXTENT] == pytest.approx((1 + 1 + 2 + 1) / 5)
    assert values[kinds.index("vectorize")][EXTENT] == pytest.approx(4 / 5)
    assert values[kinds.index("auto_unroll")][NUMBER] == pytest.approx(4 / 4)


def test_cached_tiles_keep_scope_and_size() -> None:
    kinds, values = encode(GPU_MATMUL)
    assert values[kinds.index("cache_write")][SCOPE] == 1
    assert values[kinds.index("cache_read")][SCOPE] == 0.5
    fetches = [values[at] for at, kind in enumerate(kinds) if kind == "cooperative_fetch"]
    assert [2 ** (5 * row[EXTENT]) for row in fetches] == pytest.approx([16, 64], rel=1e-3)


def test_candidates_of_several_sketches_keep_their_order() -> None:
    other = copy.deepcopy(CPU_MATMUL)
    other[0][4] = [2, 2, 4]
    traces = [text(steps) for steps in (CPU_MATMUL, GPU_MATMUL, other, GPU_MATMUL)]
    kinds, values = encode_steps(traces, "matmul")
    for row, trace in enumerate(traces):
        alone_kinds, alone_values = encode_steps([trace], "matmul")
        length = alone_kinds.shape[1]
        assert (kinds[row, :length] == alone_kinds[0]).all() and not kinds[row, length:].any()
        assert (values[row, :length] == alone_values[0]).all() and not values[row, length:].any()


def test_no_candidates_give_empty_arrays() -> None:
    kinds, values = encode_steps([])
    assert kinds.shape == (0, 0) and values.shape[0] == 0


@pytest.mark.parametrize(
    "steps", [[["SP", 2]], [["FSP", 1, 0, 7, 2]], [["SP"]], [["CI", "x"]], [["RE", 0, [-1]]], [["FU", 0, 3]]]
)
def test_steps_of_another_layout_are_refused(steps: list) -> None:
    with pytest.raises(ValueError, match="step 0"):
        encode(steps)


@pytest.mark.parametrize("trace", ["", "{}", "[[", "3"])
def test_text_that_is_no_list_of_steps_is_refused(trace: str) -> None:
    with pytest.raises(ValueError, match=r"steps"):
        encode_steps([trace])


def test_decisions_beyond_any_float_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        encode([["SP", 2, 0, 10**400, [4, 4], 1]])


def test_decisions_that_do_not_fit_the_holes_are_refused() -> None:
    parts = split_trace(text(CPU_MATMUL))
    with pytest.raises(ValueError, match="do not fit"):
        StepsEncoder(parts.skeleton).encode([parts.decisions + ",1"])


@settings(max_examples=150)
@given(data=st.data())
def test_mangled_steps_are_encoded_or_refused(data: st.DataObject) -> None:
    steps = copy.deepcopy(data.draw(st.sampled_from([GPU_MATMUL, CPU_MATMUL])))
    strange = st.one_of(
        st.none(), st.integers(-(2**70), 2**70), st.text(max_size=3), st.lists(st.integers(-3, 3), max_size=4)
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(steps) - 1))
        if data.draw(st.booleans()):
            steps[at][data.draw(st.integers(0, len(steps[at]) - 1))] = data.draw(strange)
        elif len(steps) > 1:
            del steps[at]
    try:
        kinds, values = encode_steps([text(steps)] * 2)
    except ValueError:
        return
    assert kinds.shape[1] <= MAX_STEPS and (kinds > 0).all()
    assert np.isfinite(values).all() and np.abs(values).max(initial=0) <= 8
