"""MetaSchedule traces as step sequences."""

import copy
import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcl.features.batch import MAX_STEPS, STEP_WIDTH
from tcl.features.metaschedule import SketchEncoder
from tcl.features.tracker import AT_INLINE, EXTENT, INNER_SPATIAL, LAST_FACTORS, MAIN, NUMBER, ROLE
from tcl.features.vocabulary import KIND_IDS, KINDS, UNKNOWN
from tcl.features.workload import WorkloadSummary

Traces = dict[str, list]


def encode(trace: list) -> tuple[list[str], np.ndarray]:
    kinds, values = SketchEncoder(trace[0]).encode([trace[1]])
    return [KINDS[kind] for kind in kinds[0]], values[0]


def test_sequences_are_short_and_bounded(traces: Traces) -> None:
    for name, trace in traces.items():
        kinds, values = SketchEncoder(trace[0]).encode([trace[1]] * 3)
        assert kinds.shape[1] <= (32 if name.startswith("cpu") else MAX_STEPS)
        assert kinds.dtype == np.int16 and values.dtype == np.float32
        assert values.shape == (*kinds.shape, STEP_WIDTH)
        assert (kinds > UNKNOWN).all(), name
        assert np.isfinite(values).all() and np.abs(values).max() <= 8


def test_split_knows_its_factors(traces: Traces) -> None:
    instructions, decisions = copy.deepcopy(traces["cpu_matmul"])
    tile = next(d for d in decisions if d[0] == 4)
    tile[1] = [2, 4, 1, 16]
    kinds, values = encode([instructions, decisions])
    row = values[kinds.index("split")]
    assert row[:5] == pytest.approx([0, 1 / 4, 2 / 4, 0, 4 / 4])
    assert row[EXTENT] == pytest.approx(7 / 5)
    assert row[ROLE] == 1 and row[MAIN] == 1
    assert row[LAST_FACTORS] == pytest.approx(4 / 5)


def test_summary_multiplies_the_axes(traces: Traces) -> None:
    instructions, decisions = copy.deepcopy(traces["cpu_matmul"])
    for decision, factors in zip(decisions, ([2, 4, 1, 16], [1, 8, 4, 16], [128, 4]), strict=False):
        decision[1] = factors
    kinds, values = encode([instructions, decisions])
    assert values[kinds.index("summary_spatial")][:5] == pytest.approx([0, 1 / 4, 5 / 4, 2 / 4, 8 / 4])
    assert values[kinds.index("summary_reduce")][:5] == pytest.approx([0, 0, 0, 7 / 4, 2 / 4])


def test_gpu_binds_know_their_extents(traces: Traces) -> None:
    instructions, decisions = copy.deepcopy(traces["gpu_matmul"])
    for decision, factors in zip(decisions, ([4, 1, 8, 2, 2], [8, 2, 16, 1, 2], [32, 4, 4]), strict=False):
        decision[1] = factors
    kinds, values = encode([instructions, decisions])
    extents = {kind: 5 * values[kinds.index(kind)][EXTENT] for kind in kinds if kind.startswith("bind")}
    assert extents == pytest.approx({"bind_block": 5, "bind_vthread": 1, "bind_thread": 7})
    assert "cache_read" in kinds and "cooperative_fetch" in kinds


def test_loops_get_their_extents_from_the_summary_when_nothing_tiles_them(traces: Traces) -> None:
    instructions, _decisions = traces["gpu_elementwise"]
    summary = WorkloadSummary("elementwise", "float32", 0, 0, 0, (1, 64, 32, 32), (), 1)
    kinds, values = SketchEncoder(instructions, summary).encode([[[4, 1]]])
    steps = [KINDS[kind] for kind in kinds[0]]
    assert values[0, steps.index("bind_thread"), EXTENT] == pytest.approx(6 / 5)
    assert values[0, steps.index("bind_block"), EXTENT] == pytest.approx(10 / 5)


def test_unroll_and_location_decisions_show(traces: Traces) -> None:
    instructions, decisions = copy.deepcopy(traces["cpu_conv2d"])
    unroll = next(i for i, it in enumerate(instructions) if it[0] == "SampleCategorical")
    location = next(i for i, it in enumerate(instructions) if it[0] == "SampleComputeLocation")

    def with_decisions(categorical: int, place: int) -> tuple[list[str], np.ndarray]:
        changed = [[i, {unroll: categorical, location: place}.get(i, value)] for i, value in decisions]
        return encode([instructions, changed])

    kinds, values = with_decisions(3, -2)
    assert values[kinds.index("auto_unroll")][NUMBER] == pytest.approx(9 / 4)
    assert values[kinds.index("compute_at")][AT_INLINE] == 1
    shallow, deep = (with_decisions(3, place)[1][kinds.index("compute_at")] for place in (0, 12))
    assert shallow[AT_INLINE] == 0 and shallow[INNER_SPATIAL] > deep[INNER_SPATIAL]


