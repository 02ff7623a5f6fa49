"""The file `params.yaml`, which holds the sizes of the benchmarks' studies by section."""

import re
import types
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from tcl.errors import BadInput, shown
from tcl.fields import conforms
from tcl.settings import LARGEST

Params = TypeVar("Params")
_STUDY = re.compile(r"[A-Za-z0-9][\w.-]*")  # it becomes a part of files' names
_WORDS = {str: "a text", int: "a whole number", float: "a number", types.NoneType: "null"}


def read_studies(path: Path, section: str, params: type[Params]) -> dict[str, Params]:
    """Return each study in a section as a dataclass `params`, by the study's name; lists become tuples.

    Raises
    ------
    BadInput
        When the file or the section is missing or is not as described, or a study has an unknown name, lacks one, or
        gives one a value of another type than the dataclass.
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
    for study in studies:
        if not isinstance(study, str) or not _STUDY.fullmatch(study):
            raise BadInput(
                f"{path}: {shown(study)} cannot name a study; use letters, digits, '.', '_' and '-'"
            )
    return {study: _read(f"{path}: the study {study}", sizes, params) for study, sizes in studies.items()}


def _read(where: str, sizes: Any, params: type[Params]) -> Params:
    if not isinstance(sizes, dict):
        raise BadInput(f"{where} must hold sizes by name, not {shown(sizes)}")
    kinds = get_type_hints(params)
    values = {name: _tuples(value) for name, value in sizes.items()}
    for name, value in values.items():
        if name not in kinds:
            raise BadInput(f"{where} has the unknown name {name}")
        if not conforms(value, kinds[name]) or not _has_sizes(value):
            raise BadInput(f"{where}: {name} must be {_words(kinds[name])}, not {shown(sizes[name])}")
    for field in fields(params):  # type: ignore[arg-type]
        if field.name not in sizes and field.default is MISSING and field.default_factory is MISSING:
            raise BadInput(f"{where} lacks {field.name}, {_words(kinds[field.name])}")
    return params(**values)


def _has_sizes(value: Any) -> bool:
    """Whether all numbers in a value are neither negative nor beyond all limits."""
    if isinstance(value, dict):
        return all(map(_has_sizes, value.values()))
    if isinstance(value, tuple):
        return all(map(_has_sizes, value))
    return type(value) not in LARGEST or 0 <= value <= LARGEST[type(value)]


def _words(kind: Any) -> str:
    inner = [_words(one) for one in get_args(kind) if one is not ...]
    if get_origin(kind) is types.UnionType:
        return " or ".join(inner)
    if get_origin(kind) is tuple:
        return f"a list, each item {inner[0]}"
    return f"a mapping, each value {inner[1]}" if inner else _WORDS[kind]


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
