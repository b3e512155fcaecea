"""Matrix products and normalisations."""

from __future__ import annotations

import numpy as np

from hexane.errors import GraphError
from hexane.formats.compositions import MIL_FLOATS, Refused, all_constant, axis_in
from hexane.formats.onnx.context import NodeContext
from hexane.formats.onnx.ops.shape import static_shape
from hexane.formats.onnx.registry import onnx_op
from hexane.formats.operands import Operand, type_of


def product(c: NodeContext, x: Operand, y: Operand) -> Operand:
    """``linear`` where the right side is a constant matrix (a view, so that weights stay on disk), else ``matmul``."""
    if isinstance(y, np.ndarray) and y.ndim == 2:
        return c.linear(x, y.T, None)
    return c.ops.matmul(x=x, y=y)


@onnx_op("MatMul")
def matmul(c: NodeContext) -> Operand:
    return product(c, c.need(0), c.need(1))


@onnx_op("Gemm")
def gemm(c: NodeContext) -> Operand:
    """``alpha A B + beta C``; ``linear`` for the usual fully connected layer."""
    a, b, bias = c.need(0), c.need(1), c[2]
    alpha, beta = c.attr("alpha", 1.0), c.attr("beta", 1.0)
    trans_a, trans_b = bool(c.attr("transA", 0)), bool(c.attr("transB", 0))
    if type_of(a).rank != 2 or type_of(b).rank != 2:
        raise GraphError(f"Gemm of {type_of(a)} and {type_of(b)}")
    if isinstance(b, np.ndarray) and not trans_a and not isinstance(a, np.ndarray):
        weight = b if trans_b else b.T
        weight = weight if alpha == 1 else weight * weight.dtype.type(alpha)
        outs = weight.shape[0]
        if isinstance(bias, np.ndarray) and bias.shape in ((outs,), (1, outs), (1,), (), (1, 1)):
            flat = bias.reshape(-1) if beta == 1 else bias.reshape(-1) * bias.dtype.type(beta)
            return c.linear(a, weight, np.broadcast_to(flat, (outs,)))
        return c.weighted(1, c.linear(a, weight, None), beta, bias)
    return c.weighted(alpha, c.ops.matmul(x=a, y=b, transpose_x=trans_a, transpose_y=trans_b), beta, bias)


# ------------------------------------------------------------------------------------------------ normalisations


@onnx_op("BatchNormalization")
def batch_normalization(c: NodeContext) -> object:
    x, scale, bias, mean, variance = (c.need(index) for index in range(5))
    epsilon = c.attr("epsilon", 1e-5)
    if c.version < 9 and c.attr("spatial", 1) != 1:
        raise Refused("it normalises every position by itself (spatial = 0)")
    statistics = {"mean": mean, "variance": variance, "gamma": scale, "beta": bias}
    if c.attr("training_mode", 0):
        return _training(c, x, statistics, epsilon)
    if c.version < 14 and len([o for o in c.node.output if o]) > 1:
        raise Refused("it gives running statistics (training)")
    return c.batch_norm(x, statistics, epsilon)


def _training(c: NodeContext, x: Operand, statistics: dict[str, Operand], epsilon: float) -> tuple[Operand, ...]:
    """Batch statistics, and the running ones moved towards them."""
    momentum = c.attr("momentum", 0.9)
    axes = [axis for axis in range(type_of(x).rank) if axis != 1]
    own = dict(zip(("mean", "variance"), (c.ops.squeeze(x=one, axes=axes) for one in c.moments(x, axes)[1:])))
    running = []
    for name, new in own.items():
        old = statistics[name]
        step = c.scale(c.cast(new, type_of(old).dtype), 1 - momentum)
        running.append(c.ops.add(x=c.scale(old, momentum), y=step))
    return c.batch_norm(x, statistics | own, epsilon), *running


