"""Candidates built and features made on a Dask cluster, through Prefect's task runner."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from command_line import DEVICE, Project, save_matmul

from flows.farm import farm
from scale.servers import BIN, free_port, listens, running
from tcl.devices.store import DeviceStore
from tcl.errors import WorkFailed
from tcl.farm import current_farm, spread
from tcl.features.dataset import load_dataset
from tcl.measuring.farm_builders import build_candidate
from tcl.measuring.types import MeasureRequest
from tcl.records.store import RecordStore
from tcl.settings import load_settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def scheduler(folder: Path) -> Iterator[str]:
    """A Dask scheduler with two workers of one process each, which stand for two hosts."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    own = ["--host", "127.0.0.1", "--no-dashboard"]
    command = [BIN / "dask", "scheduler", *own, "--port", str(port)]
    worker = [BIN / "dask", "worker", address, *own, "--nthreads", "1", "--nworkers", "2"]
    log = folder / "dask.log"

    def joined() -> bool:
        return log.read_text().count("Registered to") >= 2

    with running(command, log, lambda: listens(port)), running(worker, log, joined):
        yield address


def test_features_are_the_same_when_made_on_the_farm(learnt: Project, scheduler: str):
    settings = load_settings(learnt.root, {"prefect.dask": scheduler})
    store, devices = RecordStore(settings.data_dir), [DeviceStore(settings.devices_dir).get(DEVICE)]
    here = load_dataset(store, devices)
    with farm(settings):
        makers = set(spread(subprocess.getoutput, ["sleep 0.2; echo $PPID"] * 8))
        there = load_dataset(store, devices)
    assert len(makers) == 2 and str(os.getpid()) not in makers
    assert current_farm() is None
    assert np.array_equal(here.batch.kinds, there.batch.kinds)
    assert np.array_equal(here.batch.values, there.batch.values)
    assert np.array_equal(here.seconds, there.seconds)
    assert (here.keys, here.origin) == (there.keys, there.origin)


def test_measure_builds_on_the_farm_and_times_here(learnt: Project, scheduler: str, api: str):
    model = save_matmul(learnt.root / "farmed.onnx", 72)
    before = servers_of_builders()
    done = learnt.ok(
        "measure", model, "--device", DEVICE, "--budget", "6", "--sampler", "random",
        PREFECT_API_URL=api, TCL_PREFECT_DASK=scheduler,
    )  # fmt: skip
    assert (done["measured"], done["failed"]) == (6, 0)
    assert servers_of_builders() - before  # the farm's are kept for the next candidates, the host's are gone


def test_farm_refuses_to_build_for_another_tvm():
    request = MeasureRequest("key", "[]", {"kind": "llvm"}, "[]", "random")
    with pytest.raises(WorkFailed, match=r"a builder has apache-tvm .*, not 0\.1; install the same"):
        build_candidate(request, None, 1.0, False, "0.1")


def test_farm_says_so_when_no_scheduler_answers(learnt: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("flows.farm._ANSWER_SECONDS", 1.0)
    settings = load_settings(learnt.root, {"prefect.dask": f"tcp://127.0.0.1:{free_port()}"})
    with pytest.raises(WorkFailed, match="does not answer"), farm(settings):
        pass


def servers_of_builders() -> set[int]:
    """Processes of this machine that hold TVM for the builders of a Dask worker."""
    servers = [
        item
        for item in psutil.process_iter(["cmdline"])
        if "tcl.measuring.server" in (item.info["cmdline"] or [])
    ]
    return {
        item.pid for item in servers if any("dask" in " ".join(parent.cmdline()) for parent in item.parents())
    }
