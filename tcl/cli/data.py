"""`tcl data`: what the dataset holds, and its versions."""

from dataclasses import asdict

import click

from tcl.cli.command import Group, Report, command
from tcl.jobs.tables import Table
from tcl.settings import load_settings


@click.group(cls=Group)
def entry() -> None:
    """Show and fetch the measure records and their versions."""


@command("status")
def status() -> Report:
    """Show per device: records, workloads, failures, data hash, and what is not pushed."""
    from tcl.jobs.dataset import dataset
    from tcl.versioning.dataset import DatasetVersions

    settings = load_settings()
    store, versions = dataset(settings), DatasetVersions(settings)
    version = versions.status()
    devices = [
        {**asdict(store.status(device)), "data_hash": versions.device_hash(device)}
        for device in store.devices()
    ]
    rows = [(d["device"], d["records"], d["workloads"], d["failures"], d["data_hash"][:12]) for d in devices]
    table = Table("Measure records", ("device", "records", "workloads", "failures", "data hash"), rows)
    lines = [f"dataset version: {version.hash or 'none yet'}"]
    if version.dirty and version.fetched:
        lines.append("data/ holds measurements that are in no version; the next tcl measure makes one")
    elif version.dirty:
        lines.append(
            "data/ holds other measurements, which are in no version; tcl data pull says the ways out"
        )
    elif not version.fetched:
        lines.append("data/ does not hold that version; tcl data pull fetches it")
    if version.not_pushed:
        lines.append(f"{version.not_pushed} files are not pushed to the remote; dvc push sends them")
    if version.to_commit:
        lines.append(f"not in git: {', '.join(version.to_commit)}")
    return Report({"devices": devices, "version": asdict(version)}, lines, [table] if rows else [])


@command("pull")
def pull() -> Report:
    """Fetch the version of the records that data.dvc names."""
    from tcl.versioning.dataset import DatasetVersions

    versions = DatasetVersions(load_settings())
    fetched = versions.pull()
    version = versions.data_hash()
    if version is None:
        return Report({"fetched": False, "version": None}, ["there is no data.dvc, so nothing to fetch"])
    return Report(
        {"fetched": fetched, "version": version},
        [f"{'fetched' if fetched else 'data/ holds'} dataset version {version}"],
    )


entry.add_command(status)
entry.add_command(pull)
