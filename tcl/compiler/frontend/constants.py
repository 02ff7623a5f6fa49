"""Arithmetic on constants, folded in numpy: TVM's FoldConstant would compile a kernel for each operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

_Fold = Callable[[Any, list[Any]], np.ndarray]


def _axes(value: Any) -> Any:
    return None if value is None else tuple(int(axis) for axis in value)


def _dequantized(call: Any, arguments: list[Any]) -> np.ndarray:
    data, scale, zero_point = arguments
    along = [1] * data.ndim
    if np.size(scale) > 1 or np.size(zero_point) > 1:
        along[int(call.attrs.axis)] = -1
    steps = data.astype(np.int32) - np.reshape(zero_point, along).astype(np.int32)
    return np.asarray(steps.astype(str(call.attrs.out_dtype)) * np.reshape(scale, along))


# Operators whose numpy form is exact, or rounds as TVM's does; their arguments are arrays and shapes
# (tuples).
_FOLDS: dict[str, _Fold] = {
    "relax.reshape": lambda call, a: np.reshape(a[0], a[1]),
    "relax.broadcast_to": lambda call, a: np.broadcast_to(a[0], a[1]),
    "relax.permute_dims": lambda call, a: np.transpose(a[0], _axes(call.attrs.axes)),
    "relax.expand_dims": lambda call, a: np.expand_dims(a[0], _axes(call.attrs.axis)),
    "relax.squeeze": lambda call, a: np.squeeze(a[0], _axes(call.attrs.axis)),
    "relax.shape_to_tensor": lambda call, a: np.array(a[0], np.int64),
    "relax.take": lambda call, a: np.take(a[0], a[1], call.attrs.axis, mode="wrap"),
    "relax.astype": lambda call, a: a[0].astype(str(call.attrs.dtype)),
    "relax.where": lambda call, a: np.asarray(np.where(a[0], a[1], a[2])),
    "relax.add": lambda call, a: np.add(*a),
    "relax.subtract": lambda call, a: np.subtract(*a),
    "relax.multiply": lambda call, a: np.multiply(*a),
    "relax.negative": lambda call, a: np.negative(*a),
    "relax.sqrt": lambda call, a: np.sqrt(*a),
    "relax.isnan": lambda call, a: np.isnan(*a),
    "relax.dequantize": _dequantized,
}
# Integer division rounds differently in numpy.
_FLOAT_FOLDS: dict[str, _Fold] = {
    "relax.divide": lambda call, a: np.divide(*a),
    "relax.rsqrt": lambda call, a: np.reciprocal(np.sqrt(*a)),
}


@mutator
class _Folder(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        name = call.op.name if isinstance(call.op, tvm.ir.Op) else ""
        if name == "relax.shape_of" and isinstance(call.args[0].ty.shape, relax.ShapeExpr):
            return call.args[0].ty.shape
        fold = _FOLDS.get(name) or _FLOAT_FOLDS.get(name)
        if fold is None:
            return call
        arguments = [self._value(argument) for argument in call.args]
        if any(argument is None for argument in arguments):
            return call
        if name in _FLOAT_FOLDS and not np.issubdtype(arguments[0].dtype, np.floating):
            return call
        with np.errstate(all="ignore"):
            result = fold(call, arguments)
        return relax.const(np.ascontiguousarray(result).reshape(result.shape), str(result.dtype))

    def _value(self, expr: relax.Expr) -> Any:
        """An argument as an array or a shape, or None where it is not constant."""
        if isinstance(expr, relax.Var):
            bound = self.lookup_binding(expr)
            expr = expr if bound is None else bound
        if isinstance(expr, tvm.ir.GenericConst):
            return expr.value.numpy()
        if isinstance(expr, relax.ShapeExpr) and all(isinstance(v, tvm.tirx.IntImm) for v in expr.values):
            return tuple(int(v) for v in expr.values)
        return None


@relax.transform.function_pass(opt_level=0, name="FoldConstantsInNumpy")
class _FoldConstants:
    def transform_function(
        self, func: relax.Function, module: tvm.IRModule, context: tvm.transform.PassContext
    ) -> relax.Function:
        return _Folder(module).visit_expr(func)


def fold_constants() -> tvm.ir.transform.Pass:
    """Return the pass that evaluates reshapes, casts, transposes and plain arithmetic on constants."""
    return _FoldConstants()
