"""Design spaces: tilings, drawing, traces."""

from __future__ import annotations

import json
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcl.search.space import DesignSpace, perfect_tilings

from .conftest import DECISIONS, INSTRUCTIONS


@given(st.integers(1, 720), st.integers(1, 4), st.integers(1, 64))
def test_perfect_tilings_are_distinct_products_with_a_bounded_innermost(
    extent: int, parts: int, innermost: int
) -> None:
    if parts == 1 and extent > innermost:
        with pytest.raises(ValueError, match="no tiling"):
            perfect_tilings(extent, parts, innermost)
        return
    table = perfect_tilings(extent, parts, innermost)
    assert (table.prod(axis=1) == extent).all()
    assert (table[:, -1] <= innermost).all()
    assert len(np.unique(table, axis=0)) == len(table)


def test_perfect_tilings_are_complete_when_nothing_bounds_them() -> None:
    # 2^3 in three ordered factors: as many as ways to spread 3 twos over 3 places.
    assert len(perfect_tilings(8, 3, 64)) == 10


def test_sample_is_distinct_and_valid(space: DesignSpace) -> None:
    (population,) = space.sample(200, np.random.default_rng(0))
    assert len(population) == 200
    assert len(np.unique(population.genes, axis=0)) == 200
    columns = space.columns(population)
    assert set(columns) == {4, 6, 8, 11}
    assert all((columns[index].prod(axis=1) == 32).all() for index in (4, 6, 8))


def test_sample_is_the_whole_space_when_it_is_small() -> None:
    instructions = [["SampleCategorical", [], [[0, 16], [0.5, 0.5]], ["v0"]]]
    space = DesignSpace([[instructions, [[0, 1]]]], [{}])
    (population,) = space.sample(100, np.random.default_rng(0))
    assert sorted(population.genes[:, 0].tolist()) == [0, 1]
    assert space.size == 2


def test_sample_gives_the_one_candidate_when_nothing_is_open() -> None:
    space = DesignSpace([[[["GetSBlock", [], ["root", "main"], ["b0"]]], []]], [{}])
    (population,) = space.sample(5, np.random.default_rng(0))
    assert len(population) == 1
    assert json.loads(space.trace(population, 0))[1] == []


def test_locate_finds_every_candidate_also_after_post_processing(space: DesignSpace) -> None:
    (population,) = space.sample(20, np.random.default_rng(1))
    for row in range(len(population)):
        instructions, decisions = json.loads(space.trace(population, row))
        found = space.locate(json.dumps([[*instructions, ["EnterPostproc", [], [], []]], decisions]))
        assert found is not None
        assert (found.genes[0] == population.genes[row]).all()


def test_locate_refuses_when_the_trace_is_of_another_space(space: DesignSpace) -> None:
    other = [[4, [1, 1, 1, 7]], *DECISIONS[1:]]
    assert space.locate(json.dumps([INSTRUCTIONS, other])) is None
    assert space.locate(json.dumps([INSTRUCTIONS[:-1], DECISIONS])) is None


def test_locations_seen_in_replays_become_options() -> None:
    instructions = [["SampleComputeLocation", ["b0"], [], ["l0"]]]
    space = DesignSpace([[instructions, [[0, -1]]]], [{0: [-2, 3]}])
    assert space.sketches[0].choices[0].options.tolist() == [-2, -1, 3]
    assert prod(len(c.options) for c in space.sketches[0].choices) == space.size


def test_locate_takes_the_nearest_compute_location_when_tvm_moved_it() -> None:
    instructions = [["SampleComputeLocation", ["b0"], [], ["l0"]]]
    space = DesignSpace([[instructions, [[0, -1]]]], [{0: [-2, 5]}])
    found = space.locate(json.dumps([instructions, [[0, 4]]]))
    assert found is not None
    assert space.columns(found)[0].tolist() == [5]
