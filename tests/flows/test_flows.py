"""The jobs as Prefect flows: the same results, seen in Prefect."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import open_page
from command_line import DEVICE, Project, clean_environment, save_matmul
from playwright.sync_api import expect

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
        "PREFECT_UI_API_URL": f"http://127.0.0.1:{port}/api",
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
    assert runs == dict.fromkeys(
        (f"measure {DEVICE}", f"distill {DEVICE}", f"compile flow.onnx for {DEVICE}"), "COMPLETED"
    )


def test_run_shows_its_tables_and_the_link_to_mlflow_in_prefects_pages(learnt: Project, api: str):
    """After the commands of the test before."""
    with open_page() as page:
        page.goto(api.removesuffix("api") + "runs")
        page.get_by_role("link", name=f"compile flow.onnx for {DEVICE}").first.click()
        page.get_by_text("Artifacts", exact=True).last.click()
        page.get_by_text(f"tensor-programs-flow-for-{DEVICE}", exact=True).last.click()
        expect(page.locator("td", has_text="fused_matmul_relu")).to_be_visible()
        expect(page.get_by_role("columnheader", name="measured")).to_be_visible()
        page.get_by_role("link", name=f"compile flow.onnx for {DEVICE}").first.click()
        page.get_by_text("Artifacts", exact=True).last.click()
        page.get_by_text(f"run-flow-for-{DEVICE}", exact=True).last.click()
        link = page.get_by_role("link", name=f"the package of flow for {DEVICE}, as MLflow keeps it")
        run = re.fullmatch(r"http://127\.0\.0\.1:5000/#/runs/(\w+)", link.get_attribute("href") or "")
        page.goto(api.removesuffix("api") + "runs")
        page.get_by_role("link", name=f"distill {DEVICE}").first.click()
        page.get_by_text("Artifacts", exact=True).last.click()
        page.get_by_text(f"model-card-{DEVICE}", exact=True).last.click()
        expect(page.get_by_role("heading", name="Where it comes from")).to_be_visible()
    assert run is not None
    kept = learnt.root / "mlruns" / run[1] / "artifacts" / "package"
    assert (kept / "tcl.json").read_bytes() == (learnt.root / "flow" / "tcl.json").read_bytes()


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
