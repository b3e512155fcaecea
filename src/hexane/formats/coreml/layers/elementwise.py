"""Activations and element-wise layers of classic Core ML networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.formats.coreml.layers.context import LayerContext
from hexane.formats.coreml.layers.registry import layer
from hexane.formats.operands import Operand


@layer("activation")
def activation(c: LayerContext) -> Operand:
    x = c[0]
    kind = c.params.WhichOneof("NonlinearityType")
    if kind is None:
        raise GraphError("an activation of no kind")
    p = getattr(c.params, kind)
    plain = {"ReLU": "relu", "tanh": "tanh", "sigmoid": "sigmoid", "softsign": "softsign", "softplus": "softplus"}
    alpha = {"leakyReLU": "leaky_relu", "thresholdedReLU": "thresholded_relu", "ELU": "elu"}
    both = {"linear": "linear_activation", "scaledTanh": "scaled_tanh", "sigmoidHard": "sigmoid_hard"}
    if kind in plain:
        return c.ops.op(plain[kind], x=x)
    if kind in alpha:
        return c.ops.op(alpha[kind], x=x, alpha=p.alpha)
    if kind in both:
        return c.ops.op(both[kind], x=x, alpha=p.alpha, beta=p.beta)
    channels = c.shape(x)[c.channel_axis(x)]
    if kind == "PReLU":
        return c.ops.prelu(x=x, alpha=_per_channel(c, p.alpha, channels))
    return c.ops.softplus_parametric(
        x=x, alpha=_per_channel(c, p.alpha, channels), beta=_per_channel(c, p.beta, channels)
    )


def _per_channel(c: LayerContext, params: Any, channels: int) -> np.ndarray:
    single = len(params.floatValue) == 1 or len(params.float16Value) == 2
    return np.broadcast_to(c.weight(params, (1,)), (channels,)).copy() if single else c.weight(params, (channels,))


@layer("gelu")
def gelu(c: LayerContext) -> Operand:
    modes = ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION")
    return c.ops.gelu(x=c[0], mode=modes[c.params.mode])


@layer("softmax")
def softmax(c: LayerContext) -> Operand:
    return c.ops.softmax(x=c[0], axis=c.channel_axis(c[0]))


_PLAIN: dict[str, tuple[str, dict[str, str]]] = {
    name: (name, {})
    for name in (
        "ceil", "floor", "sign", "round", "exp2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
        "atanh", "erf",
    )
} | {
    "asinh": ("onnx.Asinh", {}), "acosh": ("onnx.Acosh", {}), "logicalNot": ("logical_not", {}),
    "copy": ("identity", {}), "clip": ("clip", {"alpha": "minVal", "beta": "maxVal"}),
    "clampedReLU": ("clamped_relu", {"alpha": "alpha", "beta": "beta"}), "softmaxND": ("softmax", {"axis": "axis"}),
    "l2normalize": ("l2_norm", {"epsilon": "epsilon"}), "transpose": ("transpose", {"perm": "axes"}),
    "lrn": ("local_response_norm", {"size": "localSize", "alpha": "alpha", "beta": "beta", "k": "k"}),
    "matrixBandPart": ("band_part", {"lower": "numLower", "upper": "numUpper"}), "tile": ("tile", {"reps": "reps"}),
    "expandDims": ("expand_dims", {"axes": "axes"}), "flattenTo2D": ("flatten2d", {"axis": "axis"}),
    "reshapeStatic": ("reshape", {"shape": "targetShape"}),
    "rankPreservingReshape": ("reshape", {"shape": "targetShape"}),
    "cumSum": ("cumsum", {"axis": "axis", "exclusive": "excludeFinalSum", "reverse": "reverse"}),
}  # fmt: skip
"""Layers that are one op: MIL's name, and its parameters by the names that the layer gives them."""


