"""How well measurements repeat."""

import pytest

from tcl.bench.repeatability import agreement


def test_agreement_is_full_when_everything_is_as_slow_as_then() -> None:
    assert agreement([(1.0, 1.5), (2.0, 3.0), (4.0, 6.0)]) == pytest.approx((1, 1, 0))


def test_agreement_tells_what_the_choice_of_then_costs_now() -> None:
    ranks, share, spread = agreement([(1.0, 2.0), (2.0, 1.0), (4.0, 4.0)])
    assert (ranks, share) == pytest.approx((0.5, 0.5))
    assert spread > 0.5