def test_encoding_many_equals_encoding_each(traces: Traces) -> None:
    instructions, decisions = traces["cpu_conv2d"]
    rng = random.Random(0)
    candidates = []
    for _ in range(20):
        candidate = copy.deepcopy(decisions)
        for decision in candidate:
            if isinstance(decision[1], list):
                rng.shuffle(decision[1])
        candidates.append(candidate)
    encoder = SketchEncoder(instructions)
    kinds, values = encoder.encode(candidates)
    for row, candidate in enumerate(candidates):
        alone_kinds, alone_values = encoder.encode([candidate])
        assert (alone_kinds[0] == kinds[row]).all()
        assert alone_values[0] == pytest.approx(values[row], abs=1e-6)


def test_arrays_give_the_same_as_json(traces: Traces) -> None:
    for instructions, decisions in traces.values():
        encoder = SketchEncoder(instructions)
        columns = {index: np.array([value, value]) for index, value in decisions}
        kinds, values = encoder.encode_arrays(columns, 2)
        expected_kinds, expected_values = encoder.encode([decisions, decisions])
        assert (kinds == expected_kinds).all() and (values == expected_values).all()


def test_old_instruction_names_mean_the_same(traces: Traces) -> None:
    for trace in traces.values():
        old = json.loads(json.dumps(trace).replace("GetSBlock", "GetBlock"))
        assert encode(old)[0] == encode(trace)[0]
        assert (encode(old)[1] == encode(trace)[1]).all()


def test_postprocessing_is_ignored(traces: Traces) -> None:
    instructions, decisions = traces["cpu_matmul"]
    tail = [
        ["EnterPostproc", [], [], []],
        ["Vectorize", ["l9"], [], []],
        ["SampleCategorical", [], [[1], [1.0]], ["v"]],
    ]
    kinds, values = encode([instructions + tail, [*decisions, [len(instructions) + 2, 0]]])
    assert kinds == encode([instructions, decisions])[0]
    assert (values == encode([instructions, decisions])[1]).all()


def test_unknown_instruction_becomes_the_unknown_kind(traces: Traces) -> None:
    instructions, decisions = traces["cpu_reduce"]
    kinds, _ = encode([[*instructions, ["FutureInstruction", ["b0"], [], []]], decisions])
    assert kinds[-1] == "unknown"


def test_long_trace_loses_its_expendable_steps_first(traces: Traces) -> None:
    instructions, _decisions = traces["cpu_matmul"]
    noise = [["FutureInstruction", ["b0"], [], []]] * 100
    kinds, _ = SketchEncoder(instructions[:3] + noise + instructions[3:]).encode([[]])
    assert kinds.shape == (1, MAX_STEPS)
    assert (kinds == KIND_IDS["split"]).sum() == 3
    assert (kinds == KIND_IDS["auto_unroll"]).sum() == 1


@pytest.mark.parametrize(
    "instructions", [{}, [["Split"]], [["Split", [], [], 3]], [[1, [], [], []]], ["Split"], None]
)
def test_encoder_refuses_what_is_no_trace(instructions: object) -> None:
    with pytest.raises(ValueError, match=r"instruction|list"):
        SketchEncoder(instructions)  # type: ignore[arg-type]


@pytest.mark.parametrize("decision", [[4, [1, 2]], [4, 7], [4, ["a", 1, 1, 1]], [4, {}], 4, [[4], 1]])
def test_encode_refuses_decisions_that_do_not_fit(traces: Traces, decision: object) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        SketchEncoder(traces["cpu_matmul"][0]).encode([[decision]])


@settings(max_examples=150)
@given(data=st.data())
def test_mangled_traces_are_encoded_or_refused(traces: Traces, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(traces)))
    instructions, decisions = copy.deepcopy(traces[name])
    strange = st.one_of(
        st.none(),
        st.integers(-(2**70), 2**70),
        st.text(max_size=3),
        st.lists(st.integers(-3, 3), max_size=4),
        st.floats(),
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(instructions) - 1))
        part = data.draw(st.integers(0, 3))
        match data.draw(st.sampled_from(["drop", "swap", "part", "item", "decision"])):
            case "drop" if len(instructions) > 1:
                del instructions[at]
            case "swap":
                other = data.draw(st.integers(0, len(instructions) - 1))
                instructions[at], instructions[other] = instructions[other], instructions[at]
            case "part":
                instructions[at] = [*instructions[at]]
                instructions[at][part] = data.draw(strange)
            case "item" if isinstance(instructions[at][part], list) and instructions[at][part]:
                items = [*instructions[at][part]]
                items[data.draw(st.integers(0, len(items) - 1))] = data.draw(strange)
                instructions[at] = [*instructions[at]]
                instructions[at][part] = items
            case "decision" if decisions:
                decisions[data.draw(st.integers(0, len(decisions) - 1))][1] = data.draw(strange)
    try:
        kinds, values = SketchEncoder(instructions).encode([decisions, decisions])
    except ValueError:
        return
    assert kinds.shape[1] <= MAX_STEPS and (kinds > 0).all()
    assert np.isfinite(values).all() and np.abs(values).max(initial=0) <= 8
