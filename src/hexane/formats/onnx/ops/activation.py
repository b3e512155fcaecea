"""Activations."""

from __future__ import annotations

import numpy as np

from hexane.formats.onnx.context import NodeContext, Operand, axis_in, type_of
from hexane.formats.onnx.registry import MICROSOFT, onnx_op
from hexane.graph.types import DTYPES


@onnx_op("Relu")
def relu(c: NodeContext) -> Operand:
    return c.ops.relu(x=c.need(0))


@onnx_op("Sigmoid")
def sigmoid(c: NodeContext) -> Operand:
    return c.ops.sigmoid(x=c.need(0))


@onnx_op("Softplus")
def softplus(c: NodeContext) -> Operand:
    return c.ops.softplus(x=c.need(0))


@onnx_op("Softsign")
def softsign(c: NodeContext) -> Operand:
    return c.ops.softsign(x=c.need(0))


@onnx_op("LeakyRelu")
def leaky_relu(c: NodeContext) -> Operand:
    return c.ops.leaky_relu(x=c.need(0), alpha=c.attr("alpha", 0.01))


@onnx_op("Elu")
def elu(c: NodeContext) -> Operand:
    return c.ops.elu(x=c.need(0), alpha=c.attr("alpha", 1.0))


@onnx_op("Celu")
def celu(c: NodeContext) -> Operand:
    """``max(0, x) + min(0, alpha (exp(x / alpha) - 1))``."""
    x, alpha = c.need(0), c.attr("alpha", 1.0)
    if alpha == 1.0:
        return c.ops.elu(x=x, alpha=1.0)
    scaled = c.ops.real_div(x=x, y=c.like(alpha, x))
    return c.ops.mul(x=c.ops.elu(x=scaled, alpha=1.0), y=c.like(alpha, x))


@onnx_op("Selu")
def selu(c: NodeContext) -> Operand:
    x = c.need(0)
    alpha, gamma = c.attr("alpha", 1.6732632423543772848), c.attr("gamma", 1.0507009873554804934)
    return c.ops.mul(x=c.ops.elu(x=x, alpha=alpha), y=c.like(gamma, x))


@onnx_op("HardSigmoid")
def hard_sigmoid(c: NodeContext) -> Operand:
    return c.ops.sigmoid_hard(x=c.need(0), alpha=c.attr("alpha", 0.2), beta=c.attr("beta", 0.5))


@onnx_op("HardSwish")
def hard_swish(c: NodeContext) -> Operand:
    x = c.need(0)
    return c.ops.mul(x=x, y=c.ops.sigmoid_hard(x=x, alpha=1 / 6, beta=0.5))


@onnx_op("Mish")
def mish(c: NodeContext) -> Operand:
    x = c.need(0)
    return c.ops.mul(x=x, y=c.ops.tanh(x=c.ops.softplus(x=x)))


def swish_of(c: NodeContext, x: Operand, alpha: float) -> Operand:
    """``x * sigmoid(alpha x)``."""
    if alpha == 1.0:
        return c.ops.silu(x=x)
    return c.ops.mul(x=x, y=c.ops.sigmoid(x=c.ops.mul(x=x, y=c.like(alpha, x))))


@onnx_op("Swish")
def swish(c: NodeContext) -> Operand:
    return swish_of(c, c.need(0), c.attr("alpha", 1.0))


@onnx_op("QuickGelu", domain=MICROSOFT)
def quick_gelu(c: NodeContext) -> Operand:
    return swish_of(c, c.need(0), c.attr("alpha", 1.702))


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


def _flat_axis(c: NodeContext, x: Operand, work: object) -> Operand:
    """Before op set 13, softmax and its kin worked on a matrix [before axis, from axis on]."""
    shape = type_of(x).shape
    axis = axis_in(c.attr("axis", 1), len(shape))
    flat = c.reshape(x, (int(np.prod(shape[:axis])), int(np.prod(shape[axis:]))))
    return c.reshape(work(flat, 1), shape)  # type: ignore[operator]


def _along(c: NodeContext, work: object) -> Operand:
    x = c.need(0)
    shape = type_of(x).shape
    if not shape:
        return c.reshape(work(c.reshape(x, (1,)), 0), ())  # type: ignore[operator]
    if c.version < 13:
        axis = axis_in(c.attr("axis", 1), len(shape))
        if axis == len(shape) - 1:
            return work(x, axis)  # type: ignore[operator]
        return _flat_axis(c, x, work)
    return work(x, axis_in(c.attr("axis", -1), len(shape)))  # type: ignore[operator]


@onnx_op("Softmax")
def softmax(c: NodeContext) -> Operand:
    return _along(c, lambda x, axis: c.ops.softmax(x=x, axis=axis))


def log_softmax_of(c: NodeContext, x: Operand, axis: int) -> Operand:
    """``x - max - log(sum(exp(x - max)))``: exact where softmax underflows."""
    shifted = c.ops.sub(x=x, y=c.ops.reduce_max(x=x, axes=np.array([axis], np.int32), keep_dims=True))
    total = c.ops.reduce_log_sum_exp(x=shifted, axes=np.array([axis], np.int32), keep_dims=True)
    return c.ops.sub(x=shifted, y=total)


@onnx_op("LogSoftmax")
def log_softmax(c: NodeContext) -> Operand:
    return _along(c, lambda x, axis: log_softmax_of(c, x, axis))


@onnx_op("Hardmax")
def hardmax(c: NodeContext) -> Operand:
    return _along(c, lambda x, axis: c.ops.op("onnx.Hardmax", x=x, axis=axis))
