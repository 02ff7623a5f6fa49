"""MLflow runs: parameters and metrics in few batches."""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

_PARAMS_OF_A_BATCH, _METRICS_OF_A_BATCH = 100, 1000  # MLflow's limits


@contextlib.contextmanager
def logged_run(
    store: "tuple[MlflowClient, str]",
    name: str,
    tags: Mapping[str, str],
    params: Mapping[str, Any],
    metrics: Mapping[str, float],
    curves: Mapping[str, Sequence[float]],
) -> Iterator[str]:
    """Log a run with all of its numbers; it ends with the block, as failed when that raises.

    Parameters
    ----------
    store
        Client and experiment id, from `open_store`.
    name, tags, params
        The run's name, tags and parameters.
    metrics
        Final values; those that are not finite are left out, since MLflow cannot compare them.
    curves
        Values by step.

    Yields
    ------
    str
        The run's id.
    """
    from mlflow.entities import Metric, Param

    client, experiment = store
    run_id: str = client.create_run(experiment, run_name=name, tags=dict(tags)).info.run_id
    now = int(time.time() * 1000)
    points = [(key, value, 0) for key, value in metrics.items()]
    points += [(key, value, step) for key, values in curves.items() for step, value in enumerate(values)]
    numbers = [Metric(key, float(value), now, step) for key, value, step in points if math.isfinite(value)]
    try:
        for some in _batches([Param(key, str(value)) for key, value in params.items()], _PARAMS_OF_A_BATCH):
            client.log_batch(run_id, params=some)
        for some in _batches(numbers, _METRICS_OF_A_BATCH):
            client.log_batch(run_id, metrics=some)
        yield run_id
    except BaseException:
        client.set_terminated(run_id, "FAILED")
        raise
    client.set_terminated(run_id)


def _batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
