"""Fixtures of the cost model's tests."""

from collections.abc import Callable

import pytest

from costmodel.synthetic import make_dataset, random_batch
from tcl.features.batch import FeatureBatch
from tcl.features.dataset import LabelledDataset


@pytest.fixture
def dataset() -> LabelledDataset:
    return make_dataset()


@pytest.fixture
def batches() -> Callable[[int, int, int], FeatureBatch]:
    return random_batch
