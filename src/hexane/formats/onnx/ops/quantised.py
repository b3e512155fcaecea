"""Quantised tensors: QDQ pairs, integer products, and quantised operators.

A quantised constant stays quantised (``constexpr_affine_dequantize``), so that weights keep their bytes. Integer
products are exact: they run in float64, whose sums of 8-bit products stay whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.formats.compositions import MIL_FLOATS, Refused, all_constant, axis_in
from hexane.formats.onnx.context import NodeContext
from hexane.formats.onnx.ops.conv import conv_of
from hexane.formats.onnx.ops.elementwise import element_type
from hexane.formats.onnx.registry import onnx_op
from hexane.formats.operands import Operand, type_of
from hexane.graph.constants import integer_range
from hexane.graph.types import DTYPES, INTS

KEPT_ELEMENTS = 1024
"""Quantised constants of at least so many elements stay quantised in the graph."""


@dataclass(frozen=True)
class AffineCode:
    """Integers that stand for ``(x - zero) * scale``, each scale for a tensor, a place on ``axis``, or a ``block``."""

    scale: Operand
    zero: Operand | None = None
    axis: int = 0
    block: int = 0

    @property
    def is_plain(self) -> bool:
        """True where all is constant and goes by tensor or axis."""
        return all_constant(self.scale, self.zero) and not self.block

    def along(self, c: NodeContext, operand: Operand, x: Operand, dtype: str) -> Operand:
        """The scale or zero point in a shape that broadcasts with ``x``: per tensor, per axis, or repeated by block."""
        shape, x_shape, axis, block = type_of(operand).shape, type_of(x).shape, self.axis, self.block
        if len(shape) == 0 or (len(shape) == 1 and shape[0] == 1 and not block):
            return c.cast(c.reshape(operand, ()), dtype)
        if block:
            if len(shape) != len(x_shape):
                raise GraphError(f"a blocked scale {shape} for {x_shape}")
            parts = c.reshape(operand, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
            parts = c.broadcast(parts, (*shape[: axis + 1], block, *shape[axis + 1 :]))
            wide = c.reshape(parts, (*shape[:axis], shape[axis] * block, *shape[axis + 1 :]))
            return c.cast(c.window(wide, {axis: slice(0, x_shape[axis])}), dtype)
        if len(shape) != 1 or shape[0] != x_shape[axis]:
            raise GraphError(f"a scale {shape} along axis {axis} of {x_shape}")
        return c.cast(c.reshape(operand, [shape[0] if i == axis else 1 for i in range(len(x_shape))]), dtype)


def quantise(c: NodeContext, x: Operand, code: AffineCode, dtype: str) -> Operand:
    """``saturate(round(x / scale) + zero_point)``."""
    scale, zero = code.scale, code.zero
    floats = type_of(x).dtype in MIL_FLOATS and type_of(scale).dtype == type_of(x).dtype
    if code.is_plain and dtype in ("int8", "uint8") and floats and not isinstance(x, np.ndarray):
        extra: dict[str, Any] = {} if zero is None else {"zero_point": _flat(zero)}
        if scale.size > 1:
            extra["axis"] = code.axis
        return c.ops.quantize(input=x, scale=_flat(scale), output_dtype=dtype, **extra)
    work = "fp64" if DTYPES[dtype].bits > 8 else "fp32"
    divided = c.ops.real_div(x=x, y=code.along(c, scale, x, type_of(x).dtype))
    rounded = c.cast(c.ops.round(x=divided), work)
    if zero is not None:
        rounded = c.ops.add(x=rounded, y=code.along(c, zero, x, work))
    low, high = integer_range(dtype)
    dtype = {"int4": "int8", "uint4": "uint8"}.get(dtype, dtype)  # as the reader holds four bits
    return c.cast(c.clamp(rounded, low, high), dtype)


def _flat(array: np.ndarray) -> np.ndarray:
    return array.reshape(()) if array.size == 1 else array.reshape(-1)


def dequantise(c: NodeContext, x: Operand, code: AffineCode, dtype: str) -> Operand:
    """``(x - zero_point) * scale`` in ``dtype``."""
    scale, zero, stored = code.scale, code.zero, type_of(x).dtype
    fits = code.is_plain and dtype in MIL_FLOATS and type_of(scale).dtype == dtype
    if fits and stored in ("int8", "uint8"):
        extra: dict[str, Any] = {} if scale.size == 1 else {"axis": code.axis}
        if not isinstance(x, np.ndarray):
            extra |= {} if zero is None else {"zero_point": _flat(zero)}
            return c.ops.dequantize(input=x, scale=_flat(scale), **extra)
        if x.size >= KEPT_ELEMENTS and x.ndim >= 1:
            point = np.zeros((), x.dtype) if zero is None else _flat(zero)
            if point.ndim == 0 and scale.size > 1:
                point = np.broadcast_to(point, (scale.size,)).copy()
            given: dict[str, Any] = {"quantized_data": c.ops.value(x), "zero_point": point, "scale": _flat(scale)}
            return c.importer.builder.op("constexpr_affine_dequantize", **given, axis=extra.get("axis", 0))
    packed = packed_constant(c, x, code, dtype)
    if packed is not None:
        return packed
    value = c.cast(x, "fp64" if stored in ("int32", "uint32", "int64") else "fp32")
    work = type_of(value).dtype
    if zero is not None:
        value = c.ops.sub(x=value, y=code.along(c, zero, x, work))
    return c.cast(c.ops.mul(x=value, y=code.along(c, scale, x, work)), dtype)


def packed_constant(c: NodeContext, x: Operand, code: AffineCode, dtype: str) -> Operand | None:
    """A constant of 4 or 8 bits with scales by block, by axis or one for all, kept as it is stored; None for others."""
    scale, zero, axis, stored = code.scale, code.zero, code.axis, type_of(x).dtype
    if not all_constant(x, scale, zero) or x.size < KEPT_ELEMENTS or x.ndim < 1:
        return None
    if stored not in ("int4", "uint4", "int8", "uint8") or dtype not in MIL_FLOATS or type_of(scale).dtype != dtype:
        return None
    if code.block:
        shape = scale.shape
        if scale.ndim != x.ndim or x.shape[axis] != shape[axis] * code.block:
            return None
    else:
        shape = tuple(scale.size if scale.size > 1 and at == axis else 1 for at in range(x.ndim))
    carrier = DTYPES[stored].carrier
    offset = None if zero is None else (_broadcast(zero, shape).astype(carrier), stored)
    return blockwise(c, (x.astype(carrier), stored), scale.reshape(shape), offset)


def _broadcast(zero: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return zero.reshape(shape) if zero.size == int(np.prod(shape)) else np.broadcast_to(zero.reshape(-1), shape)


def blockwise(
    c: NodeContext, data: tuple[np.ndarray, str], scale: np.ndarray, offset: tuple[np.ndarray, str] | None = None
) -> Operand:
    """``constexpr_blockwise_shift_scale`` of stored integers (array and dtype), one scale and offset for each block."""
    builder = c.importer.builder
    extra: dict[str, Any] = {}
    if offset is not None and offset[0].any():
        extra["offset"] = builder.const(np.ascontiguousarray(offset[0]), offset[1])
    return builder.op(
        "constexpr_blockwise_shift_scale", opset="ios18", data=builder.const(*data), scale=builder.const(scale), **extra
    )


@onnx_op("QuantizeLinear")
def quantize_linear(c: NodeContext) -> Operand:
    x, scale, zero = c.need(0), c.need(1), c[2]
    if zero is not None:
        dtype = type_of(zero).dtype
        dtype = c.importer.four_bits.get(c.node.input[2], dtype)
    else:
        dtype = element_type(c, c.attr("output_dtype")) if c.attr("output_dtype", 0) else "uint8"
    if dtype not in INTS:
        raise Refused(f"it quantises to {dtype}")
    rank = type_of(x).rank
    axis = axis_in(c.attr("axis", 1), rank) if rank > 1 else 0
    if c.attr("precision", 0):
        raise Refused("it asks for a precision of its own")
    return quantise(c, x, AffineCode(scale, zero, axis, c.attr("block_size", 0)), dtype)


@onnx_op("DequantizeLinear")
def dequantize_linear(c: NodeContext) -> Operand:
    x, scale, zero = c.need(0), c.need(1), c[2]
    if type_of(x).dtype not in INTS:
        raise Refused(f"it dequantises {type_of(x).dtype}")
    rank = type_of(x).rank
    axis = axis_in(c.attr("axis", 1), rank) if rank > 1 else 0
    dtype = element_type(c, c.attr("output_dtype")) if c.attr("output_dtype", 0) else type_of(scale).dtype
    return dequantise(c, x, AffineCode(scale, zero, axis, c.attr("block_size", 0)), dtype)


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantize_linear(c: NodeContext) -> tuple[Operand, ...]:
    """uint8 with scale and zero point from the data's own range, which includes 0."""
    x = c.need(0)
    zero = c.like(0, x)
    high = c.ops.maximum(x=c.ops.reduce_max(x=x, keep_dims=False), y=zero)
    low = c.ops.minimum(x=c.ops.reduce_min(x=x, keep_dims=False), y=zero)
    scale = c.ops.real_div(x=c.ops.sub(x=high, y=low), y=c.like(255, x))
    point = c.ops.round(x=c.ops.real_div(x=c.ops.sub(x=zero, y=low), y=scale))
    point = c.clamp(point, 0, 255)
    y = c.clamp(c.ops.add(x=c.ops.round(x=c.ops.real_div(x=x, y=scale)), y=point), 0, 255)
    return c.cast(y, "uint8"), scale, c.cast(point, "uint8")


