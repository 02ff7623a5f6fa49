"""What a champion must be before anybody compiles with it."""

from importlib.metadata import version as installed_version
from pathlib import Path

import pytest

from tcl.errors import BadInput
from tcl.features.batch import FEATURE_VERSION
from tcl.registry.gate import champion, examine
from tcl.registry.registry import Registry
from tcl.registry.versions import CHAMPION_SINCE, COMPARED_WITH, THEIRS, ModelVersion
from tcl.settings import load_settings

BOUND = 0.02
TAGS = {
    "device": "dev",
    "target": '{"kind": "llvm"}',
    "data_hash": "abc.dir",
    "git_commit": "none",
    "parent_version": "none",
    "tvm_version": installed_version("apache-tvm"),
    "feature_version": str(FEATURE_VERSION),
    "sha256": "0123",
}


def version(number: int, top_1: float = 0.9, *, since: str = "", tags: dict | None = None) -> ModelVersion:
    return ModelVersion(
        "tcl-cost-dev",
        number,
        "dev",
        (),
        {**TAGS, **({CHAMPION_SINCE: since} if since else {}), **(tags or {})},
        {"top_1": top_1, "top_5": 0.97},
        "run",
        0.0,
    )


def test_examine_passes_when_a_version_is_complete_and_not_worse():
    first, new = version(1, 0.9, since="2026-01-01"), version(2, 0.881)
    verdict = examine(new, [first, new], BOUND)
    assert (verdict.reasons, verdict.previous) == ((), first)


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ({"data_hash": ""}, "it lacks the tag data_hash"),
        ({"sha256": "", "target": ""}, "it lacks the tags target, sha256"),
        (
            {"feature_version": "999"},
            f"features of version 999, but this installation makes version {FEATURE_VERSION}",
        ),
        ({"tvm_version": "0.19.0"}, "schedules of TVM 0.19.0, but TVM"),
    ],
)
def test_examine_refuses_when_a_version_does_not_fit(tags, reason):
    only = version(1, tags=tags)
    (found,) = examine(only, [only], BOUND).reasons
    assert reason in found


def test_examine_refuses_when_metrics_are_worse_by_more_than_the_bound():
    first, new = version(1, 0.9, since="2026-01-01"), version(2, 0.87)
    assert examine(new, [first, new], BOUND).reasons == (
        "top_1 0.870 is worse than 0.900 of champion 1 by more than 0.02",
    )
    assert examine(new, [first, new], 0.05).reasons == ()


def test_examine_compares_with_the_last_champion_not_with_the_best():
    best, last, new = (
        version(1, 0.95, since="2026-01-01"),
        version(2, 0.9, since="2026-02-01"),
        version(3, 0.89),
    )
    assert examine(new, [best, last, new], BOUND).reasons == ()


def test_examine_goes_by_the_same_held_out_programs_when_both_were_judged_on_them():
    first = version(1, 0.99, since="2026-01-01")  # on easier programs
    new = version(2, 0.90, tags={COMPARED_WITH: "1"})
    assert examine(new, [first, new], BOUND).reasons
    new.metrics[f"{THEIRS}top_1"] = 0.91
    assert examine(new, [first, new], BOUND).reasons == ()
    other = version(2, 0.90, tags={COMPARED_WITH: "7"})
    other.metrics[f"{THEIRS}top_1"] = 0.91
    assert examine(other, [first, other], BOUND).reasons


def test_examine_refuses_when_a_version_was_never_evaluated_but_the_champion_was():
    first, new = version(1, since="2026-01-01"), version(2, float("nan"))
    assert "never evaluated (top_1 is missing)" in examine(new, [first, new], BOUND).reasons[0]
    unknown = version(1, float("nan"), since="2026-01-01")
    assert examine(version(2, 0.1), [unknown], BOUND).reasons == ()


def test_examine_lets_an_earlier_champion_come_back_when_it_is_worse():
    first, second = version(1, 0.5, since="2026-01-01"), version(2, 0.9, since="2026-02-01")
    assert examine(first, [first, second], BOUND).reasons == ()


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    return Registry(load_settings(tmp_path_factory.mktemp("gate"), environ={}))


def register(registry: Registry, top_1: float, folder: Path) -> ModelVersion:
    folder.mkdir(exist_ok=True)
    (folder / "weights.safetensors").write_bytes(b"weights")
    (folder / "model.json").write_text("{}")
    metrics, tags = {"top_1": top_1, "top_5": 0.97}, {k: v for k, v in TAGS.items() if k != "sha256"}
    return registry.register("dev", folder, tags=tags, metrics=metrics, params={}, curves={})


def test_champion_refuses_forces_and_goes_back_in_a_real_registry(registry: Registry, tmp_path: Path):
    first = register(registry, 0.9, tmp_path)
    assert first.tags[CHAMPION_SINCE]
    assert champion(registry, "dev") == (first, ())
    worse = register(registry, 0.7, tmp_path)
    registry.promote("dev", worse.version)
    with pytest.raises(BadInput, match=r"version 2 is the champion but does not pass the gate: top_1 0\.700"):
        champion(registry, "dev")
    found, overruled = champion(registry, "dev", force=True)
    assert (found.version, len(overruled)) == (2, 1)
    assert CHAMPION_SINCE not in registry.resolve("dev", version=2).tags  # forcing makes no precedent
    better = register(registry, 0.95, tmp_path)
    registry.promote("dev", better.version)
    assert champion(registry, "dev")[1] == ()
    registry.promote("dev", 1)  # a rollback
    assert champion(registry, "dev")[1] == ()
    since = {v.version: v.tags.get(CHAMPION_SINCE, "") for v in registry.versions("dev")}
    assert since[1] > since[3] > since[2] == ""
