"""The packages of a subscribed model, one for each champion, and what was decided about each.

They lie in `.tcl/packages/DEVICE/MODEL-HASH/`; the subscription's output folder is a copy of the one in use.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tcl.console import note
from tcl.errors import BadInput
from tcl.files import atomic_directory, atomic_json
from tcl.jobs.subscriptions import Subscription
from tcl.settings import Settings

NEW, ACCEPTED, SLOWER, FAILED = "new", "accepted", "slower", "failed"


@dataclass(frozen=True)
class Decision:
    """What became of one package.

    Attributes
    ----------
    state
        `NEW`, `ACCEPTED`, `SLOWER` or `FAILED`.
    reason
        Why.
    attempts
        How often it failed.
    """

    state: str
    reason: str = ""
    attempts: int = 0

    def __post_init__(self) -> None:
        if self.state not in (NEW, ACCEPTED, SLOWER, FAILED):
            raise ValueError(f"{self.state!r} is no decision")
        if not isinstance(self.reason, str) or type(self.attempts) is not int:
            raise TypeError("a reason is no text, or attempts are no number")


class PackageHistory:
    """Packages and decisions of one subscription; use it under the subscription's lock."""

    def __init__(self, subscription: Subscription, settings: Settings) -> None:
        self.folder = settings.packages_dir / subscription.device / subscription.key
        self.output = settings.root / subscription.output
        self._most = settings.promotion.kept_packages
        self._file = self.folder / "decisions.json"

    def package(self, name: str) -> Path:
        """Folder of the package `name`, there or not."""
        return self.folder / name

    def decision(self, name: str) -> Decision | None:
        """What was decided about a package; None when nothing was."""
        return self._decisions().get(name)

    def decide(self, name: str, decision: Decision) -> None:
        """Keep a decision."""
        decisions = {**self._decisions(), name: decision}
        atomic_json(self._file, {name: asdict(decided) for name, decided in decisions.items()})

    def version_in_use(self, model: str) -> int | None:
        """Version of the cost model `model` that made the package in the output folder; None when none did."""
        from tcl.compiler.packaging.manifest import Manifest

        try:
            used = Manifest.read(self.output).cost_model or {}
        except BadInput:
            return None
        return used.get("version") if used.get("name") == model else None

    def in_use(self, name: str) -> bool:
        """Whether the output folder holds this package."""
        mine, its = (_manifest_text(folder) for folder in (self.package(name), self.output))
        return mine is not None and mine == its

    def intact(self, name: str) -> bool:
        """Whether the package is here and whole."""
        return intact(self.package(name))

    def use(self, name: str) -> None:
        """Put a package into the output folder, and let go of the oldest ones."""
        from tcl.compiler.packaging.package import check_target

        check_target(self.output)
        source = self.package(name)
        with atomic_directory(self.output) as folder:
            shutil.copytree(source, folder, dirs_exist_ok=True)
        source.touch()  # the oldest are those not used for longest
        kept = sorted((path for path in self.folder.iterdir() if path.is_dir()), key=_used, reverse=True)
        for old in kept[self._most :]:
            shutil.rmtree(old, ignore_errors=True)

    def _decisions(self) -> Mapping[str, Decision]:
        try:
            content = json.loads(self._file.read_text(encoding="utf-8"))
            return {name: Decision(**fields) for name, fields in content.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            note(f"{self._file} cannot be read ({error}); its packages are made again")
            return {}


def intact(folder: Path) -> bool:
    """Whether a folder holds a whole package."""
    from tcl.compiler.packaging.manifest import Manifest
    from tcl.compiler.running.loader import check_files

    try:
        check_files(folder, Manifest.read(folder))
    except BadInput:
        return False
    return True


def _manifest_text(folder: Path) -> bytes | None:
    from tcl.compiler.packaging.manifest import MANIFEST

    try:
        return (folder / MANIFEST).read_bytes()
    except OSError:
        return None


def _used(folder: Path) -> float:
    return folder.stat().st_mtime
