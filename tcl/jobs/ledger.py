"""Which programs a device has been tuned for, and how thoroughly: those cost no trial when they come again.

A program counts as tuned when a compile that held it came to its end, with as many trials for each of its programs as
the compile at hand would spend. The records say what is fastest; this file says that the search for it was finished.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from tcl.files import atomic_json, locked
from tcl.settings import Settings

_LOCK_SECONDS = 60.0


def thoroughness(settings: Settings, device: str) -> dict[str, float]:
    """Trials per program of the most thorough tuning that each program, by workload key, has been through."""
    try:
        content = json.loads(_path(settings, device).read_text(encoding="utf-8"))
        return {key: float(trials) for key, trials in content.items()}
    except (
        FileNotFoundError,
        AttributeError,
        TypeError,
        ValueError,
    ):  # none, or damaged: they are tuned once more
        return {}


def note_tuned(settings: Settings, device: str, keys: Iterable[str], trials_per_program: float) -> None:
    """Record that a tuning of these programs came to its end."""
    path = _path(settings, device)
    with locked(path.with_suffix(".lock"), _LOCK_SECONDS, "the list of tuned programs"):
        known = thoroughness(settings, device)
        for key in keys:
            known[key] = max(known.get(key, 0.0), trials_per_program)
        atomic_json(path, known)


def _path(settings: Settings, device: str) -> Path:
    return settings.state_dir / "tuned" / f"{device}.json"
