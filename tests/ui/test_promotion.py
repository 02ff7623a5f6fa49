"""A person promotes a cost model in MLflow's pages, in a real browser, and the package follows."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from boards import free_port
from browser import PATIENCE, open_page
from command_line import DEVICE, QUICK, TCL, Project, clean_environment, save_matmul
from mlflow.tracking import MlflowClient
from playwright.sync_api import Page, expect

from tcl.registry.pages import run_page
from tcl.registry.registry import Registry
from tcl.registry.versions import COMPARED_WITH
from tcl.settings import load_settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def wait(condition: Callable[[], Any], log: Path) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.3)
    return found


@contextmanager
def running(
    log: Path, root: Path, environment: dict[str, str], *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A command of `tcl` that runs during the block and leaves no process behind."""
    with log.open("w") as output:
        process = subprocess.Popen(
            [TCL, *arguments],
            cwd=root,
            env=clean_environment() | QUICK | environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
            # Who runs the tests in the background ignores the interrupt, and children would too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def register_challenger(root: Path) -> None:
    """The same cost model once more, better on the held-out programs of both."""
    registry = Registry(load_settings(root, environ={}))
    first = registry.resolve(DEVICE, version=1)
    kept = ("target", "data_hash", "git_commit", "tvm_version", "feature_version")
    tags = {key: first.tags[key] for key in kept} | {"parent_version": "1", COMPARED_WITH: "1"}
    metrics = {"top_1": 0.93, "top_5": 0.97, "champion/top_1": 0.9, "champion/top_5": 0.96}
    metrics |= {"top_1/matmul": 0.94, "champion/top_1/matmul": 0.95, "forgetting_old-board": 0.01}
    curves = {"loss": [3.0, 2.0, 1.0]}
    registry.register(DEVICE, registry.fetch(first), tags=tags, metrics=metrics, params={}, curves=curves)


def promote(page: Page, address: str) -> None:
    """What a person does: find the version, read its card, give it the alias."""
    page.goto(address)
    page.goto(f"{address}/#/models")
    page.get_by_role("dialog").get_by_role(
        "button", name="Try it now"
    ).click()  # MLflow presents its registry once
    page.get_by_role("link", name=f"tcl-cost-{DEVICE}").first.click()
    page.get_by_role("link", name="Version 2").first.click()
    card = page.get_by_role("main")
    expect(card.get_by_text("Top-1 0.930, better than champion 1 with 0.900")).to_be_visible()
    expect(card.get_by_role("row", name="all 0.930 0.900 +0.030 0.970 0.960 +0.010")).to_be_visible()
    expect(card.get_by_role("row", name="matmul 0.940 0.950 -0.010")).to_be_visible()
    expect(card.get_by_role("row", name="old-board -0.010")).to_be_visible()
    expect(card.get_by_role("row", name="parent version 1 none")).to_be_visible()
    plot = card.locator("img[src*='plots/top_k.png']")
    expect(plot).to_be_visible()
    assert plot.evaluate("image => image.complete && image.naturalWidth") > 100
    card.get_by_role("button", name="Edit aliases").click()
    editor = page.get_by_role("dialog")
    editor.get_by_role("combobox").fill("champion")
    editor.get_by_role("combobox").press("Enter")
    editor.get_by_role("button", name="Save aliases").click()
    expect(card.get_by_text("@ champion")).to_be_visible()


def look_at_compile(page: Page, root: Path, address: str) -> None:
    """Where the link in a compile's Prefect run leads to."""
    settings = load_settings(root, {"mlflow.tracking_uri": address}, environ={})
    runs = MlflowClient(address).search_runs(["1"], "tags.kind = 'compile' and tags.model = 'net.onnx'")
    page.goto(run_page(settings, runs[-1].info.run_id))
    expect(page.get_by_role("heading", name=f"compile net.onnx for {DEVICE}")).to_be_visible()


def test_package_follows_when_a_person_gives_the_alias_in_mlflows_pages(pristine: Project, tmp_path: Path):
    root = tmp_path / "project"
    shutil.copytree(pristine.root, root, ignore=shutil.ignore_patterns("packages", ".dvcstore"))
    project = Project(root)
    save_matmul(root / "net.onnx", 40)
    project.ok("subscribe", "net.onnx", "--device", DEVICE, "--trials", "0")
    register_challenger(root)
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    environment = {
        "TCL_MLFLOW_TRACKING_URI": address,
        "TCL_PROMOTION_WEBHOOK_PORT": "0",
        "TCL_PROMOTION_POLL_SECONDS": "86400",  # so that only the webhook can tell
        "TCL_PROMOTION_LATENCY_BOUND": "1000",
        "TCL_PROMOTION_LATENCY_ROUNDS": "1",
    }
    package, served, followed = root / "packages" / DEVICE / "net" / "tcl.json", root / "ui.log", root / "log"
    with ExitStack() as stack:
        stack.enter_context(running(served, root, environment, "models", "ui", "--port", str(port)))
        wait(lambda: answers(address), served)
        following = stack.enter_context(running(followed, root, environment, "promotions"))
        wait(lambda: "net.onnx for host: replaced" in followed.read_text(), followed)
        assert json.loads(package.read_text())["cost_model"]["version"] == 1
        with open_page() as page:
            promote(page, address)
            look_at_compile(page, root, address)
        wait(lambda: json.loads(package.read_text())["cost_model"]["version"] == 2, followed)
        told = f"tcl-cost-{DEVICE} version 2 was promoted"
        assert followed.read_text().count(told) == 1
        client = MlflowClient(address, address)
        assert [webhook.name for webhook in client.list_webhooks()] == ["tcl-promotions"]
        following.terminate()  # as a service manager does
        following.wait(PATIENCE)
        assert client.list_webhooks() == []
