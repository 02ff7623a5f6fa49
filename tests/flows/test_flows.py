"""The jobs as Prefect flows: the same results, seen in Prefect."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import DEVICE, Project, clean_environment, save_matmul

PREFECT = Path(sys.executable).parent / "prefect"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a running Prefect API."""
    home = tmp_path_factory.mktemp("prefect")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = clean_environment() | {
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }
    with (home / "log").open("w") as log:
        server = subprocess.Popen(
            [PREFECT, "server", "start", "--port", str(port)], env=environment, stdout=log, stderr=log
        )
    address = f"http://127.0.0.1:{port}/api"
    try:
        for _ in range(600):
            assert server.poll() is None, (home / "log").read_text()
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.5)
        yield address
    finally:
        server.terminate()
        server.wait()


def ask(api: str, what: str) -> list[dict]:
    request = urllib.request.Request(
        f"{api}/{what}/filter", data=b"{}", headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_commands_run_as_flows_when_an_api_answers(learnt: Project, api: str):
    save_matmul(learnt.root / "flow.onnx", 56)
    measured = learnt.run(
        "measure", "flow.onnx", "--device", DEVICE, "--budget", "2", "--json", PREFECT_API_URL=api
    )
    assert measured.code == 0, measured.err
    assert measured.json["measured"] == 2
    assert f"as a Prefect flow at {api}" in measured.err
    learnt.ok("distill", "--device", DEVICE, PREFECT_API_URL=api)
    compiled = learnt.ok(
        "compile", "flow.onnx", "--device", DEVICE, "--trials", "0", "-o", "flow", PREFECT_API_URL=api
    )
    assert compiled["verification"]["max_rel"] <= 1e-4
    runs = {run["name"]: run["state"]["type"] for run in ask(api, "flow_runs")}
    assert len(runs) >= 3 and set(runs.values()) == {"COMPLETED"}
    keys = {artifact["key"] for artifact in ask(api, "artifacts")}
    assert {f"measure-{DEVICE}", f"distill-{DEVICE}"} <= keys


def test_error_is_one_sentence_when_a_flow_meets_bad_input(learnt: Project, api: str):
    message = learnt.fail("measure", "missing.onnx", "--device", DEVICE, code=2, PREFECT_API_URL=api)
    assert "missing.onnx" in message


def test_command_says_that_it_runs_in_process_when_the_api_does_not_answer(learnt: Project):
    outcome = learnt.run(
        "measure", "missing.onnx", "--device", DEVICE, PREFECT_API_URL="http://127.0.0.1:9/api"
    )
    assert outcome.code == 2
    assert "running in this process (the Prefect API http://127.0.0.1:9/api does not answer)" in outcome.err


def test_results_in_the_prefect_home_are_json(learnt: Project, api: str):
    save_matmul(learnt.root / "stored.onnx", 8)
    learnt.run("measure", "stored.onnx", "--device", "unknown", PREFECT_API_URL=api)
    for path in (learnt.root / ".tcl" / "prefect" / "storage").rglob("*"):
        if path.is_file():
            json.loads(path.read_text())
