"""Stored records as what a cost model learns from: features, and latencies that can be compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tcl.errors import BadInput
from tcl.farm import spread
from tcl.features.ansor import StepsEncoder, gather
from tcl.features.batch import STEP_WIDTH, FeatureBatch
from tcl.features.device import device_descriptor
from tcl.features.metaschedule import SketchEncoder
from tcl.features.vocabulary import UNKNOWN

if TYPE_CHECKING:
    import pyarrow as pa

    from tcl.devices.device import Device
    from tcl.records.record import Workload
    from tcl.records.store import RecordStore

SHARD_ROWS = 200_000
"""Records of one shard of a stream, about."""

_TOLERATED = 0.1  # share of traces that no encoder reads

_COLUMNS = ["workload", "skeleton", "decisions", "run_seconds", "reference_seconds", "error", "origin"]

Encoded = tuple[np.ndarray, np.ndarray]


@dataclass
class LabelledDataset:
    """Measured candidates of a number of tasks; a task is a workload on a device.

    Attributes
    ----------
    batch : FeatureBatch
        n candidates, task after task, each in the order of measurement.
    task : int32[n]
        Task of each candidate.
    seconds : float64[n]
        Median of the repeats, corrected for the machine's drift by the reference kernel; inf when failed.
    keys, devices : list of str
        `Workload.key` and device name of each task.
    weights : float64[tasks]
        How much each task counts.
    origin : list of str
        How each candidate was chosen.
    """

    batch: FeatureBatch
    task: np.ndarray
    seconds: np.ndarray
    keys: list[str]
    devices: list[str]
    weights: np.ndarray
    origin: list[str]

    def __len__(self) -> int:
        return len(self.batch)

    @staticmethod
    def concat(parts: Sequence[LabelledDataset]) -> LabelledDataset:
        """The tasks of one part after those of another.

        Raises
        ------
        ValueError
            When there is no part.
        """
        batch = FeatureBatch.concat([part.batch for part in parts])
        first = np.cumsum([0] + [len(part.keys) for part in parts])
        return LabelledDataset(
            batch,
            np.concatenate([part.task + start for part, start in zip(parts, first, strict=False)]).astype(
                np.int32
            ),
            np.concatenate([part.seconds for part in parts]),
            [key for part in parts for key in part.keys],
            [device for part in parts for device in part.devices],
            np.concatenate([part.weights for part in parts]),
            [origin for part in parts for origin in part.origin],
        )


def load_dataset(
    store: RecordStore,
    devices: Sequence[Device],
    keys: Collection[str] | None = None,
    limit_per_task: int | None = None,
) -> LabelledDataset:
    """All records of some devices in memory; see `stream_dataset` for the parameters.

    Raises
    ------
    BadInput
        When there is no record.
    """
    parts = list(stream_dataset(store, devices, keys, limit_per_task))
    if not parts:
        names = ", ".join(device.name for device in devices) or "no device"
        raise BadInput(
            f"there are no measure records of {names} for the wanted workloads; measure or import some"
        )
    return LabelledDataset.concat(parts)


def stream_dataset(
    store: RecordStore,
    devices: Sequence[Device],
    keys: Collection[str] | None = None,
    limit_per_task: int | None = None,
    shard_rows: int = SHARD_ROWS,
) -> Iterator[LabelledDataset]:
    """Records of some devices as one dataset after another, so that none needs to hold all.

    Parameters
    ----------
    store : RecordStore
    devices : sequence of Device
    keys : collection of str, optional
        Only these workloads.
    limit_per_task : int, optional
        The first records of each task, in the order of measurement.
    shard_rows : int
        A shard takes whole tasks until it has about this many records.

    Raises
    ------
    BadInput
        When a file of the store is damaged, or the workload of a record is missing.
    """
    for device in devices:
        workloads = store.workloads(device.name)
        counts, reference = _survey(store, device.name, keys)
        if lost := counts.keys() - workloads.keys():
            raise BadInput(
                f"{store.workloads_path} lacks the workload {min(lost)} of the records of {device.name}; restore it"
            )
        shard: list[str] = []
        size = 0
        for key, count in counts.items():
            shard.append(key)
            size += min(count, limit_per_task or count)
            if size >= shard_rows:
                yield _load_shard(store, device, workloads, shard, limit_per_task, reference)
                shard, size = [], 0
        if shard:
            yield _load_shard(store, device, workloads, shard, limit_per_task, reference)


def encode_records(workload: Workload, skeletons: Sequence[str], decisions: Sequence[str]) -> Encoded:
    """Step sequences of records of one workload, given by the parts of their traces.

    A trace that no encoder can read becomes a single unknown step, so that its record still counts as measured.

    Returns
    -------
    kinds : int16[n, L]
    values : float32[n, L, STEP_WIDTH]
    """
    rows_of: dict[str, list[int]] = {}
    for row, skeleton in enumerate(skeletons):
        rows_of.setdefault(skeleton, []).append(row)
    groups = []
    for skeleton, rows in rows_of.items():
        encoded = _encode_group(workload, skeleton, [decisions[row] for row in rows])
        groups.append((np.array(rows), *encoded))
    return gather(len(skeletons), groups)


def _encode_group(workload: Workload, skeleton: str, decisions: list[str]) -> Encoded:
    try:
        encode = _encoder(workload, skeleton)
        return encode(decisions)
    except ValueError:
        if len(decisions) == 1:
            return np.full((1, 1), UNKNOWN, np.int16), np.zeros((1, 1, STEP_WIDTH), np.float32)
    alone = [_encode_group(workload, skeleton, [decision]) for decision in decisions]
    return gather(len(alone), [(np.array([row]), *encoded) for row, encoded in enumerate(alone)])


def _encoder(workload: Workload, skeleton: str) -> Callable[[list[str]], Encoded]:
    if workload.source == "ansor":
        return StepsEncoder(skeleton, workload.summary.op).encode
    sketch = SketchEncoder(json.loads(skeleton), workload.summary)
    return partial(_encode_sketch, sketch)


def _encode_sketch(sketch: SketchEncoder, decisions: list[str]) -> Encoded:
    return sketch.encode(json.loads(f"[{','.join(decisions)}]"))


def _survey(store: RecordStore, device: str, keys: Collection[str] | None) -> tuple[dict[str, int], float]:
    """Records by workload in the order of their appearance, and the median time of the reference kernel."""
    counts: dict[str, int] = {}
    references = []
    for table in store.tables(device, ["workload", "reference_seconds"]):
        for entry in table.column("workload").value_counts().to_pylist():
            counts[entry["values"]] = counts.get(entry["values"], 0) + entry["counts"]
        references.append(table.column("reference_seconds").drop_null().to_numpy())
    known = np.concatenate([np.array([]), *references])
    reference = float(np.median(known)) if len(known) else 1.0
    return {key: count for key, count in counts.items() if keys is None or key in keys}, reference


def _load_shard(
    store: RecordStore,
    device: Device,
    workloads: dict[str, Workload],
    keys: list[str],
    limit: int | None,
    reference: float,
) -> LabelledDataset:
    from tcl.records.parquet import column_values

    rows_of: dict[str, list[tuple[Any, ...]]] = {key: [] for key in keys}
    for table in store.tables(device.name, _COLUMNS, keys):
        seconds = normalised_seconds(table, reference)
        columns = (
            column_values(table.column(name)) for name in ("workload", "skeleton", "decisions", "origin")
        )
        for key, skeleton, decision, origin, second in zip(*columns, seconds.tolist(), strict=True):
            if limit is None or len(rows_of[key]) < limit:
                rows_of[key].append((skeleton, decision, origin, second))
    descriptor = device_descriptor(device)
    rows = [tuple(zip(*rows_of.pop(key), strict=True)) for key in keys]
    skeletons, decisions, origins_of, seconds_of = zip(*rows, strict=True)
    encoded = spread(encode_records, [workloads[key] for key in keys], skeletons, decisions)
    parts = []
    for key, origins, latencies, (kinds, values) in zip(keys, origins_of, seconds_of, encoded, strict=True):
        n = len(kinds)
        batch = FeatureBatch(
            kinds,
            values,
            np.tile(workloads[key].summary.vector(), (n, 1)),
            np.tile(descriptor, (n, 1)),
        )
        task = np.zeros(n, np.int32)
        parts.append(
            LabelledDataset(batch, task, np.array(latencies), [key], [device.name], np.ones(1), list(origins))
        )
    dataset = LabelledDataset.concat(parts)
    _refuse_unreadable(dataset, device.name)
    return dataset


def _refuse_unreadable(dataset: LabelledDataset, device: str) -> None:
    """A few odd traces teach nothing and do no harm; a model of many would rank by nothing at all."""
    kinds = dataset.batch.kinds
    alone = kinds[:, 1] == 0 if kinds.shape[1] > 1 else np.ones(len(kinds), bool)
    unreadable = int(np.count_nonzero((kinds[:, 0] == UNKNOWN) & alone))
    if unreadable > _TOLERATED * len(kinds):
        raise BadInput(
            f"{unreadable} of {len(kinds)} schedule traces of device {device} cannot be read by this version; "
            "import or measure them again"
        )


def normalised_seconds(table: pa.Table, reference: float) -> np.ndarray:
    """Median of each record's repeats, float64[n]; inf where it failed.

    Where the reference kernel was timed beside the record, the median is scaled by how much slower or faster than
    `reference` (its median on the device) the machine was at that moment.
    """
    runs = table.column("run_seconds").combine_chunks()
    offsets = runs.offsets.to_numpy()
    values = runs.values.to_numpy()
    lengths = np.diff(offsets)
    seconds = np.full(len(lengths), np.inf)
    for length in np.unique(lengths[lengths > 0]):
        rows = np.flatnonzero(lengths == length)
        seconds[rows] = np.median(values[offsets[rows][:, None] + np.arange(length)], axis=1)
    beside = table.column("reference_seconds").to_numpy()
    drift = np.where(np.isfinite(beside) & (beside > 0), reference / beside, 1.0)
    failed = ~table.column("error").is_null().to_numpy()
    return np.where(failed, np.inf, seconds * drift)
