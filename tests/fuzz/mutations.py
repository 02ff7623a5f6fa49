"""Strategies that spoil right inputs: bytes are cut and changed, JSON values replaced by other ones."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

NUMBERS = st.one_of(
    st.integers(-3, 70),
    st.sampled_from([2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, 2**64, -(2**31), 10**40]),
    st.floats(allow_nan=True, allow_infinity=True),
)
TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["", ".", "..", "../secret", "/etc/passwd", "a/../../secret", "x" * 5000, "\0", "💥", "NaN"]
    ),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


@st.composite
def spoilt_bytes(draw: st.DrawFn, right: bytes) -> bytes:
    """`right`, cut, with some bytes changed, some taken out and some put in."""
    data = bytearray(right)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        kind = draw(st.sampled_from(["cut", "change", "change", "insert", "remove"]))
        if kind == "cut":
            del data[at:]
        elif kind == "change" and data:
            data[at] = draw(st.integers(0, 255))
        elif kind == "insert":
            data[at:at] = draw(st.binary(max_size=8))
        else:
            del data[at : at + draw(st.integers(1, 64))]
    return bytes(data)


@st.composite
def spoilt_json(draw: st.DrawFn, right: Any) -> Any:
    """`right` with a few of its values replaced, removed or added."""
    value = copy.deepcopy(right)
    for _ in range(draw(st.integers(1, 3))):
        value = _spoil(draw, value)
    return value


def _spoil(draw: st.DrawFn, value: Any) -> Any:
    inner = isinstance(value, dict | list) and len(value) > 0
    if not inner or draw(st.integers(0, 5)) == 0:
        return draw(VALUES)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = draw(st.sampled_from(keys))
    action = draw(st.sampled_from(["deeper", "deeper", "deeper", "remove", "add"]))
    if action == "deeper":
        value[key] = _spoil(draw, value[key])
    elif action == "remove":
        del value[key]
    elif isinstance(value, dict):
        value[draw(TEXTS)] = draw(VALUES)
    else:
        value.insert(key, draw(VALUES))
    return value