def whole(c: NodeContext, x: Operand, zero: Operand | None, shape: list[int] | None = None) -> Operand:
    """Integers less their zero point, as float64."""
    value = c.cast(x, "fp64")
    if zero is None:
        return value
    point = c.cast(zero, "fp64")
    point = c.scalar(point)
    if shape is not None and type_of(point).rank == 1:
        point = c.reshape(point, shape)
    return c.ops.sub(x=value, y=point)


@onnx_op("MatMulInteger")
def matmul_integer(c: NodeContext) -> Operand:
    """int32 products of 8-bit matrices; zero points per row of A, per column of B."""
    a, b = c.need(0), c.need(1)
    return c.cast(_integer_product(c, a, c[2], b, c[3]), "int32")


def _integer_product(c: NodeContext, a: Operand, a_zero: Operand | None, b: Operand, b_zero: Operand | None) -> Operand:
    rows = [-1, 1] if a_zero is None else [type_of(a_zero).shape[0] if type_of(a_zero).rank == 1 else 1, 1]
    return c.ops.matmul(x=whole(c, a, a_zero, rows), y=whole(c, b, b_zero))


@onnx_op("ConvInteger")
def conv_integer(c: NodeContext) -> Operand:
    x, weight = c.need(0), c.need(1)
    per_channel = None if c[3] is None else [*type_of(c[3]).shape, *[1] * (type_of(weight).rank - 1)]
    return c.cast(conv_of(c, whole(c, x, c[2]), whole(c, weight, c[3], per_channel), None), "int32")


