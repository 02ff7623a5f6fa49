"""Feature batches: slices and concatenation."""

import numpy as np
import pytest

from tcl.features.batch import STEP_WIDTH, FeatureBatch, pad_steps


def make(n: int, steps: int) -> FeatureBatch:
    rng = np.random.default_rng(n)
    return FeatureBatch(
        rng.integers(1, 9, (n, steps)).astype(np.int16),
        rng.random((n, steps, STEP_WIDTH), np.float32),
        rng.random((n, 3), np.float32),
        rng.random((n, 2), np.float32),
    )


def test_concat_pads_at_the_end_when_lengths_differ() -> None:
    short, long = make(2, 3), make(4, 5)
    both = FeatureBatch.concat([short, long])
    assert len(both) == 6
    assert both.kinds.shape == (6, 5) and both.values.shape == (6, 5, STEP_WIDTH)
    assert (both.kinds[:2, :3] == short.kinds).all() and not both.kinds[:2, 3:].any()
    assert not both.values[:2, 3:].any()
    assert (both.values[2:] == long.values).all()
    assert both.kinds.dtype == np.int16 and both.values.dtype == np.float32


def test_take_keeps_rows_together_when_given_an_index() -> None:
    batch = make(5, 4)
    part = batch.take(np.array([3, 0]))
    assert (part.kinds == batch.kinds[[3, 0]]).all()
    assert (part.device == batch.device[[3, 0]]).all()


def test_concat_refuses_when_there_is_no_batch() -> None:
    with pytest.raises(ValueError, match="no feature batch"):
        FeatureBatch.concat([])


def test_pad_steps_returns_the_array_when_it_is_long_enough() -> None:
    array = np.ones((2, 4))
    assert pad_steps(array, 3) is array
