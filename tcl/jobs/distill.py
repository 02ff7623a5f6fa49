"""The job `distill`: a device's cost model from its versioned records, evaluated and registered.

Steps: bring the records to a version → learn from them → register the model and the knowledge base.
"""

import tempfile
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcl.console import note, progress
from tcl.devices.device import Device
from tcl.devices.store import DeviceStore
from tcl.files import locked, sha256_tree
from tcl.jobs.dataset import dataset, open_journal, take_over_tuning
from tcl.jobs.evaluation import compare
from tcl.jobs.tables import Table
from tcl.settings import Settings

if TYPE_CHECKING:
    from tcl.distillation.distill import DistillOptions, DistillResult
    from tcl.distillation.knowledge import KnowledgeBase
    from tcl.registry.registry import Registry
    from tcl.registry.versions import ModelVersion

_LOCK_SECONDS = 6 * 3600.0  # other distillations may take long


@dataclass(frozen=True)
class DistillArguments:
    """What `tcl distill` is asked to do.

    Attributes
    ----------
    device
        Name of a recorded device.
    seconds
        Budget of the training; None: the settings' epochs alone.
    again
        Learn even when a model of the same records is registered.
    """

    device: str
    seconds: float | None = None
    again: bool = False


@dataclass(frozen=True)
class DistillReport:
    """The result of the job.

    Attributes
    ----------
    model
        The device's version.
    knowledge_base
        The knowledge base's new version; None when it was not replaced.
    reasons
        Why this model, and what became of the knowledge base.
    """

    model: "ModelVersion"
    knowledge_base: "ModelVersion | None"
    reasons: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {
            "model": asdict(self.model),
            "knowledge_base": asdict(self.knowledge_base) if self.knowledge_base else None,
            "reasons": list(self.reasons),
        }

    def table(self) -> Table:
        """The evaluation, a metric a row."""
        rows = [(name, value) for name, value in self.model.metrics.items()]
        title = (
            f"{self.model.name} version {self.model.version} ({', '.join(self.model.aliases) or 'no alias'})"
        )
        return Table(title, ("metric", "value"), rows)

    def lines(self) -> list[str]:
        """What a person should know besides the table."""
        return list(self.reasons)


@dataclass(frozen=True)
class Data:
    """The records to learn from.

    Attributes
    ----------
    device
        Whose they are.
    data_hash
        Content hash of this device's records.
    dataset_hash
        The dataset's version, as `data.dvc` names it.
    """

    device: Device
    data_hash: str
    dataset_hash: str


def run(arguments: DistillArguments, settings: Settings) -> DistillReport:
    """Do all steps in this process."""
    with one_at_a_time(settings):
        data = prepare(arguments, settings)
        if not arguments.again and (known := find_learnt(data.device.name, data.data_hash, settings)):
            return already_learnt(known)
        return register(data, learn(data, arguments, settings), settings)


def one_at_a_time(settings: Settings) -> AbstractContextManager[None]:
    """The lock of the knowledge base: what one distillation adds, the next must start from.

    Whether the records are learnt already is asked under it, so that two who want the same learn it once.
    """
    return locked(settings.state_dir / "knowledge-base.lock", _LOCK_SECONDS, "the knowledge base")


def prepare(arguments: DistillArguments, settings: Settings) -> Data:
    """Take over what was measured since, and make the dataset a version.

    Raises
    ------
    BadInput
        When the device is unknown or has no records.
    """
    from tcl.versioning.dataset import DatasetVersions

    device = DeviceStore(settings.devices_dir).get(arguments.device)
    versions = DatasetVersions(settings)
    versions.pull()
    open_journal(settings, "measure", device.name, dataset(settings))
    take_over_tuning(settings, device.name)
    version = versions.version(f"Records of {device.name}")
    return Data(device, versions.device_hash(device.name), version.hash)