@layer(*_PLAIN)
def plain(c: LayerContext) -> Operand:
    op, fields = _PLAIN[c.kind]
    given = {name: getattr(c.params, field) for name, field in fields.items()}
    return c.ops.op(op, x=c[0], **{name: value if np.isscalar(value) else list(value) for name, value in given.items()})


@layer("unary")
def unary(c: LayerContext) -> Operand:
    """``f(scale * x + shift)``."""
    p, x = c.params, c[0]
    # Scale and shift have defaults (1 and 0) that the protobuf cannot tell from a written 0 (Core ML reads 0 as 1).
    x = c.scale(x, p.scale or 1.0)
    if p.shift:
        x = c.ops.add(x=x, y=c.like(p.shift, x))
    kind = ("sqrt", "rsqrt", "inverse", "pow", "exp", "log", "abs", "threshold")[p.type]
    epsilon = p.epsilon or 1e-6
    if kind in ("rsqrt", "inverse"):
        return c.ops.op(kind, x=x, epsilon=epsilon)
    if kind == "pow":
        return c.ops.pow(x=x, y=c.like(p.alpha, x))
    if kind == "log":
        return c.ops.log(x=x, epsilon=0.0)
    return c.ops.threshold(x=x, alpha=p.alpha) if kind == "threshold" else c.ops.op(kind, x=x)


_BINARY = {
    "addBroadcastable": "add", "subtractBroadcastable": "sub", "multiplyBroadcastable": "mul",
    "divideBroadcastable": "real_div", "powBroadcastable": "pow", "floorDivBroadcastable": "floor_div",
    "modBroadcastable": "mod", "minBroadcastable": "minimum", "maxBroadcastable": "maximum",
}  # fmt: skip


@layer(*_BINARY, "max", "min")
def binary(c: LayerContext) -> Operand:
    op = _BINARY.get(c.kind) or {"max": "maximum", "min": "minimum"}[c.kind]
    return c.fold(op, c.inputs())


@layer("add", "multiply")
def add(c: LayerContext) -> Operand:
    """With one input, the layer's own constant is the other operand."""
    op = "add" if c.kind == "add" else "mul"
    if len(c) == 1:
        return c.ops.op(op, x=c[0], y=c.like(c.params.alpha, c[0]))
    return c.fold(op, c.inputs())


@layer("average")
def average(c: LayerContext) -> Operand:
    return c.scale(c.fold("add", c.inputs()), 1 / len(c))


_COMPARE = {
    "equal": "equal", "notEqual": "not_equal", "lessThan": "less", "lessEqual": "less_equal", "greaterThan": "greater",
    "greaterEqual": "greater_equal",
}  # fmt: skip


@layer(*_COMPARE)
def compare(c: LayerContext) -> Operand:
    """Classic networks carry truth as 0 and 1 in floats."""
    other = c[1] if len(c) > 1 else c.like(c.params.alpha, c[0])
    return c.cast(c.ops.op(_COMPARE[c.kind], x=c[0], y=other), "fp32")


@layer("whereBroadcastable")
def where(c: LayerContext) -> Operand:
    return c.ops.select(cond=c.cast(c[0], "bool"), a=c[1], b=c[2])


def _plane(values: np.ndarray) -> np.ndarray:
    """A constant of shape [C], [1] or [C, H, W] so that it broadcasts with the last three axes of an operand."""
    return values.reshape(-1, 1, 1) if values.ndim == 1 else values


@layer("scale")
def scale(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    y = c.ops.mul(x=x, y=_plane(c.weight(p.scale, tuple(int(n) for n in p.shapeScale))))
    if p.hasBias:
        y = c.ops.add(x=y, y=_plane(c.weight(p.bias, tuple(int(n) for n in p.shapeBias))))
    return y


@layer("bias")
def bias(c: LayerContext) -> Operand:
    p = c.params
    return c.ops.add(x=c[0], y=_plane(c.weight(p.bias, tuple(int(n) for n in p.shape))))
