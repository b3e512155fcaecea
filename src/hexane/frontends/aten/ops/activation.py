"""Activations, softmax."""

from __future__ import annotations

from hexane.formats.operands import Operand
from hexane.frontends.aten.node import AtenNode, aten
from hexane.frontends.aten.ops.unary import plain

for _name in ("relu", "relu6", "silu"):
    aten(f"{_name}.default")(plain(_name))


@aten("mish.default")
def mish(c: AtenNode) -> Operand:
    return c.mish(c.x())


@aten("gelu.default")
def gelu(c: AtenNode) -> Operand:
    return c.ops.gelu(x=c.x(), mode="TANH_APPROXIMATION" if c["approximate"] == "tanh" else "EXACT")


@aten("hardsigmoid.default")
def hardsigmoid(c: AtenNode) -> Operand:
    return c.ops.sigmoid_hard(x=c.x(), alpha=1 / 6, beta=0.5)


@aten("hardswish.default")
def hardswish(c: AtenNode) -> Operand:
    return c.hard_swish(c.x())


@aten("leaky_relu.default")
def leaky_relu(c: AtenNode) -> Operand:
    return c.ops.leaky_relu(x=c.x(), alpha=c.number("negative_slope"))


@aten("elu.default", "celu.default")
def elu(c: AtenNode) -> Operand:
    """``scale (x from 0 on, alpha (exp(input_scale x) - 1) below)``; celu divides by alpha inside."""
    alpha = c.number("alpha")
    if "input_scale" not in c.arguments:
        return c.elu(c.x(), alpha, inner=1 / alpha)
    return c.elu(c.x(), alpha, c.number("scale"), c.number("input_scale"))


@aten("softplus.default")
def softplus(c: AtenNode) -> Operand:
    """``ln(1 + exp(beta x)) / beta``, and x itself where beta x is above the threshold."""
    x, beta, threshold = c.x(), c.number("beta"), c.number("threshold")
    scaled = c.scale(x, beta)
    y = c.scale(c.ops.softplus(x=scaled), 1 / beta)
    if threshold >= 20:  # exp(-20) is below a half of the last place of half and single precision there
        return y
    return c.ops.select(cond=c.ops.greater(x=scaled, y=c.like(threshold, x)), a=x, b=y)


@aten("hardtanh.default")
def hardtanh(c: AtenNode) -> Operand:
    return c.ops.clip(x=c.x(), alpha=c.number("min_val"), beta=c.number("max_val"))


@aten("_softmax.default")
def softmax(c: AtenNode) -> Operand:
    x = c.cast(c.x(), c.out().dtype)
    if c.rank(x) == 0:
        return c.ops.add(x=c.ops.mul(x=x, y=c.like(0, x)), y=c.like(1, x))
    return c.ops.softmax(x=x, axis=c.axis(x))


@aten("_log_softmax.default")
def log_softmax(c: AtenNode) -> Operand:
    x = c.cast(c.x(), c.out().dtype)
    return c.log_softmax(x, c.axis(x)) if c.rank(x) else c.ops.mul(x=x, y=c.like(0, x))