def _as_pairs(x: Operand, weight: Operand, rest: tuple[Operand, ...]) -> bool:
    """True where a quantised product of a computed map is read as quantise and dequantise pairs around a product of
    numbers: weights, scales and zero points are constants. Its sums are then those of float32, no longer exact; the
    engine computes such pairs, and a step of the result is all that may differ."""
    constants = (weight, *rest)
    floats = all(
        array.dtype == np.float32 for array in rest if isinstance(array, np.ndarray) and array.dtype.kind == "f"
    )
    return not isinstance(x, np.ndarray) and all(isinstance(array, np.ndarray) for array in constants) and floats


def requantise(c: NodeContext, total: Operand, factor: Operand, zero: Operand) -> Operand:
    """``saturate(round(total * factor) + zero_point)`` of exact sums."""
    dtype = type_of(zero).dtype
    scaled = c.ops.round(x=c.ops.mul(x=total, y=c.cast(factor, "fp64")))
    point = c.cast(zero, "fp64")
    shifted = c.ops.add(x=scaled, y=c.scalar(point))
    low, high = integer_range(dtype)
    return c.cast(c.clamp(shifted, low, high), dtype)


def _ratio(c: NodeContext, a: Operand, b: Operand, y: Operand) -> Operand:
    """``a * b / y`` of scales, in float64."""

    a, b, y = (c.cast(c.scalar(operand), "fp64") for operand in (a, b, y))
    return c.ops.real_div(x=c.ops.mul(x=a, y=b), y=y)


@onnx_op("QLinearMatMul")
def qlinear_matmul(c: NodeContext) -> Operand:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (c.need(index) for index in range(8))
    rank = type_of(a).rank
    if _as_pairs(a, b, (a_scale, a_zero, b_scale, b_zero, y_scale, y_zero)) and a_scale.size == 1:
        left = dequantise(c, a, AffineCode(a_scale, a_zero), "fp32")
        right = dequantise(c, b, AffineCode(b_scale, b_zero, type_of(b).rank - 1), "fp32")
        return quantise(c, c.ops.matmul(x=left, y=right), AffineCode(y_scale, y_zero), type_of(y_zero).dtype)
    if type_of(a_scale).rank == 1 and type_of(a_scale).shape[0] > 1:
        a_scale = c.reshape(a_scale, (*[1] * (rank - 2), type_of(a_scale).shape[0], 1))
    total = _integer_product(c, a, a_zero, b, b_zero)
    return requantise(c, total, _ratio(c, a_scale, b_scale, y_scale), y_zero)


@onnx_op("QLinearConv")
def qlinear_conv(c: NodeContext) -> Operand:
    x, x_scale, x_zero, weight, w_scale, w_zero, y_scale, y_zero = (c.need(index) for index in range(8))
    rank = type_of(weight).rank
    if _as_pairs(x, weight, (x_scale, x_zero, w_scale, w_zero, y_scale, y_zero)) and x_scale.size == 1:
        bias = c[8]
        if isinstance(bias, np.ndarray):
            bias = (bias.astype(np.float64) * x_scale.reshape(-1) * w_scale.reshape(-1)).astype(np.float32)
        if bias is None or isinstance(bias, np.ndarray):
            source = dequantise(c, x, AffineCode(x_scale, x_zero), "fp32")
            kernel = dequantise(c, weight, AffineCode(w_scale, w_zero), "fp32")
            return quantise(c, conv_of(c, source, kernel, bias), AffineCode(y_scale, y_zero), type_of(y_zero).dtype)
    column = [1] * (rank - 1)
    per_channel = [*type_of(w_zero).shape, *column] if type_of(w_zero).rank == 1 else None
    bias = None if c[8] is None else c.cast(c[8], "fp64")
    total = conv_of(c, whole(c, x, x_zero), whole(c, weight, w_zero, per_channel), bias)
    factor = _ratio(c, x_scale, w_scale, y_scale)
    if type_of(factor).rank == 1:
        factor = c.reshape(factor, (type_of(factor).shape[0], *[1] * (rank - 2)))
    return requantise(c, total, factor, y_zero)
