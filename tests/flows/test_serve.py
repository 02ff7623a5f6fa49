"""`tcl serve` as a person runs it: a real server, events, and records that came while nobody served."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import psutil
import pytest
from boards import free_port
from command_line import DEVICE, QUICK, TCL, Project, clean_environment, save_matmul

from tcl.cli.execute import api_address
from tcl.devices.device import Rpc
from tcl.devices.store import DeviceStore
from tcl.records.metaschedule import export_database
from tcl.records.record import MeasureRecord, Workload
from tcl.records.store import RecordStore
from tcl.registry.registry import Registry
from tcl.settings import load_settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

ALONE = {"TCL_SERVE_RECONCILE_SECONDS": "7200", "TCL_PROMOTION_POLL_SECONDS": "7200"}
"""No schedule comes in between."""
Records = tuple[list[Workload], list[MeasureRecord]]


class Served:
    """A project for which `tcl serve` runs."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.settings = load_settings(project.root)
        self.log = project.root / "serve.log"
        self.port = free_port()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [TCL, "serve", "--port", str(self.port)],
                cwd=project.root,
                env=clean_environment() | QUICK | ALONE,
                stdout=log,
                stderr=log,
            )
        self.wait(lambda: "\nserving " in self.log.read_text())

    def wait(self, condition: Callable[[], Any], seconds: float = 900.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()
            time.sleep(0.3)

    def post(self, path: str, body: Any) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/{path}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        while True:
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:
                    return json.loads(answer.read() or "null")
            except urllib.error.HTTPError as problem:
                # Prefect's way to say that its SQLite is busy; its own clients try again too.
                if problem.code != HTTPStatus.SERVICE_UNAVAILABLE or self.process.poll() is not None:
                    raise
            time.sleep(1)

    def runs(self, flow: str) -> list[dict[str, Any]]:
        """Runs of a flow that are due."""
        found = self.post("flow_runs/filter", {"flows": {"name": {"any_": [flow]}}})
        return [run for run in found if run["auto_scheduled"] is False]

    def versions(self, device: str) -> list[dict[str, str]]:
        return [version.tags for version in Registry(self.settings).versions(device)]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(300)


@pytest.fixture(scope="module")
def records(pristine: Project) -> Records:
    """What was measured of a few programs."""
    store = RecordStore(pristine.root / "data")
    workloads = list(store.workloads(DEVICE).values())[:4]
    return workloads, [r for w in workloads for r in list(store.records(DEVICE, {w.key}))[:8]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, pristine: Project, records: Records) -> Iterator[Served]:
    """A served project; records of its device came before anyone served it."""
    project = Project(tmp_path_factory.mktemp("served"))
    device = DeviceStore(pristine.root / "devices").get(DEVICE)
    for name in (DEVICE, "second", "third"):
        DeviceStore(project.root / "devices").add(replace(device, name=name))
    RecordStore(project.root / "data").append(*records)
    running = Served(project)
    yield running
    running.stop()


LEASE = 60.0  # seconds, the shortest that Prefect allows
HOLD = (
    "import sys, time\n"
    "from flows.limits import only_one\n"
    "with only_one(sys.argv[1]):\n"
    "    print('held', flush=True)\n"
    "    time.sleep(3600)\n"
)


@pytest.fixture(scope="module", autouse=True)
def since(served: Served) -> Iterator[float]:
    """When two processes held a limit each: `lost`, which was killed then, and `kept`."""
    environment = clean_environment() | {"PREFECT_API_URL": f"http://127.0.0.1:{served.port}/api"}
    environment["PREFECT_HOME"] = str(served.settings.prefect_home)
    holders = [
        subprocess.Popen([sys.executable, "-c", HOLD, name], env=environment, stdout=subprocess.PIPE)
        for name in ("lost", "kept")
    ]
    for holder in holders:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    holders[0].kill()
    yield time.monotonic()
    for holder in holders:
        holder.kill()
        holder.wait()


def taken(served: Served) -> dict[str, int]:
    """How many hold each limit."""
    found = served.post("v2/concurrency_limits/filter", {})
    return {limit["name"]: limit["active_slots"] for limit in found}


def write_logs(records: Records, device: str, project: Project, folder: Path) -> Path:
    """Logs of a device, as a colleague would hand them over."""
    store = RecordStore(folder / "store")
    store.append(records[0], [replace(record, device=device) for record in records[1]])
    export_database(store, DeviceStore(project.root / "devices").get(device), folder / "logs")
    return folder / "logs"


def test_records_are_learnt_at_the_start_when_they_came_while_nobody_served(served: Served) -> None:
    served.wait(lambda: served.versions(DEVICE))
    served.wait(lambda: [run["state_type"] for run in served.runs("reconcile")] == ["COMPLETED"])
    assert len(served.versions(DEVICE)) == 1
    assert {f"tcl-device-{DEVICE}", "tcl-device-second", "tcl-knowledge-base"} <= taken(served).keys()
    deployed = {deployment["name"] for deployment in served.post("deployments/filter", {})}
    assert {
        "measure",
        "continual-distillation",
        "compile",
        "reconcile",
        "promotions",
        "promotion",
    } <= deployed


def test_records_are_learnt_once_when_events_come_twice_and_while_another_device_is_learnt(
    served: Served, records: Records, tmp_path: Path
) -> None:
    for device in ("second", "third"):
        logs = write_logs(records, device, served.project, tmp_path / device)
        assert served.project.ok("import", logs, "--device", device)["new"] == len(records[1])
    event = {
        "event": "tcl.records.new",
        "occurred": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "resource": {"prefect.resource.id": "tcl.device.second"},
        "payload": {"device": "second", "data_hash": "told again"},
    }
    served.post("events", [event | {"id": f"{'0' * 8}-0000-4000-8000-{'0' * 12}"}])
    served.wait(lambda: len(served.runs("continual-distillation")) == 3)
    served.wait(lambda: {run["state_type"] for run in served.runs("continual-distillation")} == {"COMPLETED"})
    assert len(served.versions("second")) == len(served.versions("third")) == 1
    hashes = {run["parameters"]["data_hash"] for run in served.runs("continual-distillation")}
    assert {served.versions(device)[0]["data_hash"] for device in ("second", "third")} < hashes


def test_measurements_on_one_device_wait_for_each_other_when_two_ask_at_once(served: Served) -> None:
    model = save_matmul(served.project.root / "both.onnx", 56)
    arguments = ("measure", model, "--device", DEVICE, "--budget", "3")
    with ThreadPoolExecutor(2) as threads:
        reports = list(threads.map(lambda _: served.project.ok(*arguments), range(2)))
    assert sorted(report["measured"] for report in reports) == [0, 3]
    served.wait(lambda: len(served.versions(DEVICE)) == 2)


def test_limit_is_free_when_its_holder_was_killed_and_stays_taken_while_one_lives(
    served: Served, since: float
) -> None:
    served.wait(lambda: taken(served)["lost"] == 0)
    served.wait(lambda: time.monotonic() - since > LEASE + 5)
    assert taken(served)["kept"] == 1


def test_serve_shows_that_a_run_waits_for_its_device_and_leaves_no_process_when_it_is_stopped(
    served: Served,
) -> None:
    devices = DeviceStore(served.project.root / "devices")
    devices.add(replace(devices.get(DEVICE), name="away", rpc=Rpc("127.0.0.1", free_port(), "away")))
    save_matmul(served.project.root / "small.onnx", 8)
    (deployment,) = (d for d in served.post("deployments/filter", {}) if d["name"] == "measure")
    arguments = {"models": ["small.onnx"], "device": "away", "budget": 2}
    path = f"deployments/{deployment['id']}/create_flow_run"
    run = served.post(path, {"parameters": {"arguments": arguments}})["id"]

    def state() -> tuple[str, str]:
        found = next(r for r in served.runs("measure") if r["id"] == run)["state"]
        assert found["type"] in ("SCHEDULED", "PENDING", "RUNNING"), found["message"]
        return found["name"], found["message"] or ""

    served.wait(lambda: state()[0] == "Waiting for device")
    assert state()[1].startswith("waiting for device away: no RPC session through the tracker at 127.0.0.1:")
    started = psutil.Process(served.process.pid).children(recursive=True)
    assert any("tcl.measuring.server" in " ".join(process.cmdline()) for process in started)
    assert served.stop() == 0, served.log.read_text()
    assert psutil.wait_procs(started, timeout=120)[1] == []
    assert api_address(served.settings) is None
