"""The file `params.yaml`, which holds the sizes of the benchmarks' studies by section."""

from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from tcl.errors import BadInput

Params = TypeVar("Params")


def read_studies(path: Path, section: str, params: type[Params]) -> dict[str, Params]:
    """Return each study in a section as a dataclass `params`, by the study's name; lists become tuples.

    Raises
    ------
    BadInput
        When the file or the section is missing or is not as described, or a study has an unknown name.
    """
    import yaml

    if not path.is_file():
        raise BadInput(f"{path} does not exist; it holds the sizes of the benchmark under `{section}:`")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: cannot be read as YAML ({' '.join(str(error).split())})") from None
    studies = content.get(section) if isinstance(content, dict) else None
    if not isinstance(studies, dict) or not studies:
        raise BadInput(f"{path} has no study under `{section}:`")
    names = {field.name for field in fields(params)}  # type: ignore[arg-type]
    found = {}
    for study, sizes in studies.items():
        if not isinstance(sizes, dict):
            raise BadInput(f"{path}: the study {study} must hold sizes by name, not {sizes!r}")
        if unknown := set(sizes) - names:
            raise BadInput(f"{path}: the study {study} has the unknown name {min(unknown)}")
        found[study] = params(**{name: _tuples(value) for name, value in sizes.items()})
    return found


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
