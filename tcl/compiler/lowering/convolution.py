"""Tensor programs of convolutions over blocked layouts; Relax's own legalisation knows plain layouts only."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, te, topi


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
        ``[chunk, 1, kernel_h, kernel_w, 1, block]``.
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
    ic = te.reduce_axis((0, group_chunks * kernel_block), name="ic")

    def rows(y: Any, x: Any) -> tuple[Any, Any]:
        return y * strides[0] + kh * dilation[0], x * strides[1] + kw * dilation[1]

    def depthwise(n: Any, c: Any, y: Any, x: Any, b: Any) -> Any:
        return te.sum(data[n, c, *rows(y, x), b] * kernel[c, 0, kh, kw, 0, b], axis=[kh, kw])

    def grouped(n: Any, c: Any, y: Any, x: Any, b: Any) -> Any:
        first = (c // (out_chunks // groups)) * group_chunks if groups > 1 else 0
        pixel = data[n, first + ic // block_in, *rows(y, x), ic % block_in]
        return te.sum(pixel * kernel[c, ic // block_in, kh, kw, ic % block_in, b], axis=[ic, kh, kw])

    is_depthwise = groups > 1 and groups == in_chunks * block_in
    name = "depthwise_conv2d_NCHWc" if is_depthwise else "conv2d_NCHWc"
    multiply = depthwise if is_depthwise else grouped
    return te.compute((batch, out_chunks, out_h, out_w, block_out), multiply, name=name, tag=name)


def legalize_conv2d(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalise a convolution: blocked layouts to `conv2d_blocked`, anything else as TVM does."""
    attrs = call.attrs
    if not str(attrs.data_layout).endswith("c"):
        return tvm.ir.Op.get("relax.nn.conv2d").get_attr("FLegalize")(builder, call)
    groups = int(attrs.groups)
    data_shape = call.args[0].ty.shape
    is_depthwise = groups > 1 and groups == int(data_shape[1]) * int(data_shape[4])
    return builder.call_te(
        conv2d_blocked,
        call.args[0],
        call.args[1],
        tuple(int(s) for s in attrs.strides),
        tuple(int(p) for p in attrs.padding),
        tuple(int(d) for d in attrs.dilation),
        groups,
        primfunc_name_hint="depthwise_conv2d_NCHWc" if is_depthwise else "conv2d_NCHWc",
    )
