"""The job `reconcile`: each device's records are learnt once, however they came.

The hashes of the devices' records are compared with the tags of the registered cost models. So nothing is remembered
between two runs, and it makes no difference whether an event told of new records, a schedule looked for them, or both.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from tcl.devices.store import DeviceStore
from tcl.errors import WorkFailed, in_one_line
from tcl.jobs import distill
from tcl.jobs.dataset import FEWEST_PROGRAMS, dataset
from tcl.jobs.distill import DistillArguments, DistillReport, find_learnt
from tcl.jobs.tables import Table
from tcl.settings import Settings

LEARNT, LEARNT_NOW, TOO_FEW, UNKNOWN, FAILED = (
    "learnt",
    "learnt now",
    "too few programs",
    "unknown device",
    "failed",
)


@dataclass(frozen=True)
class ReconcileArguments:
    """What `tcl reconcile` is asked to do.

    Attributes
    ----------
    device
        Look at this device only; None: at all that have records.
    """

    device: str | None = None


@dataclass(frozen=True)
class DeviceState:
    """What became of one device's records.

    Attributes
    ----------
    state
        `LEARNT`, `LEARNT_NOW`, `TOO_FEW`, `UNKNOWN` (no device file) or `FAILED`.
    version
        The version of the device's cost model that was made of these records.
    detail
        What a person should do about it.
    """

    device: str
    data_hash: str
    state: str
    version: int | None = None
    detail: str = ""


@dataclass(frozen=True)
class ReconcileReport:
    """The result of the job.

    Attributes
    ----------
    fetched
        Whether `data.dvc` was ahead of `data/`, which was then brought up to it.
    devices
        One entry for each device with records.
    """

    fetched: bool
    devices: list[DeviceState]

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return asdict(self)

    def table(self) -> Table:
        """One row for each device."""
        rows = [(d.device, d.data_hash[:12], d.state, d.version, d.detail) for d in self.devices]
        return Table("Records and cost models", ("device", "data hash", "state", "version", "detail"), rows)

    def lines(self) -> list[str]:
        """What a person should know besides the table."""
        return ["fetched the records that data.dvc names"] if self.fetched else []


def run(
    arguments: ReconcileArguments,
    settings: Settings,
    learn: Callable[[DistillArguments, Settings], DistillReport] = distill.run,
) -> ReconcileReport:
    """Learn what is not learnt; a device that fails does not keep the others from it.

    Parameters
    ----------
    learn
        How one device is distilled: as a job in this process, or as a flow.

    Raises
    ------
    WorkFailed
        At the end, when a device failed.
    """
    from tcl.versioning.dataset import DatasetVersions

    fetched = DatasetVersions(settings).pull()
    report = ReconcileReport(
        fetched, [_settle(name, settings, learn) for name in _devices(arguments, settings)]
    )
    failed = [f"{device.device}: {device.detail}" for device in report.devices if device.state == FAILED]
    if failed:
        raise WorkFailed(f"not learnt: {'; '.join(failed)}")
    return report


def _devices(arguments: ReconcileArguments, settings: Settings) -> list[str]:
    """Those with enough programs first, since what they teach the knowledge base is the others' start."""
    if arguments.device is not None:
        return [DeviceStore(settings.devices_dir).get(arguments.device).name]

    def comes_last(name: str) -> bool:
        try:
            return _has_few_programs(name, settings)
        except Exception:  # is told when the device's turn comes
            return True

    return sorted(dataset(settings).devices(), key=comes_last)


def _settle(
    name: str, settings: Settings, learn: Callable[[DistillArguments, Settings], DistillReport]
) -> DeviceState:
    from tcl.versioning.dataset import DatasetVersions

    state = DeviceState(name, "", LEARNT)
    try:
        state = replace(state, data_hash=DatasetVersions(settings).device_hash(name))
        if not DeviceStore(settings.devices_dir).has(name):
            return replace(
                state,
                state=UNKNOWN,
                detail=f"there is no devices/{name}.json; get it, or `tcl device add {name}`",
            )
        known = find_learnt(name, state.data_hash, settings)
        if known is not None:
            return replace(state, version=known.version)
        if _has_few_programs(name, settings) and not _has_knowledge_base(settings):
            detail = f"measure {FEWEST_PROGRAMS} programs, or learn another device first"
            return replace(state, state=TOO_FEW, detail=detail)
        model = learn(DistillArguments(name), settings).model
    except Exception as error:  # whatever it is, the other devices go on
        return replace(state, state=FAILED, detail=in_one_line(error))
    return replace(state, state=LEARNT_NOW, data_hash=model.tags["data_hash"], version=model.version)


def _has_few_programs(name: str, settings: Settings) -> bool:
    return len(dataset(settings).workloads(name)) < FEWEST_PROGRAMS


def _has_knowledge_base(settings: Settings) -> bool:
    from tcl.registry.registry import Registry
    from tcl.registry.versions import KNOWLEDGE_BASE

    return bool(Registry(settings).versions(KNOWLEDGE_BASE))
