"""The job `promotions`: packages follow the champions.

For each subscribed model: find the champion and ask the gate → nothing, where its package is in use → restore it,
where it was made before → otherwise compile, which verifies, and replace the old package unless the new one is slower.
Going back to an earlier champion asks for no comparison. Each (device, cost model version, ONNX file) is decided once,
however often and by whomever it is asked.
"""

import hashlib
import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcl.devices.device import Device
from tcl.devices.host import why_unreachable
from tcl.devices.store import DeviceStore
from tcl.errors import BadInput, DeviceLost, TclError, WorkFailed, in_one_line
from tcl.files import locked
from tcl.jobs import compile as compiling
from tcl.jobs.compile import CompileArguments, CompileReport
from tcl.jobs.dataset import alone_on
from tcl.jobs.package_history import ACCEPTED, FAILED, NEW, SLOWER, Decision, PackageHistory, intact
from tcl.jobs.subscriptions import Subscription, subscriptions
from tcl.jobs.tables import Table
from tcl.settings import Settings

if TYPE_CHECKING:
    from tcl.registry.versions import ModelVersion

Compile = Callable[[CompileArguments, Settings], CompileReport]
IN_USE, REPLACED, RESTORED, KEPT, REFUSED, WAITING, ELSEWHERE = (
    "in use",
    "replaced",
    "restored",
    "kept",
    "refused",
    "waiting",
    "elsewhere",
)
"""What may become of a subscription, beside `FAILED`."""
_MOST_ATTEMPTS = 3
_LOCK_SECONDS = 6 * 3600.0


@dataclass(frozen=True)
class PromotionsArguments:
    """What `tcl promotions` is asked to do.

    Attributes
    ----------
    device
        Whose subscriptions to look at; None: all.
    """

    device: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of one subscription.

    Attributes
    ----------
    device, model, package
        The subscription.
    version
        The champion's version; None where there is none.
    action
        "in use": nothing to do. "replaced": compiled, verified and put in place. "restored": a package that was made
        before. "kept": the old package stays, since the new one is slower. "refused": by the gate. "waiting": for the
        device. "elsewhere": the device is another host, which follows its own subscriptions. "failed".
    reason
        Why; empty when there is nothing to say.
    """

    device: str
    model: str
    package: str
    version: int | None
    action: str
    reason: str = ""


@dataclass(frozen=True)
class PromotionsReport:
    """The result of the job."""

    outcomes: tuple[Outcome, ...]

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {"subscriptions": [asdict(outcome) for outcome in self.outcomes]}

    def table(self) -> Table:
        """One row for each subscription."""
        rows = [(o.device, o.model, o.version, o.action, o.package, o.reason) for o in self.outcomes]
        return Table("Promotions", ("device", "model", "champion", "package is", "package", "why"), rows)

    def require(self) -> None:
        """Raise `WorkFailed` when a subscription failed."""
        failed = [f"{o.model} for {o.device}: {o.reason}" for o in self.outcomes if o.action == FAILED]
        if failed:
            raise WorkFailed(f"not every subscribed model follows its champion: {'; '.join(failed)}")


def run(
    arguments: PromotionsArguments, settings: Settings, compile: Compile = compiling.run
) -> PromotionsReport:
    """Let every subscribed model follow its device's champion; a failure does not hold up the others."""
    found = subscriptions(settings, arguments.device)
    return PromotionsReport(tuple(follow(subscription, settings, compile) for subscription in found))


def follow(subscription: Subscription, settings: Settings, compile: Compile = compiling.run) -> Outcome:
    """Let one subscribed model follow its device's champion."""
    lock = settings.packages_dir / f"{subscription.device}-{subscription.key}.lock"
    version: ModelVersion | None = None
    try:
        with locked(lock, _LOCK_SECONDS, f"the packages of {subscription.model}"):
            version, refusal = _champion(subscription, settings)
            action, reason = (
                (REFUSED, refusal) if refusal else _update(subscription, version, settings, compile)
            )
    except DeviceLost as error:
        action, reason = WAITING, str(error)
    except Exception as error:  # whatever it is, the other subscriptions go on
        action, reason = FAILED, in_one_line(error)
    number = version.version if version else None
    return Outcome(subscription.device, subscription.model, subscription.output, number, action, reason)


def pages(report: PromotionsReport, settings: Settings) -> dict[str, str]:
    """Addresses of the champions' pages in MLflow, by name and version; a version that was deleted since has none."""
    from tcl.registry.registry import Registry

    registry = Registry(settings)
    found = {(o.device, o.version) for o in report.outcomes if o.version is not None}
    devices = sorted({device for device, _ in found})
    versions = [version for device in devices for version in registry.versions(device)]
    return {
        f"{version.name} version {version.version}": registry.page(version)
        for version in versions
        if (version.owner, version.version) in found
    }


