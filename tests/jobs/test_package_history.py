"""What was decided about packages, on disk."""

import json

import pytest

from tcl.jobs.package_history import FAILED, SLOWER, Decision, PackageHistory
from tcl.jobs.subscriptions import Subscription
from tcl.settings import Settings

SUBSCRIPTION = Subscription("net.onnx", "dev", "packages/net")


def test_decisions_are_kept(settings: Settings) -> None:
    history = PackageHistory(SUBSCRIPTION, settings)
    history.decide("v1", Decision(SLOWER, "1.2x"))
    history.decide("v2", Decision(FAILED, "no memory", 2))
    again = PackageHistory(SUBSCRIPTION, settings)
    assert again.decision("v1") == Decision(SLOWER, "1.2x")
    assert again.decision("v2") == Decision(FAILED, "no memory", 2)
    assert again.decision("v3") is None


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"v1": 5}',
        '{"v1": {}}',
        '{"v1": {"state": "accepted", "since": 1}}',
        '{"v1": {"state": "unknown"}}',
        '{"v1": {"state": "failed", "attempts": "three"}}',
        "[" * 100_000,
    ],
    ids=lambda content: content[:40],
)
def test_damaged_decisions_are_none_and_are_written_anew(
    settings: Settings, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    history = PackageHistory(SUBSCRIPTION, settings)
    history.folder.mkdir(parents=True)
    (history.folder / "decisions.json").write_text(content)
    assert history.decision("v1") is None
    assert "decisions.json cannot be read" in capsys.readouterr().err
    history.decide("v1", Decision(SLOWER))
    assert json.loads((history.folder / "decisions.json").read_text()).keys() == {"v1"}
