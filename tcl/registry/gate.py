"""The gate between a promotion and its use: a champion that does not fit, or is worse than the last one, is refused.

MLflow lets anybody move the alias `champion`, so who uses the alias checks. A version that passes is marked with the
tag `champion_since`, which makes the history of champions: the last one marked is what the next is compared with, and
a version that was champion before may come back (a rollback) however its metrics compare.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING

from tcl.errors import BadInput
from tcl.registry.versions import CHAMPION, CHAMPION_SINCE, COMPARED_WITH, THEIRS, ModelVersion

if TYPE_CHECKING:
    from tcl.registry.registry import Registry

LINEAGE = (
    "device",
    "target",
    "data_hash",
    "git_commit",
    "parent_version",
    "tvm_version",
    "feature_version",
    "sha256",
)
"""Tags that a version must have."""
GATED_METRICS = ("top_1", "top_5")


@dataclass(frozen=True)
class Verdict:
    """What the gate says of a version.

    Attributes
    ----------
    version
        The version.
    previous
        The champion before it; None when there was none.
    reasons
        Why it is refused; empty when it passes.
    """

    version: ModelVersion
    previous: ModelVersion | None
    reasons: tuple[str, ...]

    def require(self) -> None:
        """Raise `BadInput` with the reasons when the version is refused."""
        if self.reasons:
            raise BadInput(
                f"{self.version.name} version {self.version.version} is the champion but does not pass the gate:"
                f" {'; '.join(self.reasons)}; move the alias to another version, or compile with --force"
            )


def examine(version: ModelVersion, known: Sequence[ModelVersion], bound: float) -> Verdict:
    """Judge a version as champion.

    Parameters
    ----------
    version
        The version with the alias.
    known
        All versions of its model.
    bound
        Top-1 or top-5 that it may lose against the previous champion.
    """
    reasons = [*_gaps(version), *_misfits(version)]
    past = sorted(
        (other for other in known if CHAMPION_SINCE in other.tags and other.version != version.version),
        key=lambda other: other.tags[CHAMPION_SINCE],
    )
    previous = past[-1] if past else None
    if previous is not None and CHAMPION_SINCE not in version.tags:
        reasons += _losses(version, previous, bound)
    return Verdict(version, previous, tuple(reasons))


def champion(
    registry: "Registry", owner: str, *, force: bool = False
) -> tuple[ModelVersion, tuple[str, ...]]:
    """Return a model's champion, and what `force` overruled.

    Raises
    ------
    BadInput
        When there is no champion, or the gate refuses it and `force` is false.
    """
    version = registry.resolve(owner, alias=CHAMPION)
    known = registry.versions(owner)
    verdict = examine(version, known, registry.settings.promotion.metric_bound)
    if verdict.reasons:
        if not force:
            verdict.require()
        return version, verdict.reasons
    since = version.tags.get(CHAMPION_SINCE, "")
    latest = max(other.tags.get(CHAMPION_SINCE, "") for other in known)
    if not since or latest > since:
        registry.annotate(version, {CHAMPION_SINCE: _moment_after(latest)})
    return version, ()


def now() -> str:
    """The time as `CHAMPION_SINCE` holds it; later times sort after earlier ones."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _moment_after(latest: str) -> str:
    """The time, or just after `latest` when the clock was set back before it."""
    if latest < now():
        return now()
    return (datetime.fromisoformat(latest) + timedelta(microseconds=1)).isoformat(timespec="microseconds")


def _gaps(version: ModelVersion) -> list[str]:
    missing = [tag for tag in LINEAGE if not version.tags.get(tag)]
    return [f"it lacks the tag{'s' if len(missing) > 1 else ''} {', '.join(missing)}"] if missing else []


def _misfits(version: ModelVersion) -> list[str]:
    """Features and TVM of other versions than the installed; absent tags are reported as gaps."""
    from tcl.features.batch import FEATURE_VERSION

    reasons = []
    features, trained = version.tags.get("feature_version"), version.tags.get("tvm_version")
    if features and features != str(FEATURE_VERSION):
        reasons.append(
            f"it was trained on features of version {features}, but this installation makes version"
            f" {FEATURE_VERSION}"
        )
    installed = installed_version("apache-tvm")
    if trained and _release(trained) != _release(installed):
        reasons.append(f"it was trained on schedules of TVM {trained}, but TVM {installed} is installed")
    return reasons


def _release(version: str) -> tuple[str, ...]:
    """Major and minor version: schedules keep their form within a minor release."""
    return tuple(version.split(".")[:2])


def _losses(version: ModelVersion, previous: ModelVersion, bound: float) -> list[str]:
    """Metrics that are worse than the previous champion's, on the same held-out programs where both were judged."""
    same = version.tags.get(COMPARED_WITH) == str(previous.version)
    reasons = []
    for name in GATED_METRICS:
        mine = version.metrics.get(name, math.nan)
        its = version.metrics.get(THEIRS + name, math.nan) if same else math.nan
        if not math.isfinite(its):
            its = previous.metrics.get(name, math.nan)
        if not math.isfinite(its):
            continue  # nothing to lose against: the previous one was never evaluated
        if not math.isfinite(mine):
            reasons.append(f"it was never evaluated ({name} is missing), but champion {previous.version} was")
        elif its - mine > bound:
            reasons.append(
                f"{name} {mine:.3f} is worse than {its:.3f} of champion {previous.version} by more than {bound:g}"
            )
    return reasons
