"""Every setting of the product: one frozen object, read from `tcl.toml`, `TCL_*` variables and flags.

The later wins: defaults < `tcl.toml` < environment < flags. Section and field of ``tcl.toml`` make the
variable's name: ``[measure] fraction`` is ``TCL_MEASURE_FRACTION``. ``TCL_ROOT`` names the project folder.
Variables whose first word is no section (the Tcl language has its own, such as TCL_LIBRARY) are ignored.
"""

import math
import os
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tcl.errors import BadInput, shown

FILE_NAME = "tcl.toml"


LARGEST = {int: 10**9, float: 10**6}
"""Limits of what has none of its own: seeds and counts that 32 bits hold, seconds that every wait takes."""


def _number(default: int | float, low: float, high: float | None = None) -> Any:
    return field(default=default, metadata={"range": (low, high or LARGEST[type(default)])})


@dataclass(frozen=True)
class MlflowSettings:
    """`[mlflow]`: where cost models and compile runs are registered."""

    tracking_uri: str | None = field(default=None, metadata={"schemes": ("http", "https", "sqlite")})
    """Address of an MLflow server (or of an SQLite file); unset: `mlflow.db` in the project folder."""


@dataclass(frozen=True)
class PrefectSettings:
    """`[prefect]`: where flows run."""

    api_url: str | None = None
    """A Prefect API; unset: single commands run in process. ``PREFECT_API_URL`` has the same effect."""
    dask: str | None = None
    """Address of a Dask scheduler whose workers build candidates and make features; unset: this host does."""


@dataclass(frozen=True)
class ServeSettings:
    """`[serve]`: what `tcl serve` starts."""

    port: int = _number(4200, 1, 65535)
    """Port, on the loopback interface, of the Prefect server that it starts when no Prefect API is set."""
    reconcile_seconds: float = _number(300.0, 1)
    """Seconds between two comparisons of the dataset with the registry."""
    work_pool: str | None = None
    """Prefect work pool of a fleet: each host that serves it takes runs from it. Unset: all run on this host."""
    runs: int = _number(2, 1)
    """Runs that this host takes from the work pool at a time."""


@dataclass(frozen=True)
class DvcSettings:
    """`[dvc]`: how measurements are versioned."""

    remote: str = "store"
    """The DVC remote that data is pushed to; made as `.dvcstore` in the project folder when absent."""
    git_commit: bool = False
    """Commit `data.dvc` and the new store files to git with each data version."""


@dataclass(frozen=True)
class MeasureSettings:
    """`[measure]`: how candidates are chosen, built and timed."""

    fraction: float = _number(0.1, 0.0001, 1)
    """Share of the candidate pool that is measured."""
    pool_size: int = _number(512, 1)
    """Candidates sampled from the design space of each task."""
    repeats: int = _number(15, 1)
    """Timed repeats of a candidate; its latency is their median."""
    candidate_seconds: float = _number(0.15, 0)
    """Time for the repeats of one candidate; slow candidates get fewer repeats."""
    build_workers: int = _number(1, 1)
    """Build processes."""
    build_timeout: float = _number(30.0, 0)
    """Seconds that the build of one candidate may take."""
    run_timeout: float = _number(10.0, 0)
    """Seconds that the run of one candidate may take."""
    device_wait: float = _number(600.0, 0)
    """Seconds that a remote device which went away is waited for, each time."""
    seed: int = _number(0, 0)
    """Seed of the pool and of the choice."""


@dataclass(frozen=True)
class LearningSettings:
    """`[learning]`: how cost models are trained and distilled."""

    seed: int = _number(0, 0)
    """Seed of initialisation, batches and splits."""
    epochs: int = _number(50, 1)
    """Most epochs; training stops early on held-out tasks."""
    forgetting_bound: float = _number(0.02, 0, 1)
    """Top-1 that the knowledge base may lose on an earlier device before it is not replaced."""


@dataclass(frozen=True)
class TuningSettings:
    """`[tuning]`: the search of a compile."""

    trials: int = _number(256, 0)
    """Candidates measured per network at most, fewer when none promises a gain; 0 goes by the model alone."""
    population: int = _number(256, 2)
    """Candidates that the search keeps per generation."""
    seed: int = _number(0, 0)
    """Seed of the search."""