def find_learnt(device: str, data_hash: str, settings: Settings) -> "ModelVersion | None":
    """The newest registered model of a device that was made of exactly these records and today's features."""
    from tcl.features.batch import FEATURE_VERSION
    from tcl.registry.registry import Registry

    wanted = {"data_hash": data_hash, "feature_version": str(FEATURE_VERSION)}
    registry = Registry(settings)
    registry.complete(device)
    for version in registry.versions(device):
        if wanted.items() <= version.tags.items():
            return version
    return None


def already_learnt(version: "ModelVersion") -> DistillReport:
    """The report of a distillation that was not necessary."""
    reason = (
        f"version {version.version} was made of exactly these records; --again learns from them once more"
    )
    return DistillReport(version, None, (reason,))


def learn(data: Data, arguments: DistillArguments, settings: Settings) -> "DistillResult":
    """Train, with the knowledge base where there is one, and evaluate on held-out workloads.

    A device with too few programs to hold any out begins with the knowledge base's own model.

    Raises
    ------
    BadInput
        When there are too few programs with candidates to compare, and no knowledge base.
    """
    from tcl.distillation.distill import TooFewWorkloads, distill

    knowledge_base = _knowledge_base(settings)
    with progress(f"learning {data.device.name}", None) as advance:

        def show(stage: str, epoch: dict[str, float]) -> None:
            shown = {name: epoch[name] for name in ("loss", "top_1") if name in epoch}
            advance(detail=", ".join([stage, *(f"{name} {value:.3f}" for name, value in shown.items())]))

        try:
            return distill(
                dataset(settings),
                data.device,
                knowledge_base,
                _options(arguments, settings),
                settings.state_dir / "distill" / data.device.name,
                show,
            )
        except TooFewWorkloads:
            if knowledge_base is None:
                raise
            return _borrow(knowledge_base)


def register(data: Data, result: "DistillResult", settings: Settings) -> DistillReport:
    """Register the device's model and, where it was replaced, the knowledge base.

    Done again after a failure, it makes no second version of the knowledge base.
    """
    from tcl.costmodel.checkpoint import EVALUATED, save_model
    from tcl.distillation.knowledge import save_knowledge_base
    from tcl.registry.registry import Registry
    from tcl.registry.versions import KNOWLEDGE_BASE

    registry = Registry(settings)
    kinds = {
        key: workload.summary.op for key, workload in dataset(settings).workloads(data.device.name).items()
    }
    compared, against = compare(registry, data.device.name, result, kinds)
    tags = _tags(data, result, registry, settings)
    about = {"device": data.device.name, "data_hash": data.data_hash}
    params = {**asdict(settings.learning), "chosen": result.chosen}
    common: dict[str, Any] = {"params": params, "metrics": result.metrics, "curves": result.curves}
    with tempfile.TemporaryDirectory(prefix="tcl-distill-") as scratch:
        folder = Path(scratch)
        base = None
        if result.knowledge_base_replaced:
            save_knowledge_base(result.knowledge_base, folder / "base", about)
            base_tags = tags | {"learned": data.device.name, "reason": result.knowledge_base_reason}
            base = _registered_before(data, folder / "base", registry, settings)
            base = base or registry.register(KNOWLEDGE_BASE, folder / "base", tags=base_tags, **common)
            registry.promote(KNOWLEDGE_BASE, base.version)  # its gate was the forgetting bound
            tags["knowledge_base_version"] = str(base.version)
        past = {} if result.evaluated is result.model else result.evaluated.state_dict()
        extra = {EVALUATED + name: tensor for name, tensor in past.items()}
        save_model(result.model, folder / "model", about, extra)
        scatter = (result.predicted.tolist(), result.measured.tolist()) if len(result.predicted) else None
        common["metrics"] = {**result.metrics, **compared}
        version = registry.register(
            data.device.name, folder / "model", tags=tags | against, scatter=scatter, **common
        )
    reasons = [result.reason, result.knowledge_base_reason]
    if result.excluded:
        shown = ", ".join([*result.excluded[:3], *["…"] * (len(result.excluded) > 3)])
        reasons.append(
            f"left out, since nothing succeeded or only one candidate was measured: {len(result.excluded)} programs"
            f" ({shown})"
        )
    return DistillReport(version, base, tuple(reasons))


