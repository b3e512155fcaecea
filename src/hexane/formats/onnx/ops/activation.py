"""Activations."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from hexane.formats.compositions import axis_in
from hexane.formats.onnx.context import NodeContext
from hexane.formats.onnx.registry import MICROSOFT, one_op, onnx_op
from hexane.formats.operands import Operand, type_of
from hexane.graph.types import DTYPES

one_op("LeakyRelu", "leaky_relu", "x", alpha=0.01)
one_op("HardSigmoid", "sigmoid_hard", "x", alpha=0.2, beta=0.5)


@onnx_op("Elu", "Celu", "Selu")
def elu(c: NodeContext) -> Operand:
    if c.node.op_type == "Selu":
        alpha, gamma = c.attr("alpha", 1.6732632423543772848), c.attr("gamma", 1.0507009873554804934)
        return c.elu(c.need(0), alpha, scale=gamma)
    alpha = c.attr("alpha", 1.0)
    return c.elu(c.need(0), alpha, inner=1 / alpha if c.node.op_type == "Celu" else 1)


@onnx_op("HardSwish")
def hard_swish(c: NodeContext) -> Operand:
    return c.hard_swish(c.need(0))


@onnx_op("Mish")
def mish(c: NodeContext) -> Operand:
    return c.mish(c.need(0))


@onnx_op("Swish")
@onnx_op("QuickGelu", domain=MICROSOFT)
def swish(c: NodeContext) -> Operand:
    return c.swish(c.need(0), c.attr("alpha", 1.0 if c.node.op_type == "Swish" else 1.702))


@onnx_op("ThresholdedRelu")
def thresholded_relu(c: NodeContext) -> Operand:
    """x above alpha, else 0: ONNX leaves alpha itself out, where MIL keeps it."""
    x = c.need(0)
    alpha = c.like(c.attr("alpha", 1.0), x)
    return c.ops.select(cond=c.ops.greater(x=x, y=alpha), a=x, b=c.like(0, x))


@onnx_op("Shrink")
def shrink(c: NodeContext) -> Operand:
    x, bias, lambd = c.need(0), c.attr("bias", 0.0), c.attr("lambd", 0.5)
    below = c.ops.select(cond=c.ops.less(x=x, y=c.like(-lambd, x)), a=c.ops.add(x=x, y=c.like(bias, x)), b=c.like(0, x))
    return c.ops.select(cond=c.ops.greater(x=x, y=c.like(lambd, x)), a=c.ops.sub(x=x, y=c.like(bias, x)), b=below)


@onnx_op("Gelu")
def gelu(c: NodeContext) -> Operand:
    mode = "TANH_APPROXIMATION" if c.attr("approximate", "none") == "tanh" else "EXACT"
    return c.ops.gelu(x=c.need(0), mode=mode)


@onnx_op("Clip")
def clip(c: NodeContext) -> Operand:
    """One ``clip`` where both bounds are constant; NaN-free bounds come as attributes before op set 11."""
    x = c.need(0)
    if c.version < 11:
        low, high = c.attr("min", -np.inf), c.attr("max", np.inf)
    elif c.is_constant(1) and c.is_constant(2):
        low, high = (None if (bound := c.constant(i)) is None else bound.reshape(()) for i in (1, 2))
    else:
        if c.has(1):
            x = c.ops.maximum(x=x, y=c.reshape(c.need(1), ()))
        return c.ops.minimum(x=x, y=c.reshape(c.need(2), ())) if c.has(2) else x
    carrier = DTYPES[type_of(x).dtype].carrier
    if carrier.kind != "f":
        x = x if low is None else c.ops.maximum(x=x, y=np.asarray(low, carrier))
        return x if high is None else c.ops.minimum(x=x, y=np.asarray(high, carrier))
    low = -np.inf if low is None else float(low)
    high = np.inf if high is None else float(high)
    if low == 0 and high == 6:
        return c.ops.relu6(x=x)
    if low == 0 and high == np.inf:
        return c.ops.relu(x=x)
    return c.ops.clip(x=x, alpha=low, beta=high)


@onnx_op("PRelu")
def prelu(c: NodeContext) -> Operand:
    """MIL's prelu where the slope is one per channel, else spelled out."""
    x, slope = c.need(0), c.need(1)
    shape, slopes = type_of(x).shape, type_of(slope).shape
    if isinstance(slope, np.ndarray) and len(shape) >= 3 and type_of(x).dtype in ("fp16", "fp32"):
        spread = (1,) * (len(shape) - len(slopes)) + slopes
        if all(extent == 1 for axis, extent in enumerate(spread) if axis != 1) and spread[1] in (1, shape[1]):
            alpha = np.broadcast_to(slope.reshape(-1), (shape[1],))
            return c.ops.prelu(x=x, alpha=np.ascontiguousarray(alpha))
    zero = c.like(0, x)
    return c.ops.select(cond=c.ops.less(x=x, y=zero), a=c.ops.mul(x=x, y=slope), b=x)


def _along(c: NodeContext, work: Callable[[Operand, int], Operand]) -> Operand:
    """Before op set 13, softmax and its kin worked on a matrix [before axis, from axis on]."""
    x = c.need(0)
    shape = type_of(x).shape
    if not shape:
        return c.reshape(work(c.reshape(x, (1,)), 0), ())
    axis = axis_in(c.attr("axis", -1 if c.version >= 13 else 1), len(shape))
    if c.version >= 13 or axis == len(shape) - 1:
        return work(x, axis)
    return c.reshape(work(c.reshape(x, (prod(shape[:axis]), prod(shape[axis:]))), 1), shape)


@onnx_op("Softmax")
def softmax(c: NodeContext) -> Operand:
    return _along(c, lambda x, axis: c.ops.softmax(x=x, axis=axis))


@onnx_op("LogSoftmax")
def log_softmax(c: NodeContext) -> Operand:
    return _along(c, c.log_softmax)


@onnx_op("Hardmax")
def hardmax(c: NodeContext) -> Operand:
    return _along(c, lambda x, axis: c.ops.op("onnx.Hardmax", x=x, axis=axis))