@dataclass(frozen=True)
class PromotionSettings:
    """`[promotion]`: the gate before a champion is used, and what follows a promotion."""

    metric_bound: float = _number(0.02, 0, 1)
    """Top-1 or top-5 that a champion may lose against the one before it."""
    latency_bound: float = _number(0.05, 0)
    """Share of its latency by which a new package may seem slower than the old one: the noise of the timing."""
    latency_rounds: int = _number(5, 1)
    """Processes that time each of the two packages, in turn."""
    poll_seconds: float = _number(300.0, 1)
    """Time between two looks at the registry."""
    webhook_port: int = _number(9180, 0, 65535)
    """Loopback port where MLflow's server reports promotions; 0 takes a free one."""
    kept_packages: int = _number(5, 1)
    """Packages of earlier champions that are kept of each subscribed model, so that a rollback is immediate."""


@dataclass(frozen=True)
class UpSettings:
    """`[up]`: the budgets of `tcl up`, which together take ten minutes on two cores."""

    measure_per_program: int = _number(16, 1)
    """Measurements that each tensor program of the model should have."""
    measure_seconds: float = _number(150.0, 1)
    """Time for measuring."""
    distill_seconds: float = _number(150.0, 1)
    """Time for training a cost model."""


@dataclass(frozen=True)
class VerifySettings:
    """`[verify]`: largest error of a package against onnxruntime, relative to the output's largest magnitude."""

    float64: float = _number(1e-9, 0)
    """Tolerance of float64 outputs."""
    float32: float = _number(1e-4, 0)
    """Tolerance of float32 outputs."""
    float16: float = _number(2e-2, 0)
    """Tolerance of float16 outputs, and of all floats of models that compute in float16. 8-bit integers may be one
    step off; other outputs must be equal."""
    quantised: float = _number(5e-2, 0)
    """Tolerance of floats and 8-bit integers of models with quantised activations."""


@dataclass(frozen=True)
class Settings:
    """All settings of one project folder; make it with `load_settings`.

    The paths of the project folder are properties, all absolute.
    """

    root: Path
    mlflow: MlflowSettings = MlflowSettings()
    prefect: PrefectSettings = PrefectSettings()
    serve: ServeSettings = ServeSettings()
    dvc: DvcSettings = DvcSettings()
    measure: MeasureSettings = MeasureSettings()
    learning: LearningSettings = LearningSettings()
    tuning: TuningSettings = TuningSettings()
    promotion: PromotionSettings = PromotionSettings()
    up: UpSettings = UpSettings()
    verify: VerifySettings = VerifySettings()

    @property
    def data_dir(self) -> Path:
        """Measurements, tracked by `data.dvc`."""
        return self.root / "data"

    @property
    def devices_dir(self) -> Path:
        """Device files."""
        return self.root / "devices"

    @property
    def state_dir(self) -> Path:
        """Locks, caches, and what was measured and not taken over yet; loses that when it is deleted."""
        return self.root / ".tcl"

    @property
    def subscriptions_file(self) -> Path:
        """The models that promotions re-compile."""
        return self.root / "subscriptions.json"

    @property
    def packages_dir(self) -> Path:
        """Packages by cost model version, for promotions and rollbacks."""
        return self.state_dir / "packages"

    @property
    def models_dir(self) -> Path:
        """Verified local copies of registered models."""
        return self.state_dir / "models"

    @property
    def prefect_home(self) -> Path:
        """Prefect's own database and settings."""
        return self.state_dir / "prefect"

    @property
    def served_api(self) -> Path:
        """Holds the address of the Prefect API for which `tcl serve` runs; there while it runs."""
        return self.state_dir / "prefect_api"

    @property
    def mlflow_tracking_uri(self) -> str:
        """MLflow's tracking and registry address."""
        return self.mlflow.tracking_uri or f"sqlite:///{self.mlflow_database}"

    @property
    def mlflow_database(self) -> Path:
        """MLflow's own database, where no other tracking address is set."""
        return self.root / "mlflow.db"

    @property
    def mlflow_artifacts(self) -> Path:
        """Folder of artifacts when the tracking address is a local database."""
        return self.root / "mlruns"


