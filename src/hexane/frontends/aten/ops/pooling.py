"""Pooling and resizing."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from hexane.formats.compositions import Refused, custom_pad
from hexane.formats.operands import Operand
from hexane.frontends.aten.node import AtenNode, aten
from hexane.rounding import ceil_div


def _pool(c: AtenNode, op: str, x: Operand, kernel: list[int], **more: Any) -> Operand:
    """Windows with the op's strides and padding, side by side where it has none; without a batch axis one of one."""
    spatial = len(kernel)
    strides, pads = kernel, [0] * spatial
    if "stride" in c.arguments:
        strides, pads = c.each("stride", spatial) if c.ints("stride") else kernel, c.each("padding", spatial)
        more["ceil_mode"] = bool(c["ceil_mode"])
    x = c.reshape(x, (1, *c.shape(x))) if c.rank(x) == spatial + 1 else x
    more |= custom_pad([(pad, pad) for pad in pads])
    return c.reshape(c.ops.op(op, x=x, kernel_sizes=kernel, strides=strides, **more), c.out().shape)


@aten("max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def max_pool_with_indices(c: AtenNode) -> tuple[Any, Any]:
    if any(one != 1 for one in c.ints("dilation")):
        raise Refused("a maximum over windows with gaps (dilation)")
    return _pool(c, "max_pool", c.x(), c.each("kernel_size", 2 if "2d" in str(c.node.target) else 3)), None


@aten("avg_pool2d.default", "avg_pool3d.default")
def avg_pool(c: AtenNode) -> Operand:
    spatial = int(str(c.node.target).partition("avg_pool")[2][0])
    divisor = c.arguments.get("divisor_override")
    if divisor is not None and c["ceil_mode"]:
        raise Refused("a divisor of its own together with ceil_mode")
    kernel = c.each("kernel_size", spatial)
    outside = divisor is None and not c["count_include_pad"]
    y = _pool(c, "avg_pool", c.x(), kernel, exclude_padding_from_average=outside)
    return c.scale(y, 1 if divisor is None else prod(kernel) / divisor)


def _even(c: AtenNode, x: Operand, out: list[int]) -> list[int] | None:
    """The one size of all windows; None where the output does not divide the input."""
    pairs = list(zip(c.shape(x)[-len(out) :], out))
    return None if any(extent % one for extent, one in pairs) else [extent // one for extent, one in pairs]


@aten("adaptive_max_pool2d.default", "adaptive_max_pool3d.default")
def adaptive_max_pool(c: AtenNode) -> tuple[Any, Any]:
    """Windows of one size; Refused where the output does not divide the input."""
    kernel = _even(c, c.x(), c.ints("output_size"))
    if kernel is None:
        raise Refused("windows of different sizes")
    return _pool(c, "max_pool", c.x(), kernel), None


@aten("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default")
def adaptive_avg_pool(c: AtenNode) -> Operand:
    """Windows of one size where the output divides the input; a mean over everything for an output of one."""
    x, out = c.x(), c.ints("output_size")
    if all(one == 1 for one in out):
        return c.ops.reduce_mean(x=x, axes=range(c.rank(x) - len(out), c.rank(x)), keep_dims=True)
    kernel = _even(c, x, out)
    return _uneven(c, x, out) if kernel is None else _pool(c, "avg_pool", x, kernel)


def _uneven(c: AtenNode, x: Operand, out: list[int]) -> Operand:
    """Windows of different sizes: a product with a matrix of means along each axis."""
    rank = c.rank(x)
    for number, size in enumerate(out):
        axis = rank - len(out) + number
        extent = c.shape(x)[axis]
        matrix = np.zeros((size, extent), np.float64)
        for i in range(size):
            begin, end = i * extent // size, ceil_div((i + 1) * extent, size)
            matrix[i, begin:end] = 1 / (end - begin)
        perm = [*(a for a in range(rank) if a != axis), axis]
        weight = matrix.astype(c.like(0, x).dtype)
        x = c.transpose(c.ops.linear(x=c.transpose(x, perm), weight=weight), np.argsort(perm).tolist())
    return x


def _target(c: AtenNode, x: Operand) -> tuple[int, int]:
    """Height and width of the result; Refused for factors that PyTorch does not take from the extents."""
    out, old = c.out().shape[-2:], c.shape(x)[-2:]
    factors = c.arguments.get("scale_factors") or [c.arguments.get("scales_h"), c.arguments.get("scales_w")]
    if any(factor is not None and extent * factor != size for extent, size, factor in zip(old, out, factors)):
        raise Refused("a factor that does not give a whole number of pixels")
    return out[0], out[1]


@aten("upsample_nearest2d.vec", "upsample_nearest2d.default")
def nearest(c: AtenNode) -> Operand:
    x = c.x("input" if "input" in c.arguments else "self")
    height, width = _target(c, x)
    return c.ops.resize_nearest_neighbor(x=x, target_size_height=height, target_size_width=width)


@aten("upsample_bilinear2d.vec", "upsample_bilinear2d.default")
def bilinear(c: AtenNode) -> Operand:
    x = c.x("input" if "input" in c.arguments else "self")
    height, width = _target(c, x)
    mode = "STRICT_ALIGN_CORNERS" if c["align_corners"] else "UNALIGN_CORNERS"
    return c.ops.resize_bilinear(x=x, target_size_height=height, target_size_width=width, sampling_mode=mode)
