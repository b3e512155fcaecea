"""Quantised ops of onnxruntime's domain ``com.microsoft``: what they compute between dequantising and quantising."""

from __future__ import annotations

import numpy as np

from hexane.errors import GraphError
from hexane.formats.compositions import Refused, axis_in
from hexane.formats.onnx.context import NodeContext
from hexane.formats.onnx.ops.quantised import (
    KEPT_ELEMENTS,
    AffineCode,
    blockwise,
    dequantise,
    dequantize_linear,
    dynamic_quantize_linear,
    quantise,
    quantize_linear,
    requantise,
    whole,
)
from hexane.formats.onnx.registry import MICROSOFT, onnx_op
from hexane.formats.operands import Operand, type_of
from hexane.rounding import ceil_div

onnx_op("QuantizeLinear", domain=MICROSOFT)(quantize_linear)
onnx_op("DequantizeLinear", domain=MICROSOFT)(dequantize_linear)


def real(c: NodeContext, first: int) -> Operand:
    """Inputs ``first`` to ``first + 2`` (data, scale, zero point) as float32."""
    return dequantise(c, c.need(first), AffineCode(c.need(first + 1), c[first + 2]), "fp32")


def back(c: NodeContext, y: Operand, scale_at: int) -> Operand:
    """A float result quantised by the inputs ``scale_at`` and the one behind it."""
    zero = c[scale_at + 1]
    return quantise(c, y, AffineCode(c.need(scale_at), zero), "uint8" if zero is None else type_of(zero).dtype)