_SECTIONS: dict[str, type] = {f.name: f.type for f in fields(Settings) if f.name != "root"}  # type: ignore[misc]


def load_settings(
    root: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Read the settings of a project folder.

    Parameters
    ----------
    root
        The project folder; None: ``TCL_ROOT``, else the current folder.
    overrides
        Values of flags as ``{"measure.fraction": 0.2}``; None values are flags that were not given.
    environ
        Environment variables; None: the process's own.

    Raises
    ------
    BadInput
        When a key is unknown or a value has the wrong type or range, naming its source.
    """
    environ = os.environ if environ is None else environ
    root = Path(root or environ.get("TCL_ROOT") or Path.cwd()).expanduser().absolute()
    if not root.is_dir():
        raise BadInput(f"the project folder {root} does not exist; make it, or name another with TCL_ROOT")
    values: dict[str, dict[str, Any]] = {section: {} for section in _SECTIONS}
    for source, key, value in [*_from_file(root / FILE_NAME), *_from_environment(environ)]:
        _set(values, source, key, value)
    for key, value in (overrides or {}).items():
        if value is not None:
            _set(values, "flag", key, value)
    return Settings(root, **{name: kind(**values[name]) for name, kind in _SECTIONS.items()})


def _from_file(path: Path) -> list[tuple[str, str, Any]]:
    if not path.exists():
        return []
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise BadInput(f"{path}: cannot be read as TOML ({error})") from None
    found = []
    for section, content in document.items():
        if section not in _SECTIONS or not isinstance(content, dict):
            raise BadInput(f"{path}: [{section}] is no section of settings; allowed: {', '.join(_SECTIONS)}")
        found += [(str(path), f"{section}.{key}", value) for key, value in content.items()]
    return found


def _from_environment(environ: Mapping[str, str]) -> list[tuple[str, str, Any]]:
    found: list[tuple[str, str, Any]] = []
    for variable, text in sorted(environ.items()):
        prefix, _, rest = variable.partition("_")
        section, _, key = rest.lower().partition("_")
        if prefix == "TCL" and section in _SECTIONS and key:
            name = f"{section}.{key}"
            found.append((f"environment variable {variable}", name, _parse(variable, name, text)))
    return found


def _set(values: dict[str, dict[str, Any]], source: str, key: str, value: Any) -> None:
    section, _, name = key.partition(".")
    kind, limits = _field(source, section, name)
    low, high = limits.get("range", (-math.inf, math.inf))
    allowed = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    whole = float in allowed and type(value) is int
    if type(value) not in allowed and not whole:
        raise BadInput(f"{source}: {key} must be {_spell(kind)}, not {shown(value)}")
    if isinstance(value, int | float) and not low <= value <= high:
        raise BadInput(f"{source}: {key} must be from {low:.10g} to {high:.10g}, not {shown(value)}")
    if "schemes" in limits and (scheme := value.partition("://")[0]) not in limits["schemes"]:
        raise BadInput(
            f"{source}: {key} must begin with {'://, '.join(limits['schemes'])}://, not {shown(scheme)};"
            " other databases stand behind an MLflow server (docs/operating.md)"
        )
    values[section][name] = float(value) if whole else value


def _field(source: str, section: str, name: str) -> tuple[Any, Mapping[str, Any]]:
    """A setting's type and limits."""
    if section not in _SECTIONS:
        raise BadInput(f"{source}: {section!r} is no section of settings; allowed: {', '.join(_SECTIONS)}")
    known = {f.name: f for f in fields(_SECTIONS[section])}
    if name not in known:
        raise BadInput(f"{source}: {name!r} is no setting of [{section}]; allowed: {', '.join(known)}")
    return known[name].type, known[name].metadata


def _parse(variable: str, key: str, text: str) -> Any:
    """Give a variable's text the type of its setting; what does not fit stays text, for `_set` to refuse."""
    section, _, name = key.partition(".")
    kind, _ = _field(f"environment variable {variable}", section, name)
    if kind is bool:
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            return text
    return text


def _spell(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return names.get(kind, "a text")
