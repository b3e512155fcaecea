"""Quantised maps: scales of channels become products, and every convolution gets the bytes that it sums."""

from __future__ import annotations

import numpy as np

from hexane.graph import GraphBuilder
from hexane.graph.ir import Function, Op, Value
from hexane.graph.ops._rules import along
from hexane.graph.rewrite import replace_op
from hexane.passes.rewriting import sweep


def legalise_quantised(function: Function) -> int:
    """A map that is quantised with a scale for each channel is multiplied first; the engine's task has one number."""
    return sweep(function, {"quantize": _quantize, "dequantize": _dequantize})


def _vectors(op: Op) -> tuple[np.ndarray, np.ndarray] | None:
    """Scales and zero points ready to broadcast, where there is more than one of either."""
    scale, zero = op.inputs["scale"], op.inputs.get("zero_point")
    if not scale.is_constant or (zero is not None and not zero.is_constant):
        return None
    points = np.zeros((), np.float32) if zero is None else np.asarray(zero.data).astype(np.float32)
    factors = np.asarray(scale.data)
    if factors.size == points.size == 1 or op.inputs["input"].is_constant:
        return None
    rank, axis = op.output.rank, op.arg("axis")
    return along(factors, rank, axis), along(points, rank, axis).astype(factors.dtype)


def _dequantize(op: Op, b: GraphBuilder) -> Value | None:
    vectors = _vectors(op)
    if vectors is None:
        return None
    factors, points = vectors
    y = b.cast(x=op.inputs["input"], dtype=op.output.dtype)
    if points.any():
        y = b.sub(x=y, y=points)
    return b.mul(x=y, y=factors)


def _quantize(op: Op, b: GraphBuilder) -> Value | None:
    vectors = _vectors(op)
    if vectors is None or vectors[1].size > 1:
        return None
    factors, points = vectors
    x = b.mul(x=op.inputs["input"], y=(1 / factors.astype(np.float64)).astype(factors.dtype))
    dtype = op.output.dtype
    point = {} if not points.any() else {"zero_point": points.reshape(()).astype(dtype)}
    return b.quantize(input=x, scale=np.ones((), factors.dtype), output_dtype=dtype, **point)


def bytes_of_convolutions(function: Function) -> int:
    """Every convolution of a dequantised map has a ``dequantize`` of its own, so that it may read the bytes."""
    count = 0
    for op in function.walk():
        if op.type != "dequantize" or op.inputs["input"].is_constant:
            continue
        users = [user for user in op.output.users if user.type == "conv" and user.arg("x") is op.output]
        if len(op.output.users) == 1 and not op.output.is_output:
            continue
        for user in users:
            assert user.block is not None
            b = GraphBuilder(function=function, before=user, opset=function.opset)
            b.block = user.block
            own = b.dequantize(**{name: op.inputs[name] for name in op.inputs})
            user.set_input("x", own)
            count += 1
        if not op.output.is_used:
            replace_op(op, op.outputs)
    return count