@onnx_op("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def qlinear_binary(c: NodeContext) -> Operand:
    op = "add" if c.node.op_type == "QLinearAdd" else "mul"
    return back(c, c.ops.op(op, x=real(c, 0), y=real(c, 3)), 6)


@onnx_op("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_activation(c: NodeContext) -> Operand:
    x = real(c, 0)
    y = c.ops.sigmoid(x=x) if c.node.op_type == "QLinearSigmoid" else c.ops.leaky_relu(x=x, alpha=c.attr("alpha", 0.01))
    return back(c, y, 3)


@onnx_op("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(c: NodeContext) -> Operand:
    x = real(c, 0)
    rank = type_of(x).rank
    axes = range(1, rank - 1) if c.attr("channels_last", 0) else range(2, rank)
    return back(c, c.ops.reduce_mean(x=x, axes=axes, keep_dims=True), 3)


@onnx_op("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(c: NodeContext) -> Operand:
    """Inputs: result scale and zero point, then data, scale, zero point of each part."""
    parts = [real(c, index) for index in range(2, len(c), 3)]
    axis = axis_in(c.attr("axis"), type_of(parts[0]).rank)
    return back(c, c.join(parts, axis), 0)


@onnx_op("QGemm", domain=MICROSOFT)
def qgemm(c: NodeContext) -> Operand:
    """``alpha * (A - a0) (B - b0) + C`` of exact integers, scaled; float32 where no result scale is given."""
    a, b = c.need(0), c.need(3)
    columns = type_of(b).shape[0 if c.attr("transB", 0) else 1]
    point = [columns, 1] if c.attr("transB", 0) else [columns]
    b_zero = c[5]
    per = point if b_zero is not None and type_of(b_zero).rank == 1 and type_of(b_zero).shape[0] > 1 else None
    total = c.ops.matmul(
        x=whole(c, a, c[2]),
        y=whole(c, b, b_zero, per),
        transpose_x=bool(c.attr("transA", 0)),
        transpose_y=bool(c.attr("transB", 0)),
    )
    if c.has(6):
        total = c.ops.add(x=total, y=c.cast(c.need(6), "fp64"))
    factor = c.ops.mul(x=c.cast(c.scalar(c.need(1)), "fp64"), y=c.cast(c.scalar(c.need(4)), "fp64"))
    factor = c.ops.mul(x=factor, y=np.array(c.attr("alpha", 1.0), np.float64))
    if not c.has(7):
        return c.cast(c.ops.mul(x=total, y=factor), "fp32")
    return requantise(c, total, c.ops.real_div(x=factor, y=c.cast(c.scalar(c.need(7)), "fp64")), c.need(8))


@onnx_op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(c: NodeContext) -> Operand:
    """Integer product times both scales, plus a bias."""
    a, b, a_scale, b_scale = c.need(0), c.need(1), c.scalar(c.need(2)), c.scalar(c.need(3))
    return _scaled_product(c, whole(c, a, c[4]), whole(c, b, c[5]), c.ops.mul(x=a_scale, y=b_scale), c[6])


@onnx_op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(c: NodeContext) -> Operand:
    """A is quantised by its own range first."""
    a, scale, zero = dynamic_quantize_linear(c)
    scale = c.ops.mul(x=scale, y=c.scalar(c.need(2)))
    return _scaled_product(c, whole(c, a, zero), whole(c, c.need(1), c[3]), scale, c[4])


def _scaled_product(c: NodeContext, a: Operand, b: Operand, scale: Operand, bias: Operand | None) -> Operand:
    """``a b scale + bias`` of whole numbers a and b."""
    return c.affine(c.cast(c.ops.matmul(x=a, y=b), "fp32"), scale, bias)


@onnx_op("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(c: NodeContext) -> Operand:
    """``A B^T`` with B in blocks of 4-bit (or 8-bit) integers along its rows, one scale and zero point per block."""
    columns, rows, bits, block = c.attr("N"), c.attr("K"), c.attr("bits", 4), c.attr("block_size")
    packed, scales, zeros = c.constant(1), c.constant(2), c.constant(3)
    if packed is None or scales is None or bits not in (4, 8) or c.has(4):
        raise Refused("it has no constant weights, regrouped ones, or ones of a width other than 4 and 8 bits")
    if not columns or not rows or not block:
        raise GraphError("MatMulNBits needs N, K and block_size")
    blocks = ceil_div(rows, block)
    values = _unpacked(packed.reshape(-1), bits, columns * blocks * block).reshape(columns, blocks, block)
    offset: np.ndarray = np.full((columns, blocks, 1), 1 << (bits - 1), np.float32)
    if zeros is not None:
        if zeros.dtype.kind == "f":
            offset = zeros.reshape(columns, blocks, 1).astype(np.float32)
        else:
            whole_bytes = ceil_div(blocks * bits, 8)
            rows_of = zeros.reshape(columns, whole_bytes)
            offset = (
                np.stack([_unpacked(row, bits, blocks) for row in rows_of])
                .reshape(columns, blocks, 1)
                .astype(np.float32)
            )
    x = c.need(0)
    extra = {"bias": c.need(5)} if c.has(5) else {}
    dtype = type_of(x).dtype
    whole_points = bool((offset == np.rint(offset)).all())
    if rows % block == 0 and whole_points and dtype in ("fp16", "fp32") and columns * rows >= KEPT_ELEMENTS:
        stored = f"uint{bits}"
        weight = blockwise(
            c,
            (values.reshape(columns, rows).astype(np.uint8), stored),
            scales.reshape(columns, blocks).astype(type_of(x).carrier),
            (offset.reshape(columns, blocks).astype(np.uint8), stored),
        )
        return c.ops.linear(x=x, weight=weight, **extra)
    weight = (values.astype(np.float32) - offset) * scales.reshape(columns, blocks, 1).astype(np.float32)
    weight = weight.reshape(columns, blocks * block)[:, :rows].astype(type_of(c.need(0)).carrier)
    return c.ops.linear(x=x, weight=np.ascontiguousarray(weight), **extra)


def _unpacked(raw: np.ndarray, bits: int, count: int) -> np.ndarray:
    """4-bit numbers stand low half first."""
    if bits == 8:
        return raw[:count]
    return np.stack([raw & 15, raw >> 4], axis=-1).reshape(-1)[:count]
