"""Blocked convolution layouts: NCHW[c]c feature maps with weights packed at compile time.

A convolution vectorises best along its output channels when a block of them lies contiguous in memory. This pass
gives every convolution whose channels divide into blocks the layouts ``NCHW{i}c`` (data), ``OIHW{i}i{o}o`` (weights)
and ``NCHW{o}c`` (result); TVM's ConvertLayout moves the layout through the neighbouring operators, so that transforms
between blocked operators cancel. Convolutions that cannot be blocked keep NCHW.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx, topi

MIN_BLOCK = 4


def channel_block(channels: int, lanes: int) -> int:
    """Return the largest divisor of `channels` that is at most `lanes` (float32 lanes of a vector register)."""
    return next(block for block in range(min(lanes, channels), 0, -1) if channels % block == 0)


def _conv2d_layouts(call: relax.Call, lanes: int) -> list[str] | None:
    """Blocked layouts of one convolution, or None where NCHW stays."""
    out_channels, group_channels, _, _ = (int(d) for d in call.args[1].ty.shape)
    groups = int(call.attrs.groups)
    in_channels = group_channels * groups
    if groups == 1:
        block_in, block_out = channel_block(in_channels, lanes), channel_block(out_channels, lanes)
        if block_out < MIN_BLOCK:
            return None
        if block_in < MIN_BLOCK and in_channels > MIN_BLOCK:
            return None
        return [f"NCHW{block_in}c", f"OIHW{block_in}i{block_out}o", f"NCHW{block_out}c"]
    if group_channels == 1 and out_channels == in_channels:
        block = channel_block(in_channels, lanes)
        return [f"NCHW{block}c", f"OIHW1i{block}o", f"NCHW{block}c"] if block >= MIN_BLOCK else None
    block_in = channel_block(group_channels, lanes)
    block_out = channel_block(out_channels // groups, lanes)
    # Narrower groups would load single lanes; along the width they still vectorise in NCHW.
    if min(block_in, block_out) < 8:
        return None
    return [f"NCHW{block_in}c", f"OIHW{block_in}i{block_out}o", f"NCHW{block_out}c"]


def blocked_layouts(lanes: int) -> tvm.ir.transform.Pass:
    """Return the pass that puts convolutions into blocked layouts.

    Parameters
    ----------
    lanes
        float32 lanes of the target's vector register: 16 (AVX-512), 8 (AVX2), 4 (SSE, NEON).
    """

    def choose(call: relax.Call) -> dict[str, list[str]]:
        if call.op.name != "relax.nn.conv2d":
            return {}
        layouts = None
        static = all(isinstance(d, tirx.IntImm) for arg in call.args for d in arg.ty.shape)
        if static and call.attrs.data_layout == "NCHW" and call.attrs.kernel_layout == "OIHW":
            layouts = _conv2d_layouts(call, lanes)
        return {"relax.nn.conv2d": layouts or ["NCHW", "OIHW", "NCHW"]}

    return relax.transform.ConvertLayout({}, choose)


def conv2d_blocked(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    groups: int,
) -> te.Tensor:
    """Convolution over blocked layouts.

    Parameters
    ----------
    data
        ``[n, in_chunk, height, width, in_block]``.
    kernel
        ``[out_chunk, group_in_chunk, kernel_h, kernel_w, in_block, out_block]``; depthwise:
        ``[chunk, 1, h, w, 1, block]``.
    strides, padding, dilation, groups
        As in ONNX; `padding` is top, left, bottom, right.

    Returns
    -------
    te.Tensor
        ``[n, out_chunk, out_height, out_width, out_block]``, the dtype of `data`.
    """
    batch, in_chunks, height, width, block_in = (int(d) for d in data.shape)
    out_chunks, group_chunks, kernel_h, kernel_w, kernel_block, block_out = (int(d) for d in kernel.shape)
    top, left, bottom, right = padding
    if any(padding):
        data = topi.nn.pad(data, (0, 0, top, left, 0), (0, 0, bottom, right, 0), name="data_pad")
    out_h = (height + top + bottom - (kernel_h - 1) * dilation[0] - 1) // strides[0] + 1
    out_w = (width + left + right - (kernel_w - 1) * dilation[1] - 1) // strides[1] + 1
    kh = te.reduce_axis((0, kernel_h), name="kh")
    kw = te.reduce_axis((0, kernel_w), name="kw")
    depthwise = groups == in_chunks * block_in

    if depthwise:

        def multiply_depthwise(n: Any, c: Any, y: Any, x: Any, b: Any) -> Any:
            pixel = data[n, c, y * strides[0] + kh * dilation[0], x * strides[1] + kw * dilation[1], b]
            return te.sum(pixel * kernel[c, 0, kh, kw, 0, b], axis=[kh, kw])

        name, multiply = "depthwise_conv2d_NCHWc", multiply_depthwise
    else:
        ic = te.reduce_axis((0, group_chunks * kernel_block), name="ic")
        chunks_per_group = out_chunks // groups if groups > 1 else out_chunks

        def multiply_group(n: Any, c: Any, y: Any, x: Any, b: Any) -> Any:
            first = (c // chunks_per_group) * group_chunks if groups > 1 else 0
            pixel = data[
                n,
                first + ic // block_in,
                y * strides[0] + kh * dilation[0],
                x * strides[1] + kw * dilation[1],
                ic % block_in,
            ]
            return te.sum(pixel * kernel[c, ic // block_in, kh, kw, ic % block_in, b], axis=[ic, kh, kw])

        name, multiply = "conv2d_NCHWc", multiply_group
    return te.compute((batch, out_chunks, out_h, out_w, block_out), multiply, name=name, tag=name)


def legalize_conv2d(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalise a convolution: blocked layouts to `conv2d_blocked`, anything else as TVM does."""
    attrs = call.attrs
    if not str(attrs.data_layout).endswith("c"):
        return tvm.ir.Op.get("relax.nn.conv2d").get_attr("FLegalize")(builder, call)
    groups = int(attrs.groups)
    data_shape = call.args[0].ty.shape
    depthwise = groups == int(data_shape[1]) * int(data_shape[4])
    return builder.call_te(
        conv2d_blocked,
        call.args[0],
        call.args[1],
        tuple(int(s) for s in attrs.strides),
        tuple(int(p) for p in attrs.padding),
        tuple(int(d) for d in attrs.dilation),
        groups,
        primfunc_name_hint="depthwise_conv2d_NCHWc" if depthwise else "conv2d_NCHWc",
    )


def transform_layout(array: np.ndarray, index_map: tirx.IndexMap) -> np.ndarray:
    """Apply a layout's index map, whose results are ``i``, ``i // c`` or ``i % c``: a reshape and a transposition."""
    blocks = {
        index.a.name: int(index.b)
        for index in index_map.final_indices
        if isinstance(index, tirx.FloorMod | tirx.FloorDiv)
    }
    shape: list[int] = []
    axis_of: dict[tuple[str, type], int] = {}
    for variable, extent in zip(index_map.initial_indices, array.shape, strict=True):
        block = blocks.get(variable.name)
        parts = (
            [(tirx.Var, extent)]
            if block is None
            else [(tirx.FloorDiv, extent // block), (tirx.FloorMod, block)]
        )
        for part, size in parts:
            axis_of[variable.name, part] = len(shape)
            shape.append(size)
    order = [
        axis_of[(index if isinstance(index, tirx.Var) else index.a).name, type(index)]
        for index in index_map.final_indices
    ]
    return array.reshape(shape).transpose(order)
