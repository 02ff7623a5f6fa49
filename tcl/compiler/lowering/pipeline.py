"""From a Relax module of operators to fused tensor programs, ready for tuning.

Phases: blocked layouts → constants folded and packed in numpy → legalisation → fusion. Weights are packed here, once,
so that a package carries them in the order in which its kernels read them.
"""

from __future__ import annotations

import tvm
from tvm import relax, topi

from tcl.compiler.frontend.constants import fold_constants
from tcl.compiler.lowering.convolution import legalize_conv2d
from tcl.compiler.lowering.layout import block_layouts
from tcl.compiler.lowering.raising import raise_operators


def _legalize_erf(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalise erf to a rational function: exact to 4e-7, and vectorised, where TVM calls the C library per element."""
    if call.args[0].ty.dtype != "float32":
        return tvm.ir.Op.get("relax.erf").get_attr("FLegalize")(builder, call)
    return builder.call_te(topi.fast_erf, call.args[0], primfunc_name_hint="erf")


_LEGALIZATIONS = {"relax.nn.conv2d": legalize_conv2d, "relax.erf": _legalize_erf}


def lower(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Lower operators to fused tensor programs.

    Parameters
    ----------
    mod
        Relax module with constants bound (`tcl.compiler.frontend.model.import_relax`).
    target
        The device's TVM target.

    Returns
    -------
    tvm.IRModule
        `main` calls fused PrimFuncs through ``call_tir``.
    """
    with target, tvm.transform.PassContext(opt_level=3):
        mod = fold_constants()(raise_operators(mod))
        if target.kind.name == "llvm":  # the threads of a GPU's block run along the width of plain layouts
            mod = fold_constants()(block_layouts(mod))
        return tvm.transform.Sequential(
            [
                relax.transform.DecomposeOpsForInference(),
                relax.transform.CanonicalizeBindings(),
                relax.backend.DispatchSampling(),
                relax.backend.DispatchSortScan(),
                relax.transform.LegalizeOps(_LEGALIZATIONS),
                relax.transform.AnnotateTIROpPattern(),
                relax.transform.DeadCodeElimination(),
                relax.transform.FuseOps(),
                relax.transform.FuseTIR(),
                relax.transform.DeadCodeElimination(),
            ]
        )(mod)
