import json
import multiprocessing
import shutil
from functools import partial
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from tcl.errors import BadInput, WorkFailed
from tcl.features.batch import FEATURE_VERSION
from tcl.registry import plots
from tcl.registry.registry import Registry
from tcl.registry.store import every_page
from tcl.registry.versions import KNOWLEDGE_BASE, ModelVersion
from tcl.settings import Settings, load_settings

TAGS = {
    "target": '{"kind": "llvm"}',
    "data_hash": "abc.dir",
    "git_commit": "0123",
    "parent_version": "",
    "tvm_version": "0.27.0",
    "feature_version": str(FEATURE_VERSION),
}


def make_model(folder: Path, content: bytes = b"weights") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights.safetensors").write_bytes(content)
    (folder / "model.json").write_text("{}")
    return folder


def register(registry: Registry, owner: str, content: bytes = b"weights", **tags: str) -> ModelVersion:
    return registry.register(
        owner,
        make_model(registry.settings.root / "new", content),
        tags={**TAGS, **tags},
        metrics={"top_1": 0.9, "top_5": 0.97},
        params={"epochs": 3, "lr": 7e-4},
        curves={"loss": [3.0, 2.0, float("nan")], "validation_top_1": [0.5, 0.8, 0.9]},
        scatter=([0.1, 0.2], [0.5, 1.0]),
    )


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    """One store for the tests of this module: each uses devices of its own."""
    return Registry(load_settings(tmp_path_factory.mktemp("registry"), environ={}))


def client_of(settings: Settings) -> MlflowClient:
    return MlflowClient(settings.mlflow_tracking_uri, settings.mlflow_tracking_uri)


def test_register_makes_first_version_champion_and_later_ones_challenger(registry: Registry) -> None:
    first = register(registry, "dev-a")
    second = register(registry, "dev-a", parent_version="1")
    assert (first.name, first.version, first.aliases) == ("tcl-cost-dev-a", 1, ("challenger", "champion"))
    assert (second.version, second.aliases) == (2, ("challenger",))
    assert registry.resolve("dev-a").version == 1
    assert registry.resolve("dev-a", alias="challenger").version == 2
    assert registry.resolve("dev-a", version=2) == second
    assert second.tags["parent_version"] == "1"
    assert second.tags["device"] == "dev-a"
    assert second.metrics == {"top_1": 0.9, "top_5": 0.97}


def test_register_names_the_knowledge_base_apart_from_devices(registry: Registry) -> None:
    assert register(registry, KNOWLEDGE_BASE).name == "tcl-knowledge-base"
    assert register(registry, "knowledge-base").name == "tcl-cost-knowledge-base"
    owners = [version.owner for version in registry.list()]
    assert {KNOWLEDGE_BASE, "knowledge-base"} <= set(owners)