def _champion(subscription: Subscription, settings: Settings) -> "tuple[ModelVersion, str]":
    """The device's champion, and why the gate refuses it, if it does."""
    from tcl.registry.gate import champion
    from tcl.registry.registry import Registry

    version, overruled = champion(Registry(settings), subscription.device, force=True)
    return version, "; ".join(overruled)


def _update(
    subscription: Subscription, version: "ModelVersion", settings: Settings, compile: Compile
) -> tuple[str, str]:
    """Bring the champion's package into use, if that is decided or can be; returns what was done and why."""
    if subscription.trials is not None:
        settings = replace(settings, tuning=replace(settings.tuning, trials=subscription.trials))
    device = DeviceStore(settings.devices_dir).get(subscription.device)
    absent = why_unreachable(device)
    if absent is not None:  # nothing could be verified, so nothing may be replaced
        return ELSEWHERE, f"{device.name} is {absent}"
    history = PackageHistory(subscription, settings)
    name = _name(subscription, device, version, settings)
    decided = history.decision(name) or Decision(NEW)
    back = version.version < (history.version_in_use(version.name) or 0)
    if decided.state == SLOWER and not back:
        return KEPT, decided.reason
    if decided.state == FAILED and decided.attempts >= _MOST_ATTEMPTS:
        return FAILED, decided.reason
    if decided.state in (ACCEPTED, SLOWER) and history.intact(name):
        if history.in_use(name) and intact(history.output):
            return IN_USE, ""
        history.use(name)
        return RESTORED, "made before"
    try:
        if not history.intact(name):
            compile(_compile_arguments(subscription, version, history.package(name), settings), settings)
        if back or decided.state == ACCEPTED:
            decision = Decision(ACCEPTED, "an earlier champion")
        else:
            decision = _judge(history.package(name), history.output, device, settings)
    except DeviceLost:
        raise
    except TclError as error:
        attempts = _MOST_ATTEMPTS if isinstance(error, BadInput) else decided.attempts + 1
        history.decide(name, Decision(FAILED, str(error), attempts))
        raise
    history.decide(name, decision)
    if decision.state == SLOWER:
        return KEPT, decision.reason
    history.use(name)
    return REPLACED, decision.reason


def _name(subscription: Subscription, device: Device, version: "ModelVersion", settings: Settings) -> str:
    """Names a package by all that it depends on; the ONNX file's content counts, not its path."""
    from tcl.compiler.frontend.reader import digest_onnx
    from tcl.compiler.packaging.manifest import BUILD_VERSION

    content = digest_onnx(settings.root / subscription.model)
    build = [installed_version("apache-tvm"), BUILD_VERSION]
    parts = [content, device.target, *build, settings.tuning.trials]
    text = json.dumps([version.name, version.tags.get("sha256"), *parts], sort_keys=True)
    return f"v{version.version}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _compile_arguments(
    subscription: Subscription, version: "ModelVersion", folder: Path, settings: Settings
) -> CompileArguments:
    """The compile of a version that has passed the gate."""
    model = str(settings.root / subscription.model)
    return CompileArguments(
        model, subscription.device, str(folder), subscription.shapes, version=version.version
    )


def _judge(new: Path, old: Path, device: Device, settings: Settings) -> Decision:
    """Compare a new package, which compiling has verified, with the one in use."""
    if not _comparable(new, old):
        return Decision(ACCEPTED, "there was no package of this model to compare with")
    ratios = _ratios(new, old, device, settings)
    middle = statistics.median(ratios)
    measured = (
        f"{middle:.2f}x the latency of the old one"
        f" ({min(ratios):.2f} to {max(ratios):.2f} over {len(ratios)} pairs)"
    )
    bound = settings.promotion.latency_bound
    if middle > 1 + bound:
        return Decision(SLOWER, f"{measured}, more than the {bound:.0%} of noise allowed")
    return Decision(ACCEPTED, measured)


def _comparable(new: Path, old: Path) -> bool:
    """Whether the old package does the same on the same device, so that their latencies can be compared."""
    from tcl.compiler.packaging.manifest import Manifest

    if not intact(old):
        return False
    mine, its = Manifest.read(new), Manifest.read(old)
    return (
        all(
            getattr(mine, name) == getattr(its, name)
            for name in ("onnx_sha256", "inputs", "values", "tvm_version")
        )
        and mine.device.target == its.device.target
    )


def _ratios(new: Path, old: Path, device: Device, settings: Settings) -> list[float]:
    """Latency of the new package over the old one's, by pairs timed one right after the other."""
    from tcl.jobs.checks import time_on

    with alone_on(device.name, settings):
        timed = time_on({"old": old, "new": new}, None, device, settings.promotion.latency_rounds, settings)
    pairs = zip(timed["new"]["rounds"], timed["old"]["rounds"], strict=True)
    return [mine / its for mine, its in pairs]
