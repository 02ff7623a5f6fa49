"""Whether values that were read from JSON are what a dataclass declares."""

from __future__ import annotations

import math
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


def check_fields(instance: Any) -> None:
    """Refuse a dataclass's object where a field is not of its declared type.

    Raises
    ------
    TypeError
        Then, naming the field.
    """
    for name, hint in get_type_hints(type(instance)).items():
        value = getattr(instance, name)
        if not conforms(value, hint):
            raise TypeError(f"{name} is {str(value)[:40]!a}")


def conforms(value: Any, hint: Any) -> bool:
    """Whether a value is of a type: a class, a union, or a list, tuple or dict of such.

    A float is any finite number, and a text is one that can name a file.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(conforms(value, one) for one in inner)
    if origin in (list, tuple):
        return isinstance(value, origin) and all(conforms(item, inner[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            conforms(key, inner[0]) and conforms(item, inner[1]) for key, item in value.items()
        )
    if hint is float:
        return type(value) in (int, float) and abs(value) < math.inf
    if hint is str:
        return isinstance(value, str) and not any("\ud800" <= character < "\udc80" for character in value)
    return type(value) is hint