def test_register_logs_curves_plots_and_card(registry: Registry) -> None:
    version = register(registry, "dev-log")
    client = client_of(registry.settings)
    run = client.get_run(version.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params == {"epochs": "3", "lr": "0.0007"}
    history = client.get_metric_history(version.run_id, "validation_top_1")
    assert [(point.step, point.value) for point in history] == [(0, 0.5), (1, 0.8), (2, 0.9)]
    assert {item.path for item in client.list_artifacts(version.run_id, "plots")} == {
        "plots/learning_curve_loss.png",
        "plots/learning_curve_validation_top_1.png",
        "plots/predicted_against_measured.png",
        "plots/top_k.png",
    }
    model = client.get_registered_model(version.name)
    assert "device **dev-log**" in model.description
    card = client.get_model_version(version.name, "1").description
    assert card == registry.card(version)
    assert card.startswith("# tcl-cost-dev-log") and "abc.dir" in card
    assert f"](get-artifact?run_uuid={version.run_id}&path=plots/top_k.png)" in card
    assert registry.page(version) == "http://127.0.0.1:5000/#/models/tcl-cost-dev-log/versions/1"
    assert "model_card.md" in {item.path for item in client.list_artifacts(version.run_id)}


def test_register_leaves_no_version_when_it_is_interrupted(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plots, "draw_all", interrupt)
    with pytest.raises(KeyboardInterrupt):
        register(registry, "dev-cut")
    monkeypatch.undo()
    assert registry.versions("dev-cut") == []
    assert register(registry, "dev-cut").aliases == ("challenger", "champion")


def test_register_refuses_when_a_file_is_missing(registry: Registry, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    (folder / "model.json").unlink()
    with pytest.raises(WorkFailed, match=r"model\.json"):
        registry.register("dev-x", folder, tags=TAGS, metrics={}, params={}, curves={})
    assert registry.versions("dev-x") == []


def test_resolve_names_known_versions_and_aliases_when_absent(registry: Registry) -> None:
    register(registry, "dev-known")
    with pytest.raises(
        BadInput, match=r"no version 7; known versions \(aliases\): 1 \(challenger/champion\)"
    ):
        registry.resolve("dev-known", version=7)
    with pytest.raises(BadInput, match="no alias 'best'"):
        registry.resolve("dev-known", alias="best")
    with pytest.raises(BadInput, match="`tcl distill --device nobody`"):
        registry.resolve("nobody")


def test_promote_moves_the_alias_and_people_can_do_it_in_mlflow(registry: Registry) -> None:
    register(registry, "dev-p")
    register(registry, "dev-p", b"better")
    assert registry.promote("dev-p", 2).aliases == ("challenger", "champion")
    assert registry.resolve("dev-p", version=1).aliases == ()
    client_of(registry.settings).set_registered_model_alias("tcl-cost-dev-p", "champion", "1")
    assert registry.resolve("dev-p").version == 1


@pytest.mark.parametrize("alias", ["latest", "v1", "", "a b", "1"])
def test_promote_refuses_when_the_alias_is_reserved(registry: Registry, alias: str) -> None:
    with pytest.raises(BadInput, match="no alias"):
        registry.promote("dev-p", 1, alias)


def test_fetch_returns_verified_files_and_repairs_a_broken_copy(registry: Registry) -> None:
    version = register(registry, "dev-f", b"the weights")
    folder = registry.fetch(version)
    assert (folder / "weights.safetensors").read_bytes() == b"the weights"
    (folder / "weights.safetensors").write_bytes(b"damaged")
    assert (registry.fetch(version) / "weights.safetensors").read_bytes() == b"the weights"


def stored_weights(registry: Registry, version: ModelVersion) -> Path:
    return registry.settings.mlflow_artifacts / version.run_id / "artifacts" / "weights"


@pytest.mark.parametrize("empty", [False, True])
def test_fetch_fails_when_the_stored_folder_is_gone_or_empty(registry: Registry, empty: bool) -> None:
    version = register(registry, "dev-gone")
    shutil.rmtree(stored_weights(registry, version))
    if empty:
        stored_weights(registry, version).mkdir()
    with pytest.raises(WorkFailed, match=r"weights\.safetensors, model\.json not found"):
        registry.fetch(version)
    assert not (registry.settings.models_dir / version.name / str(version.version)).exists()


def test_fetch_fails_when_a_stored_file_was_changed(registry: Registry) -> None:
    version = register(registry, "dev-changed")
    (stored_weights(registry, version) / "weights.safetensors").write_bytes(b"other")
    with pytest.raises(WorkFailed, match="sha256"):
        registry.fetch(version)


def test_fetch_names_both_versions_when_the_features_are_of_another(registry: Registry) -> None:
    version = register(registry, "dev-old", feature_version="999")
    with pytest.raises(
        BadInput, match=rf"version 999, but this installation makes version {FEATURE_VERSION}"
    ):
        registry.fetch(version)


def test_log_compile_records_tasks_latency_and_package(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "tcl.json").write_text("{}")
    run_id = registry.log_compile(
        "dev-a",
        "squeezenet",
        tmp_path / "package",
        params={"trials": 64},
        metrics={"latency_seconds": 0.01, "onnxruntime_seconds": float("nan")},
        tasks=[{"task": "conv", "measured": 1.5}, {"task": "pool", "measured": None}],
        tags={"cost_model": "tcl-cost-dev-a", "cost_model_version": "1"},
    )
    client = client_of(registry.settings)
    run = client.get_run(run_id)
    assert run.data.metrics == {"latency_seconds": 0.01}
    assert run.data.tags["cost_model_version"] == "1"
    assert {item.path for item in client.list_artifacts(run_id)} == {"package", "tasks.json"}
    table = json.loads((registry.settings.mlflow_artifacts / run_id / "artifacts" / "tasks.json").read_text())
    assert table == {"columns": ["task", "measured"], "data": [["conv", 1.5], ["pool", None]]}


def test_registry_writes_nothing_to_standard_output(registry: Registry, capfd: pytest.CaptureFixture) -> None:
    registry.fetch(register(registry, "dev-quiet"))
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("damage", ["emptied", "overwritten", "truncated"])
def test_registry_names_database_and_cure_when_the_store_is_broken(
    settings: Settings, registry: Registry, damage: str
) -> None:
    registry.list()
    whole = registry.settings.mlflow_database.read_bytes()
    content = {
        "emptied": b"",
        "overwritten": b"this is no database " * 100,
        "truncated": whole[: len(whole) // 2],
    }
    settings.mlflow_database.write_bytes(content[damage])
    with pytest.raises(
        WorkFailed, match=r"the MLflow store .*/mlflow\.db failed: .*restore it from a backup"
    ) as error:
        Registry(settings).list()
    assert "\n" not in str(error.value)
    assert settings.mlflow_database.read_bytes() == content[damage]


def register_one(root: Path, owner: str) -> None:
    registry = Registry(load_settings(root, environ={}))
    registry.register(
        owner, make_model(root / owner), tags=TAGS, metrics={"top_1": 0.5}, params={}, curves={}
    )


@pytest.mark.slow
def test_registry_is_whole_when_two_processes_start_the_very_first_run(settings: Settings) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=register_one, args=(settings.root, owner)) for owner in ("a", "b")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    versions = Registry(settings).list()
    assert [(version.owner, version.version) for version in versions] == [("a", 1), ("b", 1)]


def test_every_page_returns_what_lies_beyond_the_first_page(registry: Registry) -> None:
    for index in range(5):
        register(registry, f"paged-{index}")
    client = client_of(registry.settings)
    search = partial(client.search_registered_models, "name LIKE 'tcl-cost-paged-%'", 2)
    assert len(search()) == 2
    assert [model.name for model in every_page(search)] == [f"tcl-cost-paged-{index}" for index in range(5)]