@onnx_op("InstanceNormalization")
def instance_normalization(c: NodeContext) -> Operand:
    x, scale, bias = (c.need(index) for index in range(3))
    epsilon, type_ = c.attr("epsilon", 1e-5), type_of(x)
    if all_constant(scale, bias) and type_.rank in (3, 4) and type_.dtype in MIL_FLOATS:
        return c.ops.instance_norm(x=x, gamma=scale, beta=bias, epsilon=epsilon)
    return c.affine(c.centre(x, range(2, type_.rank), epsilon)[0], scale, bias, c.along_channels(x))


@onnx_op("LayerNormalization")
def layer_normalization(c: NodeContext) -> object:
    return layer_norm_of(c, c.need(0), c.need(1), c[2], c.attr("axis", -1), c.attr("epsilon", 1e-5))


def layer_norm_of(
    c: NodeContext, x: Operand, scale: Operand, bias: Operand | None, axis: int, epsilon: float
) -> tuple[Operand, Operand | None, Operand | None]:
    """``layer_norm`` over the axes from ``axis`` on; mean and inverse deviation only where the node wants them."""
    rank = type_of(x).rank
    axes = range(axis_in(axis, rank), rank)
    if not c.wants(1) and not c.wants(2):
        return c.layer_norm(x, axes, scale, bias, epsilon), None, None
    y, mean, inverse = c.centre(x, axes, epsilon)
    y = c.ops.mul(x=y, y=scale)
    return (y if bias is None else c.ops.add(x=y, y=bias)), mean, inverse


def rms_norm_of(c: NodeContext, x: Operand, scale: Operand, axis: int, epsilon: float) -> Operand:
    """``x / sqrt(mean(x^2) + epsilon) * scale`` over the axes from ``axis`` on."""
    rank = type_of(x).rank
    axes = range(axis_in(axis, rank), rank)
    power = c.ops.reduce_mean(x=c.ops.mul(x=x, y=x), axes=axes, keep_dims=True)
    y = c.ops.mul(x=x, y=c.ops.rsqrt(x=power, epsilon=epsilon))
    return c.ops.mul(x=y, y=c.cast(scale, type_of(y).dtype))


@onnx_op("RMSNormalization")
def rms_normalization(c: NodeContext) -> Operand:
    return rms_norm_of(c, c.need(0), c.need(1), c.attr("axis", -1), c.attr("epsilon", 1e-5))


@onnx_op("GroupNormalization")
def group_normalization(c: NodeContext) -> Operand:
    """Scale and bias are one per group before op set 21, one per channel from then on."""
    x, scale, bias = (c.need(index) for index in range(3))
    shape, groups = static_shape(c, x), c.attr("num_groups")
    y, each = c.group_norm(x, groups, c.attr("epsilon", 1e-5)), shape[1] // groups
    if c.version < 21 and each > 1:
        scale, bias = (c.broadcast(c.reshape(one, (groups, 1)), (groups, each)) for one in (scale, bias))
    return c.affine(y, scale, bias, c.along_channels(x))


@onnx_op("LpNormalization")
def lp_normalization(c: NodeContext) -> Operand:
    """``x / norm``, 0 where the norm is 0."""
    x, p = c.need(0), c.attr("p", 2)
    axis = axis_in(c.attr("axis", -1), type_of(x).rank)
    if p not in (1, 2):
        raise GraphError(f"LpNormalization of order {p}")
    norm = c.lp_norm(x, p, [axis], True)
    empty = c.ops.equal(x=norm, y=c.like(0, norm))
    return c.ops.real_div(x=x, y=c.ops.select(cond=empty, a=c.like(1, norm), b=norm))


@onnx_op("LRN")
def lrn(c: NodeContext) -> Operand:
    """MIL's window of odd size is ONNX's; an even one reaches further behind."""
    x, size = c.need(0), c.attr("size")
    alpha, beta, bias = c.attr("alpha", 1e-4), c.attr("beta", 0.75), c.attr("bias", 1.0)
    if size % 2 and type_of(x).rank >= 3 and type_of(x).dtype in MIL_FLOATS:
        return c.ops.local_response_norm(x=x, size=size, alpha=alpha, beta=beta, k=bias)
    raise Refused(f"its window of {size} is even")
