"""`tcl bench capacity`: time, memory and bytes by the number of records, and of devices in the registry.

The records are copies of the project's own: each has another time, and its workload another key, so that the store
takes none for known. Every step runs in a process of its own, whose peak of memory is then its own.
"""

import json
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tcl.errors import BadInput, WorkFailed
from tcl.files import atomic_json
from tcl.settings import Settings, load_settings

SIZES = (10_000, 100_000, 1_000_000)
_RECORDS_PER_TASK = 500  # of a device that has been tuned for long
_BATCH = 10_000
_WEIGHTS_BYTES = 400_000  # about those of a cost model
_STEPS = ("import", "count", "featurise", "version")
_REGISTRY_STEPS = ("register", "list")


@dataclass(frozen=True)
class Cost:
    """What one step took.

    Attributes
    ----------
    step
        import, count, featurise or version (of `amount` records), register or list (of `amount` devices).
    amount
        How many.
    seconds, cpu_seconds
        Wall-clock time, and that of the processor, which other work on the machine does not lengthen.
    peak_bytes
        Largest resident memory of its process.
    stored_bytes
        What lies on disk after it: of the dataset with its DVC store, or of the registry.
    """

    step: str
    amount: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    stored_bytes: int


def bench_capacity(settings: Settings, sizes: Sequence[int], devices: int) -> dict[str, Any]:
    """Measure every step for each number of records, and the registry for a number of devices.

    Returns
    -------
    dict
        ``costs``: the `Cost` of each step; ``per_million``: processor seconds and bytes that a further 10^6 records
        take, by step, from the smallest and the largest size.

    Raises
    ------
    BadInput
        When the project has no records to copy.
    WorkFailed
        When a step fails, with its last words.
    """
    from tcl.console import progress
    from tcl.records.store import RecordStore

    if not RecordStore(settings.data_dir).devices():
        raise BadInput(
            f"{settings.data_dir} holds no records to copy; `tcl data pull` fetches the shipped ones"
        )
    folder = settings.state_dir / "capacity"
    folder.mkdir(parents=True, exist_ok=True)
    done = _finished(folder / "costs.json")
    plan = [(f"records-{size}", size, _STEPS) for size in sizes] + [
        (f"devices-{devices}", devices, _REGISTRY_STEPS)
    ]
    with progress("measuring capacity", sum(len(steps) for _, _, steps in plan)) as advance:
        for name, amount, steps in plan:
            if any((step, amount) not in done for step in steps):
                project = _fresh(folder / name)
                for step in steps:  # each needs what the one before it made
                    done[step, amount] = _run(step, settings.root, project, amount)
                    advance(detail=f"{step} {amount}")
                shutil.rmtree(project)
                atomic_json(folder / "costs.json", [asdict(cost) for cost in done.values()])
    costs = [done[step, amount] for _, amount, steps in plan for step in steps]
    (folder / "costs.json").unlink(missing_ok=True)
    return {"costs": [asdict(cost) for cost in costs], "per_million": _slopes(costs, sizes)}


def lines(results: dict[str, Any]) -> list[str]:
    """The results as a Markdown table."""
    head = [
        "| step | amount | seconds | of the processor | peak memory, MB | on disk, MB |",
        "|---|---|---|---|---|---|",
    ]
    rows = [
        f"| {cost.step} | {cost.amount:,} | {cost.seconds:.1f} | {cost.cpu_seconds:.1f} |"
        f" {cost.peak_bytes / 1e6:.0f} | {cost.stored_bytes / 1e6:.1f} |"
        for cost in (Cost(**item) for item in results["costs"])
    ]
    slopes = [
        f"A further million records: {step} {slope['cpu_seconds']:.0f} s of a processor,"
        f" {slope['stored_bytes'] / 1e6:.0f} MB on disk"
        for step, slope in results["per_million"].items()
    ]
    return [*head, *rows, "", *slopes]


def _finished(path: Path) -> dict[tuple[str, int], Cost]:
    """What an interrupted run has measured."""
    if not path.exists():
        return {}
    costs = [Cost(**item) for item in json.loads(path.read_text(encoding="utf-8"))]
    return {(cost.step, cost.amount): cost for cost in costs}


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _run(step: str, source: Path, project: Path, amount: int) -> Cost:
    from tcl.processes import run_module

    done = run_module("tcl.bench.capacity", [step, str(source), str(project), str(amount)])
    if done.returncode:
        words = (done.stderr.strip() or "no message").splitlines()[-1]
        raise WorkFailed(f"the step {step} for {amount} failed: {words}")
    return Cost(step, amount, **json.loads(done.stdout.splitlines()[-1]))


