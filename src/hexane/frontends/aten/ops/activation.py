"""Activations, softmax."""

from __future__ import annotations

import numpy as np

from hexane.formats.operands import Operand
from hexane.frontends.aten.node import AtenNode, Refused, aten


@aten("relu.default")
def relu(c: AtenNode) -> Operand:
    return c.ops.relu(x=c.x())


@aten("relu6.default")
def relu6(c: AtenNode) -> Operand:
    return c.ops.relu6(x=c.x())


@aten("silu.default")
def silu(c: AtenNode) -> Operand:
    return c.ops.silu(x=c.x())


@aten("mish.default")
def mish(c: AtenNode) -> Operand:
    x = c.x()
    return c.ops.mul(x=x, y=c.ops.tanh(x=c.ops.softplus(x=x)))


@aten("gelu.default")
def gelu(c: AtenNode) -> Operand:
    return c.ops.gelu(x=c.x(), mode="TANH_APPROXIMATION" if c["approximate"] == "tanh" else "EXACT")


@aten("hardsigmoid.default")
def hardsigmoid(c: AtenNode) -> Operand:
    return c.ops.sigmoid_hard(x=c.x(), alpha=1 / 6, beta=0.5)


@aten("hardswish.default")
def hardswish(c: AtenNode) -> Operand:
    x = c.x()
    return c.ops.mul(x=x, y=c.ops.sigmoid_hard(x=x, alpha=1 / 6, beta=0.5))


@aten("leaky_relu.default")
def leaky_relu(c: AtenNode) -> Operand:
    return c.ops.leaky_relu(x=c.x(), alpha=c.number("negative_slope"))


@aten("elu.default", "celu.default")
def elu(c: AtenNode) -> Operand:
    """``scale (x from 0 on, alpha (exp(input_scale x) - 1) below)``; celu divides by alpha inside."""
    x, alpha = c.x(), c.number("alpha")
    scale = c.number("scale", 1.0) if "scale" in c.arguments else 1.0
    inner = c.number("input_scale", 1.0) if "input_scale" in c.arguments else 1 / alpha
    if inner == 1:
        y = c.ops.elu(x=x, alpha=alpha)
    else:
        low = c.ops.elu(x=c.ops.minimum(x=c.ops.mul(x=x, y=c.like(inner, x)), y=c.like(0, x)), alpha=alpha)
        y = c.ops.select(cond=c.ops.greater(x=x, y=c.like(0, x)), a=x, b=low)
    return y if scale == 1 else c.ops.mul(x=y, y=c.like(scale, x))


@aten("softplus.default")
def softplus(c: AtenNode) -> Operand:
    """``ln(1 + exp(beta x)) / beta``, and x itself where beta x is above the threshold."""
    x, beta, threshold = c.x(), c.number("beta"), c.number("threshold")
    scaled = x if beta == 1 else c.ops.mul(x=x, y=c.like(beta, x))
    y = c.ops.softplus(x=scaled)
    y = y if beta == 1 else c.ops.mul(x=y, y=c.like(1 / beta, x))
    if threshold >= 20:  # exp(-20) is below a half of the last place of half and single precision there
        return y
    return c.ops.select(cond=c.ops.greater(x=scaled, y=c.like(threshold, x)), a=x, b=y)


@aten("hardtanh.default")
def hardtanh(c: AtenNode) -> Operand:
    return c.ops.clip(x=c.x(), alpha=c.number("min_val"), beta=c.number("max_val"))


@aten("_prelu_kernel.default", "prelu.default")
def prelu(c: AtenNode) -> Operand:
    x = c.x()
    weight = c.x("weight")
    if c.rank(weight) == 1 and c.rank(x) > 1 and c.shape(weight) != (1,):
        weight = c.reshape(
            weight, (1, -1 if isinstance(weight, np.ndarray) else c.shape(weight)[0]) + (1,) * (c.rank(x) - 2)
        )
    zero = c.like(0, x)
    low = c.ops.mul(x=c.ops.minimum(x=x, y=zero), y=weight)
    return c.ops.add(x=c.ops.maximum(x=x, y=zero), y=low)


@aten("_softmax.default", "softmax.int")
def softmax(c: AtenNode) -> Operand:
    x = c.cast(c.x(), c.out().dtype)
    if c.rank(x) == 0:
        return c.ops.add(x=c.ops.mul(x=x, y=c.like(0, x)), y=c.like(1, x))
    return c.ops.softmax(x=x, axis=c.axis(c["dim"], c.rank(x)))


@aten("_log_softmax.default", "log_softmax.int")
def log_softmax(c: AtenNode) -> Operand:
    """``x - max - ln(sum exp(x - max))``: the logarithm of a softmax would lose what half precision cannot hold."""
    x = c.cast(c.x(), c.out().dtype)
    if c.rank(x) == 0:
        return c.ops.mul(x=x, y=c.like(0, x))
    axes = np.array([c.axis(c["dim"], c.rank(x))], np.int32)
    low = c.ops.sub(x=x, y=c.ops.reduce_max(x=x, axes=axes, keep_dims=True))
    total = c.ops.reduce_sum(x=c.ops.exp(x=low), axes=axes, keep_dims=True)
    return c.ops.sub(x=low, y=c.ops.log(x=total, epsilon=0.0))


@aten("glu.default")
def glu(c: AtenNode) -> Operand:
    x = c.x()
    axis = c.axis(c["dim"], c.rank(x))
    half = c.shape(x)[axis] // 2
    if 2 * half != c.shape(x)[axis]:
        raise Refused("an odd number of channels")
    return c.ops.mul(x=c.slice(x, axis, 0, half), y=c.ops.sigmoid(x=c.slice(x, axis, half, 2 * half)))
