"""What a version of a registered cost model is, and how the models are named."""

import contextlib
import math
from collections.abc import Mapping
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
METRIC_PREFIX = "metric."
"""Prefix of the tags that keep a version's metrics."""
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


def metrics_to_tags(metrics: Mapping[str, float]) -> dict[str, str]:
    """Return the tags that keep a version's metrics; those of one kind of program (`top_1/conv2d`) have none."""
    whole = {key: value for key, value in metrics.items() if "/" not in key.removeprefix(THEIRS)}
    return {f"{METRIC_PREFIX}{key}": repr(float(value)) for key, value in whole.items()}


def metrics_from_tags(tags: Mapping[str, str]) -> dict[str, float]:
    """Return the metrics in a version's tags; one that somebody changed to something else than a number is missing."""
    found: dict[str, float] = {}
    for key, value in tags.items():
        if key.startswith(METRIC_PREFIX):
            with contextlib.suppress(ValueError):
                found[key.removeprefix(METRIC_PREFIX)] = float(value)
    return {key: value for key, value in found.items() if math.isfinite(value)}
