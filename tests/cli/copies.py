"""Devices that are copies of the learnt project's `host`, and its records, for tests that change them."""

from __future__ import annotations

import json

from command_line import DEVICE, Project

from tcl.records.record import MeasureRecord
from tcl.records.store import RecordStore
from tcl.registry.registry import Registry
from tcl.settings import load_settings


def register_copy(project: Project, device: str, **tags: str) -> None:
    """Register the cost model of `host` for another device, with some tags changed."""
    registry = Registry(load_settings(project.root))
    version = registry.resolve(DEVICE, version=1)
    tags = {**version.tags, "device": device, **tags}
    registry.register(device, registry.fetch(version), tags=tags, metrics={}, params={}, curves={})


def add_device(project: Project, name: str, *, model: bool = True) -> None:
    """Record a copy of `host` under another name, with the same cost model."""
    target = project.ok("device", "show", DEVICE)["device"]["target"]
    project.ok("device", "add", name, "--target", json.dumps(target))
    if model:
        register_copy(project, name)


def records_of(project: Project, program: str) -> tuple[RecordStore, list[MeasureRecord]]:
    """The dataset, and the records of the device `host` for the program with this output shape in its summary."""
    store = RecordStore(project.root / "data")
    (key,) = [k for k, w in store.workloads(DEVICE).items() if str(list(w.summary.spatial)) == program]
    return store, list(store.records(DEVICE, {key}))
