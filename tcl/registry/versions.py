"""What a version of a registered cost model is, and how the models are named."""

from dataclasses import dataclass

KNOWLEDGE_BASE = "knowledge base"
"""Owner of the model that all devices share; no device can have this name."""
CHAMPION, CHALLENGER = "champion", "challenger"
CHAMPION_SINCE = "champion_since"
"""Tag of each version that passed the gate as champion: when, in UTC as ISO 8601."""
COMPARED_WITH = "compared_with"
"""Tag: the champion's version that was evaluated on the same held-out programs as this one."""
THEIRS = "champion/"
"""Prefix of that champion's metrics."""
_DEVICE_PREFIX, _KNOWLEDGE_BASE_NAME = "tcl-cost-", "tcl-knowledge-base"


@dataclass(frozen=True)
class ModelVersion:
    """One version of a registered model.

    Attributes
    ----------
    name, version
        The registered model and the number of the version.
    owner
        The device's name, or `KNOWLEDGE_BASE`.
    aliases
        "champion", "challenger" and others that people gave.
    tags
        Lineage: device, target, data_hash, git_commit, parent_version, tvm_version, feature_version and more.
    metrics
        Evaluation of the version.
    run_id
        The MLflow run that logged it.
    created
        Seconds since the epoch.
    """

    name: str
    version: int
    owner: str
    aliases: tuple[str, ...]
    tags: dict[str, str]
    metrics: dict[str, float]
    run_id: str
    created: float


def model_name(owner: str) -> str:
    """Return the registered model's name of a device, or of the knowledge base."""
    return _KNOWLEDGE_BASE_NAME if owner == KNOWLEDGE_BASE else f"{_DEVICE_PREFIX}{owner}"


def model_owner(name: str) -> str | None:
    """Return the owner of a registered model; None when it is no cost model of this product."""
    if name == _KNOWLEDGE_BASE_NAME:
        return KNOWLEDGE_BASE
    return name.removeprefix(_DEVICE_PREFIX) if name.startswith(_DEVICE_PREFIX) else None
