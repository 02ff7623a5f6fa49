"""Datasets that a model can learn: latency depends on two values of the steps."""

import numpy as np

from tcl.features.batch import STEP_WIDTH, FeatureBatch
from tcl.features.dataset import LabelledDataset
from tcl.features.device import DEVICE_WIDTH
from tcl.features.vocabulary import VOCABULARY_SIZE
from tcl.features.workload import WORKLOAD_WIDTH


def random_batch(rows: int, steps: int, seed: int) -> FeatureBatch:
    """Sequences of 1 to `steps` steps."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(1, VOCABULARY_SIZE, (rows, steps)).astype(np.int16)
    kinds[np.arange(steps) >= rng.integers(1, steps + 1, rows)[:, None]] = 0
    values = rng.random((rows, steps, STEP_WIDTH), dtype=np.float32) * (kinds > 0)[..., None]
    return FeatureBatch(
        kinds,
        values,
        rng.random((rows, WORKLOAD_WIDTH), dtype=np.float32),
        rng.random((rows, DEVICE_WIDTH), dtype=np.float32),
    )


def make_dataset(tasks: int = 8, rows: int = 24, seed: int = 0, slope: float = 2.0) -> LabelledDataset:
    """Tasks whose latency grows with the first value of the first step; the device named "cpu"."""
    batch = random_batch(tasks * rows, 6, seed)
    rng = np.random.default_rng(seed + 1)
    task = np.repeat(np.arange(tasks, dtype=np.int32), rows)
    batch.kinds[:, 0] = 3
    batch.workload[:] = batch.workload[task * rows]
    batch.device[:] = batch.device[0]
    seconds = rng.uniform(1e-3, 1e-2, tasks)[task] * np.exp(slope * batch.values[:, 0, 0].astype(np.float64))
    keys = [f"workload-{t}" for t in range(tasks)]
    return LabelledDataset(
        batch, task, seconds, keys, ["cpu"] * tasks, np.ones(tasks), ["random"] * len(task)
    )
