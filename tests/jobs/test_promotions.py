"""Packages follow the champions of a project whose device was really measured and learnt."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import DEVICE, Project, save_matmul

from tcl.compiler.packaging.manifest import Manifest
from tcl.errors import DeviceLost, WorkFailed
from tcl.jobs import compile as compiling
from tcl.jobs import promotions
from tcl.jobs.compile import CompileArguments, CompileReport
from tcl.jobs.promotions import Outcome, PromotionsArguments, PromotionsReport, run
from tcl.jobs.subscriptions import Subscription, subscribe, subscriptions, unsubscribe
from tcl.registry.registry import Registry
from tcl.registry.versions import ModelVersion
from tcl.settings import Settings, load_settings

pytestmark = pytest.mark.slow


@pytest.fixture
def settings(pristine: Project, tmp_path: Path) -> Settings:
    """A copy of the learnt project, in which every timing counts as equal."""
    root = tmp_path / "project"
    shutil.copytree(pristine.root, root, ignore=shutil.ignore_patterns("packages", ".dvcstore"))
    return load_settings(root, {"promotion.latency_bound": 1000.0, "promotion.latency_rounds": 1}, environ={})


@pytest.fixture
def subscription(settings: Settings) -> Iterator[Subscription]:
    model = save_matmul(settings.root / "subscribed.onnx", 40)
    return subscribe(settings, model, DEVICE, trials=0)


class Compiler:
    """The real compile, counted."""

    def __init__(self) -> None:
        self.versions: list[int | None] = []

    def __call__(self, arguments: CompileArguments, settings: Settings) -> CompileReport:
        self.versions.append(arguments.version)
        return compiling.run(arguments, settings)


def new_version(settings: Settings, **metrics: float) -> ModelVersion:
    """The same cost model once more, as a version with other metrics."""
    registry = Registry(settings)
    first = registry.resolve(DEVICE, version=1)
    tags = {
        key: first.tags[key]
        for key in ("target", "data_hash", "git_commit", "tvm_version", "feature_version")
    }
    tags |= {"parent_version": "1"}
    given = {"top_1": first.metrics["top_1"], "top_5": first.metrics["top_5"]} | metrics
    return registry.register(DEVICE, registry.fetch(first), tags=tags, metrics=given, params={}, curves={})


def once(settings: Settings, compiler: Compiler) -> Outcome:
    (outcome,) = run(PromotionsArguments(), settings, compiler).outcomes
    return outcome


def test_package_follows_promotion_and_rollback_and_each_is_compiled_once(
    settings: Settings, subscription: Subscription
):
    compiler, output = Compiler(), settings.root / subscription.output
    first = once(settings, compiler)
    assert (first.action, first.version) == ("replaced", 1)
    assert once(settings, compiler).action == "in use"
    new_version(settings)
    Registry(settings).promote(DEVICE, 2)
    moved = once(settings, compiler)
    assert (moved.action, moved.version) == ("replaced", 2)
    assert "x the latency of the old one" in moved.reason
    assert Manifest.read(output).cost_model == {"name": f"tcl-cost-{DEVICE}", "version": 2}
    assert Manifest.read(output).verification["max_rel"] <= 1e-4
    Registry(settings).promote(DEVICE, 1)
    assert once(settings, compiler).action == "restored"
    assert Manifest.read(output).cost_model["version"] == 1
    assert compiler.versions == [1, 2]
    (output / "model.so").write_bytes(b"damaged")
    assert once(settings, compiler).action == "restored"
    save_matmul(settings.root / "subscribed.onnx", 24)  # another model under the same name
    assert once(settings, compiler).action == "replaced"
    assert Manifest.read(output).outputs[0].shape == (1, 24)
    assert compiler.versions == [1, 2, 1]


def test_old_package_stays_when_the_new_one_is_slower_or_the_gate_refuses(
    settings: Settings, subscription: Subscription, monkeypatch: pytest.MonkeyPatch
):
    compiler, output = Compiler(), settings.root / subscription.output
    once(settings, compiler)
    before = (output / "tcl.json").read_bytes()
    new_version(settings)
    Registry(settings).promote(DEVICE, 2)
    strict = replace(settings, promotion=replace(settings.promotion, latency_bound=0.05))
    monkeypatch.setattr(promotions, "_ratios", lambda *_: [0.9, 1.2, 1.3])
    slower = once(strict, compiler)
    assert (slower.action, slower.version) == ("kept", 2)
    assert "1.20x the latency of the old one (0.90 to 1.30 over 3 pairs)" in slower.reason
    assert once(strict, compiler) == slower
    assert compiler.versions == [1, 2]
    new_version(settings, top_1=-1.0)
    Registry(settings).promote(DEVICE, 3)
    refused = once(settings, compiler)
    assert refused.action == "refused" and "top_1 -1.000 is worse than" in refused.reason
    assert (output / "tcl.json").read_bytes() == before
    assert compiler.versions == [1, 2]


def test_two_who_look_at_once_compile_once(settings: Settings, subscription: Subscription):
    compiler = Compiler()
    outcomes: list[str] = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(once(settings, compiler).action)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["in use", "replaced"]
    assert compiler.versions == [1]


def test_failure_is_tried_thrice_and_does_not_hold_up_others(settings: Settings, subscription: Subscription):
    attempts: list[str] = []

    def fails(arguments: CompileArguments, settings: Settings) -> CompileReport:
        attempts.append(arguments.model)
        raise WorkFailed("the verification failed")

    for _ in range(5):
        report = run(PromotionsArguments(), settings, fails)
        assert report.outcomes[0].action == "failed"
    assert len(attempts) == 3
    with pytest.raises(WorkFailed, match="the verification failed"):
        report.require()
    broken = save_matmul(settings.root / "broken.onnx", 24)
    unsubscribe(settings, settings.root / subscription.model, DEVICE)
    subscribe(settings, broken, DEVICE)
    broken.write_bytes(b"no model")
    subscribe(settings, settings.root / subscription.model, DEVICE)  # with other trials: decided anew
    actions = [outcome.action for outcome in run(PromotionsArguments(DEVICE), settings, fails).outcomes]
    assert actions == ["failed", "failed"]
    assert len(attempts) == 4


def test_unexpected_failure_of_one_subscription_does_not_hold_up_others(
    settings: Settings, subscription: Subscription, capsys: pytest.CaptureFixture[str]
):
    other = save_matmul(settings.root / "another.onnx", 24)
    subscribe(settings, other, DEVICE)

    def breaks(arguments: CompileArguments, settings: Settings) -> CompileReport:
        raise ZeroDivisionError("a bug")

    outcomes = run(PromotionsArguments(), settings, breaks).outcomes
    assert [(o.action, o.reason) for o in outcomes] == [("failed", "unexpected ZeroDivisionError: a bug")] * 2
    assert "Traceback" in capsys.readouterr().err


def test_pages_leave_out_a_version_that_was_deleted_meanwhile(settings: Settings, subscription: Subscription):
    gone = Outcome(DEVICE, "a.onnx", "a", 7, "in use")
    never = Outcome("nobody", "a.onnx", "a", 1, "in use")
    here = Outcome(DEVICE, "b.onnx", "b", 1, "in use")
    assert list(promotions.pages(PromotionsReport((gone, never, here)), settings)) == [
        f"tcl-cost-{DEVICE} version 1"
    ]


def test_device_that_is_away_is_waited_for(settings: Settings, subscription: Subscription):
    def away(arguments: CompileArguments, settings: Settings) -> CompileReport:
        raise DeviceLost("it does not answer")

    for _ in range(4):
        assert [o.action for o in run(PromotionsArguments(), settings, away).outcomes] == ["waiting"]


def test_compile_refuses_a_worse_champion_and_force_is_written_into_the_package(
    settings: Settings, subscription: Subscription
):
    new_version(settings, top_1=-1.0)
    project = Project(settings.root)
    promoted = project.run("models", "promote", DEVICE, "2")
    assert "compiling will refuse it without --force: top_1 -1.000" in promoted.out
    arguments = ("compile", "subscribed.onnx", "--device", DEVICE, "--trials", "0", "-o", "forced")
    assert "does not pass the gate" in project.fail(*arguments, code=2)
    assert not (settings.root / "forced").exists()
    report = project.ok(*arguments, "--force")
    manifest = json.loads((settings.root / "forced" / "tcl.json").read_text())
    assert manifest["forced"] == report["forced"] and "top_1 -1.000 is worse" in manifest["forced"][0]


def test_command_line_subscribes_lists_and_removes(settings: Settings):
    project = Project(settings.root)
    save_matmul(settings.root / "net.onnx", 24)
    project.ok("subscribe", "net.onnx", "--device", DEVICE, "--trials", "0")
    assert project.ok("subscribe", "list")["subscriptions"][0]["output"] == f"packages/{DEVICE}/net"
    first = project.ok("promotions", "--once")["subscriptions"]
    assert [(row["model"], row["action"]) for row in first] == [("net.onnx", "replaced")]
    project.ok("subscribe", "remove", "net.onnx", "--device", DEVICE)
    assert subscriptions(settings) == []
