"""The job `import`: logs of other tools into the versioned dataset."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tcl.console import progress
from tcl.devices.store import DeviceStore
from tcl.jobs.dataset import dataset
from tcl.settings import Settings

if TYPE_CHECKING:
    from tcl.importers.importer import ImportReport
    from tcl.versioning.versions import DataVersion


def import_records(
    paths: Sequence[Path], device: str, log_format: str, tolerate: float, settings: Settings
) -> "tuple[ImportReport, DataVersion]":
    """Read logs into a device's records and version the dataset; see `tcl.importers.importer.import_logs`."""
    from tcl.importers.importer import import_logs
    from tcl.versioning.dataset import DatasetVersions

    owner = DeviceStore(settings.devices_dir).get(device)
    versions = DatasetVersions(settings)
    versions.pull()
    with progress("importing", None) as advance:
        seen = 0

        def count(lines: int) -> None:
            nonlocal seen
            advance(lines - seen)
            seen = lines

        report = import_logs(paths, owner, dataset(settings), log_format, tolerate, count)
    return report, versions.version(f"Import records of {device}")
