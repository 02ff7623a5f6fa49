"""Candidates of one or many tasks as arrays: what the cost model reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

FEATURE_VERSION = 3
"""Rises with every change of the vocabulary or of the meaning of a value; models refuse another version."""

MAX_STEPS = 48
"""Longest step sequence; what is longer loses its least telling steps (see `tcl.features.sequence`)."""

STEP_WIDTH = 24
"""Values of one step (V)."""


@dataclass
class FeatureBatch:
    """The features of n candidates.

    Attributes
    ----------
    kinds : int16[n, L]
        Vocabulary ids of the steps (`tcl.features.vocabulary`); 0 is padding, always at the end.
    values : float32[n, L, STEP_WIDTH]
        Scaled numbers of each step; zero where padded.
    workload : float32[n, WORKLOAD_WIDTH]
        `WorkloadSummary.vector` of each candidate's workload.
    device : float32[n, DEVICE_WIDTH]
        `tcl.features.device.device_descriptor` of each candidate's device.
    """

    kinds: np.ndarray
    values: np.ndarray
    workload: np.ndarray
    device: np.ndarray

    def __len__(self) -> int:
        return len(self.kinds)

    def take(self, index: Any) -> FeatureBatch:
        """The candidates that a numpy index (integers, mask or slice) picks."""
        return FeatureBatch(self.kinds[index], self.values[index], self.workload[index], self.device[index])

    @staticmethod
    def concat(batches: Sequence[FeatureBatch]) -> FeatureBatch:
        """One batch after another, padded to the longest sequence among them.

        Raises
        ------
        ValueError
            When there is no batch.
        """
        if not batches:
            raise ValueError("no feature batch to concatenate")
        steps = max(batch.kinds.shape[1] for batch in batches)
        return FeatureBatch(
            np.concatenate([pad_steps(batch.kinds, steps) for batch in batches]),
            np.concatenate([pad_steps(batch.values, steps) for batch in batches]),
            np.concatenate([batch.workload for batch in batches]),
            np.concatenate([batch.device for batch in batches]),
        )


def pad_steps(array: np.ndarray, steps: int) -> np.ndarray:
    """Appends zeros on axis 1 until it holds `steps` entries; longer arrays come back unchanged."""
    missing = steps - array.shape[1]
    if missing <= 0:
        return array
    width = [(0, 0)] * array.ndim
    width[1] = (0, missing)
    return np.pad(array, width)
