"""Pooling and resizing."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.formats.operands import Operand
from hexane.frontends.aten.node import AtenNode, Refused, aten


def _each(c: AtenNode, name: str, spatial: int, default: list[int] | None = None) -> list[int]:
    given = c.ints(name)
    if not given and default is not None:
        return default
    return given * spatial if len(given) == 1 else given


def _batched(c: AtenNode, x: Operand, spatial: int) -> Operand:
    """With a batch axis; pooling without one is the same with a batch of one."""
    return c.reshape(x, (1, *c.shape(x))) if c.rank(x) == spatial + 1 else x


def _max_pool(c: AtenNode, spatial: int) -> Operand:
    x = _batched(c, c.x(), spatial)
    kernel = _each(c, "kernel_size", spatial)
    strides = _each(c, "stride", spatial, kernel)
    padding, dilation = _each(c, "padding", spatial), _each(c, "dilation", spatial)
    if any(one != 1 for one in dilation):
        raise Refused("a maximum over windows with gaps (dilation)")
    made = c.ops.max_pool(
        x=x,
        kernel_sizes=np.array(kernel, np.int32),
        strides=np.array(strides, np.int32),
        pad_type="custom",
        pad=np.array([side for one in padding for side in (one, one)], np.int32),
        ceil_mode=bool(c["ceil_mode"]),
    )
    return c.reshape(made, c.out().shape)


@aten("max_pool1d.default")
def max_pool1d(c: AtenNode) -> Operand:
    return _max_pool(c, 1)


@aten("max_pool2d.default")
def max_pool2d(c: AtenNode) -> Operand:
    return _max_pool(c, 2)


@aten("max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def max_pool_with_indices(c: AtenNode) -> tuple[Any, Any]:
    return _max_pool(c, 2 if "2d" in str(c.node.target) else 3), None


@aten("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def avg_pool(c: AtenNode) -> Operand:
    spatial = int(str(c.node.target).partition("avg_pool")[2][0])
    divisor = c.arguments.get("divisor_override")
    if divisor is not None and c["ceil_mode"]:
        raise Refused("a divisor of its own together with ceil_mode")
    x = _batched(c, c.x(), spatial)
    kernel = _each(c, "kernel_size", spatial)
    strides, padding = _each(c, "stride", spatial, kernel), _each(c, "padding", spatial)
    made = c.ops.avg_pool(
        x=x,
        kernel_sizes=np.array(kernel, np.int32),
        strides=np.array(strides, np.int32),
        pad_type="custom",
        pad=np.array([side for one in padding for side in (one, one)], np.int32),
        ceil_mode=bool(c["ceil_mode"]),
        exclude_padding_from_average=divisor is None and not c["count_include_pad"],
    )
    if divisor is not None:
        made = c.ops.mul(x=made, y=c.like(float(np.prod(kernel)) / divisor, made))
    return c.reshape(made, c.out().shape)


@aten("adaptive_max_pool2d.default", "adaptive_max_pool3d.default", "adaptive_max_pool1d.default")
def adaptive_max_pool(c: AtenNode) -> tuple[Any, Any]:
    """Windows of one size; Refused where the output does not divide the input."""
    x, out = c.x(), c.ints("output_size")
    spatial = len(out)
    extents = c.shape(x)[-spatial:]
    if any(extent % one for extent, one in zip(extents, out)):
        raise Refused("windows of different sizes")
    kernel = np.array([extent // one for extent, one in zip(extents, out)], np.int32)
    made = c.ops.max_pool(
        x=_batched(c, x, spatial),
        kernel_sizes=kernel,
        strides=kernel,
        pad_type="valid",
        pad=np.zeros(2 * spatial, np.int32),
    )
    return c.reshape(made, c.out(0).shape), None


@aten("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default", "adaptive_avg_pool1d.default")
def adaptive_avg_pool(c: AtenNode) -> Operand:
    """Windows of one size where the output divides the input; a mean over everything for an output of one."""
    x = c.x()
    out = c.ints("output_size")
    spatial = len(out)
    extents = c.shape(x)[-spatial:]
    if all(one == 1 for one in out):
        axes = np.arange(c.rank(x) - spatial, c.rank(x), dtype=np.int32)
        return c.ops.reduce_mean(x=x, axes=axes, keep_dims=True)
    if any(extent % one for extent, one in zip(extents, out)):
        return _uneven(c, x, out)
    kernel = np.array([extent // one for extent, one in zip(extents, out)], np.int32)
    made = c.ops.avg_pool(
        x=_batched(c, x, spatial),
        kernel_sizes=kernel,
        strides=kernel,
        pad_type="valid",
        pad=np.zeros(2 * spatial, np.int32),
    )
    return c.reshape(made, c.out().shape)


def _uneven(c: AtenNode, x: Operand, out: list[int]) -> Operand:
    """Windows of different sizes: a product with a matrix of means along each axis."""
    rank = c.rank(x)
    for number, size in enumerate(out):
        axis = rank - len(out) + number
        extent = c.shape(x)[axis]
        matrix = np.zeros((size, extent), np.float64)
        for i in range(size):
            begin, end = i * extent // size, -(-(i + 1) * extent // size)
            matrix[i, begin:end] = 1 / (end - begin)
        perm = [*(a for a in range(rank) if a != axis), axis]
        weight = matrix.astype(c.like(0, x).dtype)
        x = c.transpose(c.ops.linear(x=c.transpose(x, perm), weight=weight), np.argsort(perm).tolist())
    return x


def _target(c: AtenNode, x: Operand) -> tuple[int, int]:
    """Height and width of the result; Refused for factors that PyTorch does not take from the extents."""
    out = c.out().shape[-2:]
    factors = c.arguments.get("scale_factors")
    if factors is not None:
        for extent, size, factor in zip(c.shape(x)[-2:], out, factors):
            if extent * factor != size:
                raise Refused("a factor that does not give a whole number of pixels")
    for name in ("scales_h", "scales_w"):
        if c.arguments.get(name) is not None:
            axis = -2 if name == "scales_h" else -1
            if c.shape(x)[axis] * c.arguments[name] != c.out().shape[axis]:
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
