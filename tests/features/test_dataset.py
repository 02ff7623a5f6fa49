"""Records as labelled datasets."""

from pathlib import Path

import numpy as np
import pytest

from tcl.devices.device import Device
from tcl.errors import BadInput
from tcl.features.dataset import load_dataset, stream_dataset
from tcl.features.metaschedule import SketchEncoder
from tcl.features.vocabulary import UNKNOWN
from tcl.features.workload import WorkloadSummary
from tcl.records.record import MeasureRecord, Workload, compact_json
from tcl.records.store import RecordStore

CPU = Device("cpu", {"kind": "llvm", "num-cores": 2})
OTHER = Device("other", {"kind": "llvm", "num-cores": 8})
SUMMARY = WorkloadSummary("matmul", "float32", 1e6, 1e4, 1e4, (128, 512), (512,), 1)
MATMUL = Workload.create("metaschedule", "matmul", '["1","AA=="]', SUMMARY)
CONV = Workload.create("metaschedule", "conv", '["2","AA=="]', SUMMARY)
ANSOR = Workload.create("ansor", "matmul_layer", '["matmul_layer", 8, 8, 8]', SUMMARY)


def record(
    workload: Workload,
    trace: object,
    seconds: tuple[float, ...],
    *,
    device: str = "cpu",
    reference: float | None = None,
    at: float = 0.0,
) -> MeasureRecord:
    error = None if seconds else "run: it broke"
    return MeasureRecord(
        device, workload.key, compact_json(trace), seconds, reference, error, at, "0.27", 1, "random"
    )


@pytest.fixture
def store(tmp_path: Path, traces: dict[str, list]) -> RecordStore:
    store = RecordStore(tmp_path / "data")
    steps = [["SP", 0, 0, 64, [4], 1], ["AN", 0, 1, 2]]
    store.append(
        [MATMUL, CONV, ANSOR],
        [
            record(MATMUL, traces["cpu_matmul"], (3.0, 1.0, 2.0), reference=1.0, at=1),
            record(CONV, traces["cpu_conv2d"], (4.0,), reference=2.0, at=2),
            record(MATMUL, traces["cpu_matmul"], (2.0, 4.0), reference=4.0, at=3),
            record(MATMUL, traces["cpu_matmul"], (), reference=1.0, at=4),
            record(ANSOR, steps, (5.0,), device="other", at=5),
        ],
    )
    return store


def test_seconds_are_medians_corrected_for_drift(store: RecordStore) -> None:
    dataset = load_dataset(store, [CPU])
    # the device's median reference is 1.5 s
    assert dataset.seconds.tolist() == pytest.approx([2 * 1.5, 3 * 1.5 / 4, np.inf, 4 * 1.5 / 2])


def test_rows_come_task_by_task_in_the_order_of_measurement(store: RecordStore) -> None:
    dataset = load_dataset(store, [CPU, OTHER])
    assert dataset.task.tolist() == [0, 0, 0, 1, 2] and dataset.task.dtype == np.int32
    assert dataset.keys == [MATMUL.key, CONV.key, ANSOR.key]
    assert dataset.devices == ["cpu", "cpu", "other"]
    assert dataset.weights.tolist() == [1, 1, 1]
    assert dataset.origin == ["random"] * 5
    assert len(dataset) == 5
    assert not (dataset.batch.device[0] == dataset.batch.device[-1]).all()


def test_features_are_those_of_the_encoder(store: RecordStore, traces: dict[str, list]) -> None:
    dataset = load_dataset(store, [CPU])
    instructions, decisions = traces["cpu_matmul"]
    kinds, values = SketchEncoder(instructions, SUMMARY).encode([decisions])
    steps = kinds.shape[1]
    assert (dataset.batch.kinds[0, :steps] == kinds[0]).all() and not dataset.batch.kinds[0, steps:].any()
    assert (dataset.batch.values[0, :steps] == values[0]).all()
    assert (dataset.batch.workload[0] == SUMMARY.vector()).all()


def test_keys_and_limit_pick_rows(store: RecordStore) -> None:
    dataset = load_dataset(store, [CPU], keys={MATMUL.key}, limit_per_task=2)
    assert dataset.keys == [MATMUL.key]
    assert dataset.seconds.tolist() == pytest.approx([3, 4.5 / 4])


def test_stream_gives_the_same_in_whole_tasks(store: RecordStore) -> None:
    shards = list(stream_dataset(store, [CPU, OTHER], shard_rows=1))
    assert [shard.keys for shard in shards] == [[MATMUL.key], [CONV.key], [ANSOR.key]]
    whole = load_dataset(store, [CPU, OTHER])
    assert np.concatenate([shard.seconds for shard in shards]).tolist() == whole.seconds.tolist()


def test_unreadable_trace_keeps_its_record(store: RecordStore, traces: dict[str, list]) -> None:
    instructions, decisions = traces["cpu_matmul"]
    wrong = [instructions, [[4, [1, 2]], *decisions[1:]]]
    readable = [record(MATMUL, traces["cpu_matmul"], (1.0,), at=number) for number in range(11, 40)]
    store.append([MATMUL], readable)
    store.append([MATMUL], [record(MATMUL, wrong, (1.0,), at=90), record(MATMUL, {"a": 1}, (1.0,), at=91)])
    dataset = load_dataset(store, [CPU], keys={MATMUL.key})
    assert len(dataset) == 34
    assert (
        dataset.batch.kinds[-2:, 0].tolist() == [UNKNOWN, UNKNOWN] and not dataset.batch.kinds[-2:, 1:].any()
    )
    assert (dataset.batch.kinds[:3] > UNKNOWN).any(axis=1).all()


def test_dataset_is_refused_when_many_traces_are_unreadable(store: RecordStore) -> None:
    store.append([MATMUL], [record(MATMUL, {"a": 1}, (1.0,), at=90)])
    with pytest.raises(BadInput, match="1 of 4 schedule traces of device cpu cannot be read"):
        load_dataset(store, [CPU], keys={MATMUL.key})


def test_empty_store_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no measure records of cpu"):
        load_dataset(RecordStore(tmp_path), [CPU])
