"""From a Relax module of operators to fused tensor programs, ready for tuning.

Phases: blocked layouts → constants folded and packed in numpy → legalisation → fusion. Weights are packed here, once, so a
package carries them in the order in which its kernels read them.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from tcl.compiler.constants import fold_constants
from tcl.compiler.layout import blocked_layouts, channel_block, legalize_conv2d


def target_of(target: dict[str, object]) -> tvm.target.Target:
    """Return the TVM target of a device's JSON description."""
    return tvm.target.Target(target)


def lower(mod: tvm.IRModule, target: tvm.target.Target, lanes: int) -> tvm.IRModule:
    """Lower operators to fused tensor programs.

    Parameters
    ----------
    mod
        Relax module with constants bound (`tcl.compiler.frontend.import_relax`).
    target
        The device's TVM target.
    lanes
        float32 lanes of its vector registers; 1 keeps convolutions in NCHW.

    Returns
    -------
    tvm.IRModule
        `main` calls fused PrimFuncs through ``call_tir``.
    """
    with target, tvm.transform.PassContext(opt_level=3):
        if lanes > 1:
            mod = blocked_layouts(lanes)(mod)
        mod = fold_constants()(pack_constants(fold_constants()(mod)))
        return tvm.transform.Sequential(
            [
                relax.transform.DecomposeOpsForInference(),
                relax.transform.CanonicalizeBindings(),
                relax.backend.DispatchSampling(),
                relax.backend.DispatchSortScan(),
                relax.transform.LegalizeOps(
                    {"relax.nn.conv2d": legalize_conv2d, "relax.matmul": _matmul_legalizer(lanes)}
                ),
                relax.transform.AnnotateTIROpPattern(),
                relax.transform.DeadCodeElimination(),
                relax.transform.FuseOps(),
                relax.transform.FuseTIR(),
                relax.transform.DeadCodeElimination(),
            ]
        )(mod)


def pack_constants(mod: tvm.IRModule) -> tvm.IRModule:
    """Evaluate layout transforms of constants in numpy (TVM's FoldConstant would compile a kernel for each)."""
    packer = _ConstantPacker(mod)
    for var, function in mod.functions_items():
        if isinstance(function, relax.Function):
            packer.builder_.update_func(var, packer.visit_expr(function))
    return packer.builder_.get()


@mutator
class _ConstantPacker(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if isinstance(call.op, tvm.ir.Op) and call.op.name == "relax.layout_transform":
            source = call.args[0]
            if isinstance(source, tvm.ir.GenericConst) and call.attrs.pad_value is None:
                return relax.const(_transform_layout(source.value.numpy(), call.attrs.index_map))
        return call


def _transform_layout(array: np.ndarray, index_map: tvm.tirx.IndexMap) -> np.ndarray:
    """Apply an index map whose results are ``i``, ``i // c`` or ``i % c``: a reshape and a transposition."""
    blocks = {}
    for index in index_map.final_indices:
        if isinstance(index, tirx.FloorMod | tirx.FloorDiv):
            blocks[index.a.name] = int(index.b)
    names = [var.name for var in index_map.initial_indices]
    shape: list[int] = []
    axis_of: dict[tuple[str, str], int] = {}
    for name, extent in zip(names, array.shape, strict=True):
        block = blocks.get(name)
        parts = [("whole", extent)] if block is None else [("div", extent // block), ("mod", block)]
        for part, size in parts:
            axis_of[name, part] = len(shape)
            shape.append(size)
    order = []
    for index in index_map.final_indices:
        if isinstance(index, tirx.Var):
            order.append(axis_of[index.name, "whole"])
        else:
            order.append(axis_of[index.a.name, "mod" if isinstance(index, tirx.FloorMod) else "div"])
    return np.ascontiguousarray(array.reshape(shape).transpose(order))


def _matmul_packed(left: te.Tensor, right: te.Tensor) -> te.Tensor:
    """``[..., m, k] x [n / block, k, block] -> [..., m, n]``."""
    *batch, _, depth = (int(d) for d in left.shape)
    rows, (chunks, _, block) = int(left.shape[-2]), (int(d) for d in right.shape)
    k = te.reduce_axis((0, depth), name="k")

    def multiply(*index: tirx.Var) -> tirx.PrimExpr:
        *outer, column = index
        return te.sum(left[(*outer, k)] * right[column // block, k, column % block], axis=[k])

    return te.compute((*batch, rows, chunks * block), multiply, name="matmul_packed", tag="matmul")


def _matmul_legalizer(lanes: int):  # type: ignore[no-untyped-def]
    """Legalise ``x @ constant`` with the constant packed by columns; other products as TVM does."""
    default = tvm.ir.Op.get("relax.matmul").get_attr("FLegalize")

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        left, right = call.args
        if not isinstance(right, tvm.ir.GenericConst) or len(right.value.shape) != 2 or left.ty.ndim < 2:
            return default(builder, call)
        if left.ty.dtype != right.ty.dtype or not all(isinstance(d, tirx.IntImm) for d in left.ty.shape):
            return default(builder, call)
        depth, columns = right.value.shape
        block = channel_block(columns, lanes)
        if block < 4:
            return default(builder, call)
        packed = right.value.numpy().reshape(depth, columns // block, block).transpose(1, 0, 2)
        packed_const = relax.const(np.ascontiguousarray(packed))
        return builder.call_te(_matmul_packed, left, packed_const, primfunc_name_hint="matmul_packed")

    return legalize
