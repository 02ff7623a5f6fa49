"""Blocked convolution layouts: ``NCHW[b]c`` feature maps, with weights packed at compile time.

A convolution vectorises best along its output channels when a block of them lies contiguous in memory. The pass walks
a network once and keeps, for each feature map, its plain and its blocked form, whichever is needed: convolutions
whose channels divide take and give blocked maps, elementwise operators, pooling, concatenation and global means follow
their arguments, and anything else gets the plain form. A transform is emitted only where a map is used in a form that
it does not have yet, so those between blocked operators never appear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

MAX_BLOCK = 16
"""Channels of a block: one AVX-512 register of float32, two of AVX2, four of SSE or NEON. The same for every target, so
that devices share their tensor programs and learn from each other's measurements."""
MIN_BLOCK = 4
_FULL_VECTORS = (MAX_BLOCK, MAX_BLOCK // 2)
_Made = tuple[relax.Expr, int | None] | None  # a rewritten call and its block; None: the call stays
_ELEMENTWISE = frozenset(
    [
        "relax.nn.relu",
        "relax.nn.relu6",
        "relax.nn.leakyrelu",
        "relax.nn.silu",
        "relax.nn.gelu",
        "relax.nn.gelu_tanh",
        "relax.sigmoid",
        "relax.tanh",
        "relax.exp",
        "relax.erf",
        "relax.sqrt",
        "relax.rsqrt",
        "relax.abs",
        "relax.negative",
        "relax.square",
        "relax.clip",
        "relax.add",
        "relax.subtract",
        "relax.multiply",
        "relax.divide",
        "relax.maximum",
        "relax.minimum",
        "relax.power",
        "relax.astype",
        "relax.quantize",
        "relax.dequantize",
    ]
)
_POOLS: dict[str, Callable[..., relax.Expr]] = {
    "relax.nn.max_pool2d": relax.op.nn.max_pool2d,
    "relax.nn.avg_pool2d": relax.op.nn.avg_pool2d,
}


def channel_block(channels: int) -> int:
    """Return the block for so many channels: 16 or 8 where they divide, else the largest divisor below 16.

    A block of 10 or 12 fills no vector: 512 to 1000 channels at 13x13 pixels reached 133 GFLOP/s in blocks of 10 and
    208 in blocks of 8 (20 trials each, Zen 4).
    """
    divisors = [block for block in range(min(MAX_BLOCK, channels), 0, -1) if channels % block == 0]
    return next((block for block in divisors if block in _FULL_VECTORS), divisors[0])


def conv2d_blocks(out_channels: int, group_channels: int, groups: int) -> tuple[int, int] | None:
    """Return the channel blocks of a convolution's data and result, or None where NCHW stays.

    Parameters
    ----------
    out_channels, group_channels
        The first two extents of its OIHW weights.
    groups
        Its groups; with one input channel each it is depthwise.
    """
    if groups == 1:
        block_in, block_out = channel_block(group_channels), channel_block(out_channels)
        if group_channels < MIN_BLOCK:
            block_in = 1  # an image: its planes are blocks already, and nothing is to be transformed
        elif block_in < MIN_BLOCK:
            return None
        return (block_in, block_out) if block_out >= MIN_BLOCK else None
    if group_channels == 1 and out_channels == groups:
        block = channel_block(groups)
        return (block, block) if block >= MIN_BLOCK else None
    block_in, block_out = channel_block(group_channels), channel_block(out_channels // groups)
    # Narrow groups would load single lanes; along the width they still vectorise in NCHW.
    return (block_in, block_out) if min(block_in, block_out) >= 8 else None


def block_layouts(mod: tvm.IRModule) -> tvm.IRModule:
    """Put the convolutions of a module's ``main`` into blocked layouts.

    Parameters
    ----------
    mod
        Relax module of operators, constants bound.
    """
    blocker = _Blocker(mod)
    mod = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    mod["main"] = blocker.visit_expr(mod["main"])
    return relax.transform.DeadCodeElimination()(mod)


@mutator
class _Blocker(PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        # Feature maps (vars of the original function) that exist in blocked form, and with which block.
        self._blocked: dict[relax.Var, tuple[relax.Var, int]] = {}
        self._blocked_only: set[relax.Var] = set()
        self._rules = {
            "relax.nn.conv2d": self._conv2d,
            "relax.concat": self._concat,
            "relax.mean": self._mean,
            "relax.reshape": self._reshape,
            **dict.fromkeys(_POOLS, self._pool),
            **dict.fromkeys(_ELEMENTWISE, self._elementwise),
        }

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        call, variable = binding.value, binding.var
        rule = self._rules.get(call.op.name) if _is_operator(call) else None
        made = rule(call) if rule is not None and _is_static(call) else None
        if made is None:
            self._need_plain(call)
            super().visit_var_binding_(binding)
            return
        expr, block = made
        if block is None:  # the result is plain again
            super().visit_var_binding_(relax.VarBinding(variable, expr))
            return
        blocked = self.builder_.emit(expr)
        self._blocked[variable] = blocked, block
        if isinstance(variable, relax.DataflowVar):
            self._blocked_only.add(variable)
        else:
            super().visit_var_binding_(relax.VarBinding(variable, _unblock(blocked, block)))

    def _need_plain(self, expr: relax.Expr) -> None:
        """Emit the plain form of every variable that an expression uses and that is only blocked so far."""
        for variable in relax.analysis.free_vars(expr):
            if variable in self._blocked_only:
                self._blocked_only.remove(variable)
                self.set_var_remap(variable, self.builder_.emit(_unblock(*self._blocked[variable])))

    def _block(self, expr: relax.Expr, block: int) -> relax.Expr:
        """Return a feature map in blocked form."""
        if isinstance(expr, tvm.ir.GenericConst):
            return _constant(_blocked_array(expr.value.numpy(), block))
        if expr in self._blocked and self._blocked[expr][1] == block:
            return self._blocked[expr][0]
        self._need_plain(expr)
        plain = self.visit_expr(expr)
        if block == 1:  # a view, which costs nothing to have again
            return self.builder_.emit(relax.op.reshape(plain, (*_shape(expr), 1)))
        blocked = self.builder_.emit(
            relax.op.layout_transform(plain, lambda n, c, h, w: (n, c // block, h, w, c % block))
        )
        self._blocked.setdefault(expr, (blocked, block))
        return blocked

    def _conv2d(self, call: relax.Call) -> _Made:
        data, weight = call.args
        attrs = call.attrs
        if (attrs.data_layout, attrs.kernel_layout) != ("NCHW", "OIHW"):
            return None
        if not isinstance(weight, tvm.ir.GenericConst):
            return None
        array = weight.value.numpy()
        groups = int(attrs.groups)
        blocks = conv2d_blocks(array.shape[0], array.shape[1], groups)
        if blocks is None:
            return None
        block_in, block_out = blocks
        kernel_in = 1 if array.shape[1] == 1 and groups > 1 else block_in
        out, inner, height, width = array.shape
        packed = array.reshape(out // block_out, block_out, inner // kernel_in, kernel_in, height, width)
        result = relax.op.nn.conv2d(
            self._block(data, block_in),
            _constant(packed.transpose(0, 2, 4, 5, 3, 1)),
            attrs.strides,
            attrs.padding,
            attrs.dilation,
            groups,
            f"NCHW{block_in}c",
            f"OIHW{kernel_in}i{block_out}o",
            f"NCHW{block_out}c",
            attrs.out_dtype,
        )
        return result, block_out

    def _elementwise(self, call: relax.Call) -> _Made:
        block = self._block_of(call.args)
        shape = _shape(call)
        if block is None or len(shape) != 4:
            return None
        arguments = []
        for argument in call.args:
            operand = _shape(argument) if hasattr(argument.ty, "shape") else ()
            if all(extent == 1 for extent in operand):
                self._need_plain(argument)
                argument = self.visit_expr(argument)
            elif len(operand) == 3 and isinstance(argument, tvm.ir.GenericConst):
                argument = self._block(_constant(argument.value.numpy()[None]), block)
            elif len(operand) == 4 and operand[1] == shape[1]:
                argument = self._block(argument, block)
            else:
                return None
            arguments.append(argument)
        return relax.Call(call.op, arguments, call.attrs), block

    def _pool(self, call: relax.Call) -> _Made:
        block, attrs = self._block_of(call.args), call.attrs
        if block is None or attrs.layout != "NCHW":
            return None
        layout = f"NCHW{block}c"
        pool = _POOLS[call.op.name](
            self._block(call.args[0], block),
            attrs.pool_size,
            attrs.strides,
            attrs.padding,
            attrs.dilation,
            attrs.ceil_mode,
            attrs.count_include_pad,
            layout,
            layout,
        )
        return pool, block

    def _concat(self, call: relax.Call) -> _Made:
        if not isinstance(call.args[0], relax.Tuple) or int(call.attrs.axis) != 1:
            return None
        parts = list(call.args[0].fields)
        shapes = [_shape(part) for part in parts]
        blocks = [self._blocked[part][1] for part in parts if part in self._blocked_only]
        fitting = [b for b in blocks if all(len(s) == 4 and s[1] % b == 0 for s in shapes)]
        if not fitting:
            return None
        block = fitting[0]
        return relax.op.concat([self._block(part, block) for part in parts], axis=1), block

    def _mean(self, call: relax.Call) -> _Made:
        """A mean over the map's height and width."""
        block = self._block_of(call.args)
        axes = sorted(int(axis) % 4 for axis in call.attrs.axis or ())
        if block is None or axes != [2, 3]:
            return None
        mean = relax.op.mean(self._block(call.args[0], block), [2, 3], keepdims=True)
        if call.attrs.keepdims:
            return mean, block
        return relax.op.reshape(self.builder_.emit(mean), _shape(call)), None

    def _reshape(self, call: relax.Call) -> _Made:
        """Flattening of a 1x1 map: blocked or not, its channels lie in the same order."""
        block = self._block_of(call.args[:1])
        source = _shape(call.args[0])
        if block is None or source[2:] != (1, 1):
            return None
        return relax.op.reshape(self._block(call.args[0], block), _shape(call)), None

    def _block_of(self, arguments: Iterable[relax.Expr]) -> int | None:
        """Block of the first argument that is blocked."""
        return next((self._blocked[a][1] for a in arguments if a in self._blocked_only), None)


def _is_operator(expr: relax.Expr) -> bool:
    return isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op)


def _is_static(call: relax.Call) -> bool:
    """Whether the result's shape is known and all of it constant."""
    return getattr(call.ty, "shape", None) is not None and all(
        isinstance(extent, tirx.IntImm) for extent in call.ty.shape
    )


def _shape(expr: relax.Expr) -> tuple[int, ...]:
    return tuple(int(extent) for extent in expr.ty.shape)


def _constant(array: np.ndarray) -> relax.Expr:
    return relax.const(np.ascontiguousarray(array), str(array.dtype))


def _blocked_array(array: np.ndarray, block: int) -> np.ndarray:
    batch, channels, height, width = array.shape
    return array.reshape(batch, channels // block, block, height, width).transpose(0, 1, 3, 4, 2)


def _unblock(blocked: relax.Expr, block: int) -> relax.Expr:
    return relax.op.layout_transform(blocked, lambda n, c, h, w, b: (n, c * block + b, h, w))
