"""Registers, finds, fetches and promotes cost models; records compiles.

Each device has one registered model, the knowledge base another. A version is a folder of plain files
(`weights.safetensors`, `model.json`), so nothing is unpickled and no code is loaded from the registry.
"""

import re
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcl.errors import BadInput, WorkFailed
from tcl.files import atomic_directory, sha256_tree
from tcl.registry import plots
from tcl.registry.cards import model_card, model_note
from tcl.registry.gate import now
from tcl.registry.pages import version_page
from tcl.registry.runs import logged_run
from tcl.registry.store import every_page, explained, open_store, registry_lock
from tcl.registry.versions import (
    CHALLENGER,
    CHAMPION,
    CHAMPION_SINCE,
    KNOWLEDGE_BASE,
    METRIC_PREFIX,
    ModelVersion,
    metrics_from_tags,
    metrics_to_tags,
    model_name,
    model_owner,
)
from tcl.settings import Settings

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

FILES = ("weights.safetensors", "model.json")
REQUIRED_TAGS = ("data_hash", "feature_version", "tvm_version")


class Registry:
    """The model registry of a project; MLflow is imported and its store opened at first use."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def register(
        self,
        owner: str,
        folder: Path,
        *,
        tags: Mapping[str, str],
        metrics: Mapping[str, float],
        params: Mapping[str, Any],
        curves: Mapping[str, Sequence[float]],
        scatter: tuple[Sequence[float], Sequence[float]] | None = None,
    ) -> ModelVersion:
        """Log a cost model with its evaluation and register it as a new version.

        The version appears only after all of its files are stored. It becomes the challenger, and also the
        champion when its model has none.

        Parameters
        ----------
        owner
            A device's name or `KNOWLEDGE_BASE`.
        folder
            Holds `weights.safetensors` and `model.json`; other files are not registered.
        tags
            Lineage; at least `REQUIRED_TAGS`.
        metrics
            Final evaluation, e.g. ``{"top_1": 0.93, "top_5": 0.98}``; of one kind of program, ``top_1/conv2d``; and
            the champion's on the same programs, ``champion/top_1``, when its version is the tag `COMPARED_WITH`.
        params
            Options of the training.
        curves
            Values by epoch, e.g. ``{"loss": [...], "validation_top_1": [...]}``.
        scatter
            Predicted scores and measured relative speeds of the held-out candidates, for the plot.

        Raises
        ------
        WorkFailed
            When a file is missing or MLflow fails; then no version exists.
        """
        if missing := [tag for tag in REQUIRED_TAGS if tag not in tags]:
            raise ValueError(f"a cost model needs the tags {missing}")
        if absent := [name for name in FILES if not (folder / name).is_file()]:
            raise WorkFailed(f"the cost model in {folder} has no {absent[0]}, so it is not registered")
        name = model_name(owner)
        tags = {"device": owner, **tags}
        client, _ = self._store
        champion = next((known for known in self.versions(owner) if CHAMPION in known.aliases), None)
        run_tags = {"kind": "train", **tags}
        with (
            registry_lock(self.settings),
            explained(f"registering {name}"),
            logged_run(self._store, name, run_tags, params, metrics, curves) as run_id,
            tempfile.TemporaryDirectory() as temporary,
        ):
            artifacts = Path(temporary)
            weights = artifacts / "weights"
            weights.mkdir()
            for file in FILES:
                (weights / file).write_bytes((folder / file).read_bytes())
            drawn = plots.draw_all(artifacts / "plots", curves, scatter, metrics)
            # Relative, so that they are found whatever the server's address.
            images = {name: f"get-artifact?run_uuid={run_id}&path=plots/{name}.png" for name in drawn}
            card = model_card(name, tags, metrics, params, champion, images)
            (artifacts / "model_card.md").write_text(card, encoding="utf-8")
            client.log_artifacts(run_id, temporary)
            self._require_files(run_id, name)
            version = self._create_version(
                name, run_id, card, {**tags, "sha256": sha256_tree(weights)}, metrics
            )
        return self.resolve(owner, version=version)

    def complete(self, owner: str) -> None:
        """Give the newest version the aliases that a registration which was killed did not get to."""
        name = model_name(owner)
        versions = self.versions(owner)
        if not versions:
            return
        client, _ = self._store
        given = {alias for version in versions for alias in version.aliases}
        for alias in {CHALLENGER} - set(versions[0].aliases) | {CHAMPION} - given:
            with registry_lock(self.settings), explained(f"completing {name}"):
                client.set_registered_model_alias(name, alias, str(versions[0].version))

    def resolve(self, owner: str, *, alias: str = CHAMPION, version: int | None = None) -> ModelVersion:
        """Return the version with `alias`, or the one with the number `version` when that is given.

        Raises
        ------
        BadInput
            When there is none, naming the known versions and aliases.
        """
        name = model_name(owner)
        known = self.versions(owner)
        for candidate in known:
            if candidate.version == version or (version is None and alias in candidate.aliases):
                return candidate
        wanted = f"version {version}" if version is not None else f"alias {alias!r}"
        if not known:
            hint = (
                "`tcl distill` makes one"
                if owner == KNOWLEDGE_BASE
                else f"`tcl distill --device {owner}` makes one"
            )
            raise BadInput(f"{name} has no version yet; {hint}")
        listed = ", ".join(
            f"{v.version} ({'/'.join(v.aliases)})" if v.aliases else f"{v.version}" for v in known
        )
        raise BadInput(f"{name} has no {wanted}; known versions (aliases): {listed}")

    def versions(self, owner: str) -> Sequence[ModelVersion]:
        """Return all versions of one model, the newest first."""
        return self._search(model_name(owner))

    def list(self) -> Sequence[ModelVersion]:
        """Return all versions of all devices and of the knowledge base, by name, the newest first."""
        client, _ = self._store
        with explained("listing the registered models"):
            models = [model.name for model in every_page(client.search_registered_models)]
        return [
            version
            for name in sorted(models)
            if model_owner(name) is not None
            for version in self._search(name)
        ]

    def promote(self, owner: str, version: int, alias: str = CHAMPION) -> ModelVersion:
        """Give `alias` to a version, taking it from the one that had it.

        Raises
        ------
        BadInput
            When the version is unknown or MLflow reserves the alias.
        """
        if not re.fullmatch(r"[A-Za-z_][\w-]*", alias) or alias == "latest" or re.fullmatch(r"v\d+", alias):
            raise BadInput(
                f"{alias!r} is no alias: use letters, digits, '_' and '-'; 'latest' and 'v1' are reserved"
            )
        name = self.resolve(owner, version=version).name
        client, _ = self._store
        with registry_lock(self.settings), explained(f"promoting {name} version {version}"):
            client.set_registered_model_alias(name, alias, str(version))
        return self.resolve(owner, version=version)

    def annotate(self, version: ModelVersion, tags: Mapping[str, str]) -> None:
        """Add tags to a version, or change them."""
        client, _ = self._store
        with registry_lock(self.settings), explained(f"tagging {version.name} version {version.version}"):
            for key, value in tags.items():
                client.set_model_version_tag(version.name, str(version.version), key, value)

    def card(self, version: ModelVersion) -> str:
        """Return a version's model card, Markdown."""
        client, _ = self._store
        with explained(f"looking up {version.name} version {version.version}"):
            return client.get_model_version(version.name, str(version.version)).description or ""

    def page(self, version: ModelVersion) -> str:
        """Return the address of a version's page in MLflow: the server's, or that of `tcl models ui`."""
        return version_page(self.settings, version)

    def fetch(self, version: ModelVersion) -> Path:
        """Return a verified local folder with the version's files.

        Raises
        ------
        BadInput
            When the model was trained on features of another version.
        WorkFailed
            When the files are gone or are not those that were registered.
        """
        from tcl.features.batch import FEATURE_VERSION

        what = f"{version.name} version {version.version}"
        if version.tags.get("feature_version") != str(FEATURE_VERSION):
            raise BadInput(
                f"{what} was trained on features of version {version.tags.get('feature_version')}, but this"
                f" installation makes version {FEATURE_VERSION}; train it again with `tcl distill`"
            )
        digest = version.tags.get("sha256")
        if digest is None:
            raise WorkFailed(
                f"{what} was not registered by tcl (no tag sha256), so its files cannot be verified"
            )
        target = self.settings.models_dir / version.name / str(version.version)
        if sha256_tree(target) == digest:
            return target
        client, _ = self._store
        with atomic_directory(target) as temporary:
            with tempfile.TemporaryDirectory() as download, explained(f"fetching {what}"):
                self._require_files(version.run_id, what)
                source = Path(client.download_artifacts(version.run_id, "weights", download))
                for file in FILES:
                    (temporary / file).write_bytes((source / file).read_bytes())
            if sha256_tree(temporary) != digest:
                raise WorkFailed(
                    f"the stored files of {what} are not those that were registered (sha256 differs)"
                )
        return target

    def log_compile(
        self,
        device: str,
        model: str,
        package: Path,
        *,
        params: Mapping[str, Any],
        metrics: Mapping[str, float],
        tasks: Sequence[Mapping[str, Any]],
        tags: Mapping[str, str],
    ) -> str:
        """Record one compile as an MLflow run.

        Parameters
        ----------
        device, model
            The device's name and the compiled network's.
        package
            The package folder; becomes the run's artifact `package`.
        params, metrics, tags
            Options; latencies in seconds and errors; cost model, data hash and the like.
        tasks
            The per-task table: rows with the same keys.

        Returns
        -------
        str
            The run's id.
        """
        client, _ = self._store
        run_tags = {"kind": "compile", "device": device, "model": model, **tags}
        with (
            explained(f"recording the compile of {model}"),
            logged_run(self._store, f"compile {model} for {device}", run_tags, params, metrics, {}) as run_id,
        ):
            if tasks:
                client.log_table(run_id, {key: [row[key] for row in tasks] for key in tasks[0]}, "tasks.json")
            client.log_artifacts(run_id, str(package), "package")
        return run_id

    @cached_property
    def _store(self) -> "tuple[MlflowClient, str]":
        return open_store(self.settings)

    def _create_version(
        self, name: str, run_id: str, card: str, tags: Mapping[str, str], metrics: Mapping[str, float]
    ) -> int:
        client, _ = self._store
        known = client.search_registered_models(f"name = '{name}'")
        if not known:
            client.create_registered_model(name, description=model_note(tags["device"]))
        first = not known or CHAMPION not in known[0].aliases
        since = {CHAMPION_SINCE: now()} if first else {}
        created = client.create_model_version(
            name,
            f"runs:/{run_id}/weights",
            run_id,
            tags={**tags, **metrics_to_tags(metrics), **since},
            description=card,
        )
        for alias in (CHALLENGER, CHAMPION) if first else (CHALLENGER,):
            client.set_registered_model_alias(name, alias, created.version)
        return int(created.version)

    def _require_files(self, run_id: str, what: str) -> None:
        """Check that a run's files exist: MLflow itself downloads a lost folder as an empty one, silently."""
        client, _ = self._store
        stored = {Path(item.path).name for item in client.list_artifacts(run_id, "weights")}
        if absent := [file for file in FILES if file not in stored]:
            where = client.get_run(run_id).info.artifact_uri
            raise WorkFailed(
                f"{what}: {', '.join(absent)} not found in {where}/weights; was the folder moved or deleted?"
                " Put it back, or train again with `tcl distill`"
            )

    def _search(self, name: str) -> Sequence[ModelVersion]:
        client, _ = self._store
        with explained(f"looking up {name}"):
            found = every_page(partial(client.search_model_versions, f"name = '{name}'"))
            aliases: dict[int, list[str]] = {}
            for alias, number in (client.get_registered_model(name).aliases if found else {}).items():
                aliases.setdefault(int(number), []).append(alias)
        versions = [
            ModelVersion(
                name=name,
                version=int(item.version),
                owner=model_owner(name) or name,
                aliases=tuple(sorted(aliases.get(int(item.version), []))),
                tags={k: value for k, value in item.tags.items() if not k.startswith(METRIC_PREFIX)},
                metrics=metrics_from_tags(item.tags),
                run_id=item.run_id,
                created=item.creation_timestamp / 1000,
            )
            for item in found
        ]
        return sorted(versions, key=lambda version: -version.version)
