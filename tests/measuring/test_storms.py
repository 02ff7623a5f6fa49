import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcl.measuring.storms import StormWatch


@given(st.floats(1e-6, 1.0), st.integers(1, 20))
def test_steady_runs_are_no_storm(seconds: float, count: int) -> None:
    assert not StormWatch(1.25, 1.6).is_storm([seconds] * count)


def test_a_slow_phase_is_no_storm_until_it_is_too_slow() -> None:
    watch = StormWatch(1.25, 1.6)
    assert not watch.is_storm([1.0] * 8)
    assert not watch.is_storm([1.5] * 8)
    assert watch.is_storm([1.7] * 8)
    assert watch.floor == 1.0


@pytest.mark.parametrize(
    ("seconds", "storm"),
    [
        ([1.0] * 7 + [9.0], False),  # one hiccup
        ([1.0] * 5 + [1.4] * 3, True),
        ([1.0, 1.4], True),
        ([1.0, 1.1], False),
    ],
)
def test_speed_that_changes_beside_a_candidate_is_a_storm(seconds: list[float], storm: bool) -> None:
    assert StormWatch(1.25, 1.6).is_storm(seconds) is storm
