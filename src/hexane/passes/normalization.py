"""Norms: found where a network spells them out, folded where their statistics are constants."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.graph.registry import has
from hexane.graph.traits import CONVOLVES
from hexane.passes.rewriting import (
    NUMPY_FLOATS,
    array_of,
    as_dtype,
    number_of,
    operand_and_constant,
    operand_and_number,
    reduced_axes,
    sweep,
)
from hexane.passes.scaling import scaled

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Op, Value
    from hexane.lowering.compilation import Compilation


ROUNDING = 2.0**-22
"""What 1 / n may be off in float32."""


def recognise_norms(function: Function, compilation: Compilation) -> int:
    """Find layer_norm spelled out as mean, difference, mean square, root, quotient: the engine's own fused chain; and
    means spelled out as sums, which are stored where they may be beyond fp16.

    Apple's compiler leaves norms as they are written, so that squares are stored (rule N4 of docs/restrictions.md).
    """
    if compilation.as_apple:
        return 0
    means = sweep(function, {"real_div": _mean, "mul": _mean})
    norms = sweep(function, {"real_div": _layer_norm, "mul": _layer_norm})
    return means + norms + sweep(function, {"add": _affine})


def _mean(op: Op, b: GraphBuilder) -> Value | None:
    """A sum over n elements times 1 / n, or over n, as JAX and TensorFlow write a mean."""
    operands = operand_and_number(op)
    if operands is None or operands[0].op is None or operands[0].op.type != "reduce_sum":
        return None
    x, factor, is_first = operands
    total = operands[0].op
    if x.only_user is not op or x.type != op.output.type or (op.type == "real_div" and is_first):
        return None
    shape, axes = total.inputs["x"].shape, reduced_axes(total)
    if any(shape[axis] is None for axis in axes):
        return None
    count = prod(shape[axis] for axis in axes)
    if abs((factor * count if op.type == "mul" else factor / max(count, 1)) - 1) > ROUNDING:
        return None
    return b.reduce_mean(x=total.inputs["x"], axes=axes, keep_dims=total.arg("keep_dims"))


def _layer_norm(op: Op, b: GraphBuilder) -> Value | None:
    """(x - mean) / sqrt(mean((x - mean)^2) + epsilon), or times rsqrt of the same."""
    for left, right in (("x", "y"), ("y", "x")):
        if op.type == "real_div" and left == "y":
            break
        centred, root = op.inputs[left].op, op.inputs[right].op
        if centred is None or root is None or centred.type != "sub":
            continue
        kind = "sqrt" if op.type == "real_div" else "rsqrt"
        if root.type != kind:
            continue
        pair = _variance(root)
        if pair is None:
            continue
        variance, epsilon = pair
        x, mean = centred.inputs["x"], centred.inputs["y"].op
        if mean is None or mean.type != "reduce_mean" or mean.inputs["x"] is not x or not mean.arg("keep_dims"):
            continue
        axes = reduced_axes(mean)
        if not _is_variance(variance, op.inputs[left], axes):
            continue
        return b.layer_norm(x=x, axes=axes, epsilon=epsilon)
    return None


def _variance(root: Op) -> tuple[Op, float] | None:
    """(the op that makes the variance, epsilon) under a root."""
    inner = root.inputs["x"].op
    extra = root.arg("epsilon") if root.type == "rsqrt" else 0.0
    if inner is None:
        return None
    if inner.type == "add":
        pair = operand_and_number(inner)
        if pair is None or pair[0].op is None:
            return None
        return pair[0].op, pair[1] + (extra if extra > 1e-11 else 0.0)
    return inner, extra


def _is_variance(op: Op, centred: Value, axes: list[int]) -> bool:
    """mean of the square of ``centred`` over the same axes."""
    if op.type != "reduce_mean" or not op.arg("keep_dims") or reduced_axes(op) != axes:
        return False
    square = op.inputs["x"].op
    if square is None:
        return False
    if square.type == "square":
        return square.inputs["x"] is centred
    if square.type == "mul":
        return square.inputs["x"] is centred and square.inputs["y"] is centred
    return square.type == "pow" and square.inputs["x"] is centred and number_of(square.inputs["y"]) == 2.0


def _affine(op: Op, b: GraphBuilder) -> Value | None:
    """layer_norm(x) * gamma + beta over the last axes, both constant, goes into the norm."""
    outer = operand_and_constant(op)
    if outer is None or outer[0].op is None or outer[0].op.type != "mul" or outer[0].only_user is not op:
        return None
    inner = operand_and_constant(outer[0].op)
    if inner is None or inner[0].op is None or inner[0].op.type != "layer_norm":
        return None
    norm = inner[0].op
    if inner[0].only_user is not outer[0].op or "gamma" in norm.inputs or "beta" in norm.inputs:
        return None
    x = norm.inputs["x"]
    rank = len(x.shape)
    axes = sorted(a % rank for a in norm.arg("axes"))
    if axes != list(range(rank - len(axes), rank)):
        return None
    shape = tuple(x.shape[a] for a in axes)
    gamma, beta = array_of(inner[1]), array_of(outer[1])
    if gamma is None or beta is None or gamma.size != np.prod(shape) or beta.size != np.prod(shape):
        return None
    operands = dict(x=x, axes=axes, epsilon=norm.arg("epsilon"))
    return b.layer_norm(**operands, gamma=as_dtype(gamma.reshape(shape), x), beta=as_dtype(beta.reshape(shape), x))


def fold_norms(function: Function) -> int:
    """Fold batch_norm into the convolution before it; elsewhere it is a factor and a summand per channel."""
    return sweep(function, {"batch_norm": _batch_norm, "instance_norm": _instance_norm, "layer_norm": _axes_in_order})


def _axes_in_order(op: Op, b: GraphBuilder) -> Value | None:
    """A layer_norm that names its axes in another order than they stand: gamma and beta are turned."""
    axes = [axis % op.inputs["x"].rank for axis in op.arg("axes") or ()]
    if axes == sorted(axes):
        return None
    order = sorted(range(len(axes)), key=axes.__getitem__)
    parameters: dict[str, Any] = {}
    for name in ("gamma", "beta"):
        value = op.inputs.get(name)
        if value is not None:
            is_fixed = value.is_constant and value.dtype in NUMPY_FLOATS
            parameters[name] = np.transpose(value.data, order) if is_fixed else b.transpose(x=value, perm=order)
    return b.layer_norm(x=op.inputs["x"], axes=sorted(axes), epsilon=op.arg("epsilon"), **parameters)


def _batch_norm(op: Op, b: GraphBuilder) -> Value | None:
    vectors = [array_of(op.inputs.get(name)) for name in ("mean", "variance", "gamma", "beta")]
    mean, variance, gamma, beta = vectors
    if mean is None or variance is None or (gamma is None) != ("gamma" not in op.inputs):
        return None
    if (beta is None) != ("beta" not in op.inputs):
        return None
    x = op.inputs["x"]
    if x.dtype not in NUMPY_FLOATS:
        return None
    channels = x.shape[1]
    scale = np.broadcast_to(1 / np.sqrt(variance + op.arg("epsilon")), (channels,))
    if gamma is not None:
        scale = scale * gamma
    shift = -mean * scale if beta is None else beta - mean * scale
    shift = np.broadcast_to(shift, (channels,))
    source = x.op
    if source is not None and has(source, CONVOLVES) and x.only_user is op:
        folded = scaled(source, scale, shift, b)
        if folded is not None:
            return folded
    shape = (1, channels, *(1,) * (len(x.shape) - 2))
    product = b.mul(x=x, y=as_dtype(scale.reshape(shape), x))
    return b.add(x=product, y=as_dtype(shift.reshape(shape), x))


def _instance_norm(op: Op, b: GraphBuilder) -> Value | None:
    """layer_norm over the pixels of a channel, then gamma and beta per channel."""
    x = op.inputs["x"]
    rank = len(x.shape)
    gamma, beta = op.inputs.get("gamma"), op.inputs.get("beta")
    if any(v is not None and not v.is_constant for v in (gamma, beta)):
        return None
    if x.dtype not in NUMPY_FLOATS:
        return None
    result = b.layer_norm(x=x, axes=list(range(2, rank)), epsilon=op.arg("epsilon"))
    shape = (1, x.shape[1], *(1,) * (rank - 2))
    if gamma is not None:
        result = b.mul(x=result, y=as_dtype(gamma.data.reshape(shape), x))
    if beta is not None:
        result = b.add(x=result, y=as_dtype(beta.data.reshape(shape), x))
    return result
