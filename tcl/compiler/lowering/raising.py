"""Back from tensor programs that the ONNX importer emits itself to the operators they are, so that passes see them."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

# The importer writes Clip as these two, to keep its bounds inputs.
_OPERATORS: dict[str, Callable[[relax.Expr, relax.Expr], relax.Expr]] = {
    "T_maximum": relax.op.maximum,
    "T_minimum": relax.op.minimum,
}


def raise_operators(mod: tvm.IRModule) -> tvm.IRModule:
    """Replace calls of element-wise maximum and minimum programs by the Relax operators."""
    raiser = _Raiser(mod)
    mod = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    mod["main"] = raiser.visit_expr(mod["main"])
    return relax.transform.DeadCodeElimination()(mod)


@mutator
class _Raiser(PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._mod = mod

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if not isinstance(call.op, tvm.ir.Op) or call.op.name != "relax.call_tir":
            return call
        function, arguments = self._mod[call.args[0]], call.args[1]
        schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": function}))
        blocks = schedule.get_child_blocks(schedule.get_sblock("root", func_name="main"))
        operator = _OPERATORS.get(schedule.get(blocks[0]).name_hint) if len(blocks) == 1 else None
        if operator is None or not isinstance(arguments, relax.Tuple) or len(arguments.fields) != 2:
            return call
        return operator(*arguments.fields)
