"""Cutting traces and joining them again."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from tcl.records.record import compact_json
from tcl.records.traces import TraceParts, join_trace, split_trace

ANSOR = (
    '[["CHW",3,"local"],["SP",3,0,128,[1,8,2],1],["SP",3,5,null,[2],1],["PR",5,0,"auto_unroll_max_step$512"]]'
)

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.sampled_from(["SP", "PR", "#"]),
)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=5), max_leaves=30)
names = st.sampled_from(["Split", "EnterPostproc", "SamplePerfectTile", "x"])
instructions = st.lists(st.tuples(names, st.lists(leaves), st.lists(leaves), st.lists(st.text(max_size=2))))
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("SP"),
            st.integers(0, 9),
            st.integers(),
            st.integers(),
            st.lists(st.integers()),
            st.just(1),
        ),
        st.tuples(
            st.just("PR"),
            st.integers(),
            st.just(0),
            st.from_regex(r"auto_unroll_max_step\$\d*#?", fullmatch=True),
        ),
        st.tuples(st.just("RE"), st.integers(), st.lists(st.integers())),
    )
)


@given(st.one_of(values, st.tuples(instructions, st.lists(values)), steps).map(compact_json))
def test_any_json_comes_back_byte_for_byte(trace: str) -> None:
    assert join_trace(split_trace(trace)) == trace


def test_trace_with_blanks_is_cut_like_one_without(traces: dict[str, list]) -> None:
    trace = traces["cpu_matmul"]
    assert split_trace(json.dumps(trace)) == split_trace(compact_json(trace))


@given(st.text())
def test_any_text_comes_back(trace: str) -> None:
    assert join_trace(split_trace(trace)) == trace


def test_ansor_numbers_leave_the_skeleton() -> None:
    parts = split_trace(ANSOR)
    assert parts.skeleton == (
        '[["CHW",3,"local"],["SP",3,0,#,[#,#,#],1],["SP",3,5,null,[2],1],["PR",5,0,"auto_unroll_max_step$#"]]'
    )
    assert parts.decisions == "128,1,8,2,512"
    assert join_trace(parts) == ANSOR


def test_metaschedule_candidates_share_all_but_numbers(make_record) -> None:
    parts = [split_trace(make_record(number).trace) for number in range(20)]
    assert len({part.skeleton for part in parts}) == 1
    assert len({part.tail for part in parts}) == 1
    assert len({part.decisions for part in parts}) == 20
    assert "EnterPostproc" not in parts[0].skeleton and "EnterPostproc" in parts[0].tail
    assert re.fullmatch(r"[\d,]+", parts[0].tail_numbers)
    assert isinstance(json.loads(parts[0].skeleton), list)


def test_trace_without_postprocessing_has_no_tail(traces: dict[str, list]) -> None:
    trace = compact_json(traces["cpu_matmul"])
    parts = split_trace(trace)
    assert (parts.tail, parts.tail_numbers) == ("", "")
    assert join_trace(parts) == trace
    assert join_trace(TraceParts(parts.skeleton, "[]")).endswith(",[]]")