def _slopes(costs: Sequence[Cost], sizes: Sequence[int]) -> dict[str, dict[str, float]]:
    if len(sizes) < 2:
        return {}
    found = {}
    for step in _STEPS:
        few, many = (
            next(c for c in costs if (c.step, c.amount) == (step, size)) for size in (sizes[0], sizes[-1])
        )
        share = (many.amount - few.amount) / 1e6
        found[step] = {
            "cpu_seconds": (many.cpu_seconds - few.cpu_seconds) / share,
            "stored_bytes": (many.stored_bytes - few.stored_bytes) / share,
        }
    return found


def _import(source: Path, settings: Settings, amount: int) -> None:
    from tcl.records.store import RecordStore

    origin, store = RecordStore(source / "data"), RecordStore(settings.data_dir)
    device = _device(source)
    workloads, records = origin.workloads(device), list(origin.records(device))
    copies_per_task = max(1, _RECORDS_PER_TASK * len(workloads) // len(records))

    def copies() -> Iterator[tuple[Any, Any]]:
        for number in range(amount):
            copy, index = divmod(number, len(records))
            record = records[index]
            key = f"{copy // copies_per_task:x}-{record.workload}"
            yield (
                replace(workloads[record.workload], key=key),
                replace(record, workload=key, timestamp=record.timestamp + copy),
            )

    made = copies()
    with store.writer(device) as writer:
        for start in range(0, amount, _BATCH):
            batch = [next(made) for _ in range(min(_BATCH, amount - start))]
            writer.add([workload for workload, _ in batch], [record for _, record in batch])


def _count(source: Path, settings: Settings, amount: int) -> None:
    from tcl.records.store import RecordStore

    assert RecordStore(settings.data_dir).status(_device(source)).records == amount


def _featurise(source: Path, settings: Settings, amount: int) -> None:
    from tcl.devices.store import DeviceStore
    from tcl.features.dataset import stream_dataset
    from tcl.records.store import RecordStore

    device = DeviceStore(source / "devices").get(_device(source))
    assert sum(len(shard) for shard in stream_dataset(RecordStore(settings.data_dir), [device])) == amount


def _version(source: Path, settings: Settings, amount: int) -> None:
    from tcl.versioning.dataset import DatasetVersions

    assert DatasetVersions(settings).version(f"{amount} records").pushed


def _register(source: Path, settings: Settings, amount: int) -> None:
    import numpy as np

    from tcl.features.batch import FEATURE_VERSION
    from tcl.registry.registry import Registry

    registry, model = Registry(settings), settings.root / "model"
    model.mkdir()
    (model / "model.json").write_text("{}")
    for number in range(amount):
        (model / "weights.safetensors").write_bytes(np.random.default_rng(number).bytes(_WEIGHTS_BYTES))
        registry.register(
            f"device-{number}",
            model,
            tags={
                "data_hash": str(number),
                "feature_version": str(FEATURE_VERSION),
                "tvm_version": "-",
                "target": "{}",
            },
            metrics={"top_1": 0.9, "top_5": 0.97},
            params={"seed": 0},
            curves={"loss": [3.0, 2.0, 1.0]},
        )


def _list(source: Path, settings: Settings, amount: int) -> None:
    from tcl.registry.registry import Registry

    assert len({version.owner for version in Registry(settings).list()}) == amount


def _device(source: Path) -> str:
    from tcl.records.store import RecordStore

    return RecordStore(source / "data").devices()[0]


def _bytes_below(folder: Path) -> int:
    """Bytes of the files below a folder; what is linked to from several places counts once."""
    files = {(status.st_dev, status.st_ino): status.st_size for status in _statuses(folder)}
    return sum(files.values())


def _statuses(folder: Path) -> Iterator[Any]:
    return (path.stat() for path in folder.rglob("*") if path.is_file())


def _main(step: str, source: str, project: str, amount: str) -> None:
    work: dict[str, Callable[[Path, Settings, int], None]] = {
        "import": _import,
        "count": _count,
        "featurise": _featurise,
        "version": _version,
        "register": _register,
        "list": _list,
    }
    settings = load_settings(project, environ={})
    start = time.perf_counter()
    work[step](Path(source), settings, int(amount))
    seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_SELF)
    cost = {
        "seconds": seconds,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_bytes": used.ru_maxrss * 1024,
        "stored_bytes": _bytes_below(settings.root),
    }
    print(json.dumps(cost))


if __name__ == "__main__":
    _main(*sys.argv[1:])