def card(report: DistillReport, settings: Settings) -> tuple[str, str]:
    """The new version's model card, Markdown, with the addresses of its plots; and its page in MLflow."""
    from tcl.registry.registry import Registry

    registry = Registry(settings)
    page = registry.page(report.model)
    server = page.partition("#")[0]
    return registry.card(report.model).replace("](get-artifact?", f"]({server}get-artifact?"), page


def _registered_before(
    data: Data, folder: Path, registry: "Registry", settings: Settings
) -> "ModelVersion | None":
    """The newest knowledge base, where an attempt made it of these records and failed before the device's model."""
    from tcl.features.batch import FEATURE_VERSION
    from tcl.registry.versions import KNOWLEDGE_BASE

    lineage = {
        "learned": data.device.name,
        "data_hash": data.data_hash,
        "feature_version": str(FEATURE_VERSION),
    }
    newest = next(iter(registry.versions(KNOWLEDGE_BASE)), None)
    if newest is None or not lineage.items() <= newest.tags.items():
        return None
    if newest.tags.get("sha256") == sha256_tree(folder):
        return newest
    learnt = find_learnt(data.device.name, data.data_hash, settings)
    return newest if learnt is None else None  # learnt already: it is asked to learn them once more


def _tags(data: Data, result: "DistillResult", registry: "Registry", settings: Settings) -> dict[str, str]:
    """The lineage of a version."""
    import json

    from tcl.features.batch import FEATURE_VERSION
    from tcl.versioning import git

    versions = registry.versions(data.device.name)
    return {
        "target": json.dumps(data.device.target),
        "data_hash": data.data_hash,
        "dataset_version": data.dataset_hash,
        "git_commit": git.head(settings.root) or "none",
        "parent_version": str(versions[0].version) if versions else "none",
        "tvm_version": installed_version("apache-tvm"),
        "feature_version": str(FEATURE_VERSION),
        "chosen": result.chosen,
        "reason": result.reason,
    }


def _knowledge_base(settings: Settings) -> "KnowledgeBase | None":
    from tcl.distillation.knowledge import load_knowledge_base
    from tcl.errors import BadInput
    from tcl.registry.registry import Registry
    from tcl.registry.versions import KNOWLEDGE_BASE

    registry = Registry(settings)
    if not registry.versions(KNOWLEDGE_BASE):
        return None
    try:
        return load_knowledge_base(registry.fetch(registry.resolve(KNOWLEDGE_BASE)))[0]
    except BadInput as error:
        note(f"the knowledge base is not used: {error}")
        return None


def _borrow(knowledge_base: "KnowledgeBase") -> "DistillResult":
    """The knowledge base's model as the device's own, until there is enough to learn from."""
    import numpy as np

    from tcl.distillation.distill import DistillResult

    return DistillResult(
        model=knowledge_base.model,
        evaluated=knowledge_base.model,
        chosen="knowledge base",
        reason="the knowledge base's model: too few programs have measured candidates to compare",
        knowledge_base=knowledge_base,
        knowledge_base_replaced=False,
        knowledge_base_reason="the knowledge base stays as it is",
        metrics={},
        curves={},
        predicted=np.empty(0),
        measured=np.empty(0),
    )


def _options(arguments: DistillArguments, settings: Settings) -> "DistillOptions":
    from tcl.costmodel.training import TrainOptions
    from tcl.distillation.distill import DistillOptions

    chosen = settings.learning
    training = TrainOptions(epochs=chosen.epochs, seed=chosen.seed, seconds=arguments.seconds)
    return DistillOptions(train=training, forgetting_bound=chosen.forgetting_bound)
