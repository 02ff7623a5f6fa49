"""The file `params.yaml`, which holds the sizes of the benchmarks' studies by section."""

from pathlib import Path
from typing import Any

from tcl.errors import BadInput


def read_studies(path: Path, section: str) -> dict[str, dict[str, Any]]:
    """Return the sizes of each study in a section, by the study's name.

    Raises
    ------
    BadInput
        When the file or the section is missing or is not as described.
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
    for study, sizes in studies.items():
        if not isinstance(sizes, dict):
            raise BadInput(f"{path}: the study {study} must hold sizes by name, not {sizes!r}")
    return studies
