"""Places in buffers as arithmetic of loop variables: which variables occur, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import tirx

Var = Any
Expr = Any

_BINARY = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
}


def has(expr: Expr, variable: Var) -> bool:
    """Whether a variable occurs in an index that `evaluate` can read."""
    if isinstance(expr, tirx.Var):
        return bool(expr.same_as(variable))
    return type(expr) in _BINARY and (has(expr.a, variable) or has(expr.b, variable))


def is_readable(expr: Expr, variables: Sequence[Var]) -> bool:
    """Whether `evaluate` can, given values of these variables."""
    if type(expr) in _BINARY:
        return is_readable(expr.a, variables) and is_readable(expr.b, variables)
    if isinstance(expr, tirx.Var):
        return any(expr.same_as(variable) for variable in variables)
    return isinstance(expr, tirx.IntImm)


def evaluate(expr: Expr, values: Sequence[tuple[Var, Any]]) -> Any:
    """Value of an index; variables may have arrays of values."""
    if isinstance(expr, tirx.Var):
        return next(value for variable, value in values if expr.same_as(variable))
    if isinstance(expr, tirx.IntImm):
        return np.int64(expr.value)
    return _BINARY[type(expr)](evaluate(expr.a, values), evaluate(expr.b, values))
