"""Matrix products and normalisations."""

from __future__ import annotations

import numpy as np

from hexane.errors import GraphError
from hexane.formats.onnx.context import NodeContext, Operand, Refused, axis_in, type_of
from hexane.formats.onnx.ops.shape import static_shape
from hexane.formats.onnx.registry import onnx_op

_MIL_FLOATS = ("fp16", "fp32")


def product(c: NodeContext, x: Operand, y: Operand) -> Operand:
    """``linear`` where the right side is a constant matrix (a view, so that weights stay on disk), else ``matmul``."""
    left = type_of(x)
    constant = isinstance(y, np.ndarray) and y.ndim == 2 and not isinstance(x, np.ndarray)
    if constant and left.rank >= 2 and left.dtype in _MIL_FLOATS and type_of(y).dtype == left.dtype:
        return c.ops.linear(x=x, weight=y.T)
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
    if bias is not None and beta == 0:
        bias = None
    dtype = type_of(a).dtype
    if isinstance(b, np.ndarray) and not trans_a and dtype in _MIL_FLOATS and not isinstance(a, np.ndarray):
        weight = b if trans_b else b.T
        if alpha != 1:
            weight = weight * weight.dtype.type(alpha)
        outs = weight.shape[0]
        if isinstance(bias, np.ndarray) and bias.shape in ((outs,), (1, outs), (1,), (), (1, 1)):
            flat = (
                np.broadcast_to(bias.reshape(-1) * bias.dtype.type(beta), (outs,))
                if beta != 1 or bias.size != outs
                else bias.reshape(-1)
            )
            return c.ops.linear(x=a, weight=weight, bias=np.ascontiguousarray(flat))
        y = c.ops.linear(x=a, weight=weight)
    else:
        y = c.ops.matmul(x=a, y=b, transpose_x=trans_a, transpose_y=trans_b)
        if alpha != 1:
            y = c.ops.mul(x=y, y=c.like(alpha, y))
    if bias is None:
        return y
    return c.ops.add(x=y, y=bias if beta == 1 else c.ops.mul(x=bias, y=c.like(beta, bias)))


# ------------------------------------------------------------------------------------------------ normalisations


def _channelwise(c: NodeContext, operand: Operand, rank: int) -> Operand:
    """A vector [C] as [C, 1, ...], which broadcasts along axis 1."""
    return c.reshape(operand, (*type_of(operand).shape, *[1] * (rank - 2)))


def centred(c: NodeContext, x: Operand, axes: list[int], epsilon: float) -> tuple[Operand, Operand, Operand]:
    """``(x - mean) / sqrt(var + epsilon)`` over axes, with the mean and the inverse deviation."""
    over = np.array(axes, np.int32)
    mean = c.ops.reduce_mean(x=x, axes=over, keep_dims=True)
    away = c.ops.sub(x=x, y=mean)
    variance = c.ops.reduce_mean(x=c.ops.mul(x=away, y=away), axes=over, keep_dims=True)
    deviation = c.ops.sqrt(x=c.ops.add(x=variance, y=c.like(epsilon, variance)))
    inverse = c.ops.inverse(x=deviation, epsilon=0.0)
    return c.ops.mul(x=away, y=inverse), mean, inverse


@onnx_op("BatchNormalization")
def batch_normalization(c: NodeContext) -> object:
    x, scale, bias, mean, variance = (c.need(index) for index in range(5))
    epsilon = c.attr("epsilon", 1e-5)
    type_ = type_of(x)
    if c.version < 9 and c.attr("spatial", 1) != 1:
        raise Refused("it normalises every position by itself (spatial = 0)")
    if c.attr("training_mode", 0):
        return _training(c, x, scale, bias, mean, variance, epsilon)
    if c.version < 14 and len([o for o in c.node.output if o]) > 1:
        raise Refused("it gives running statistics (training)")
    constants = all(isinstance(operand, np.ndarray) for operand in (scale, bias, mean, variance))
    same = all(type_of(operand).dtype == type_.dtype for operand in (scale, bias, mean, variance))
    if constants and same and 3 <= type_.rank <= 5 and type_.dtype in _MIL_FLOATS:
        return c.ops.batch_norm(x=x, mean=mean, variance=variance, gamma=scale, beta=bias, epsilon=epsilon)
    return _affine(c, x, scale, bias, mean, variance, epsilon)


def _affine(
    c: NodeContext, x: Operand, scale: Operand, bias: Operand, mean: Operand, variance: Operand, epsilon: float
) -> Operand:
    rank, dtype = type_of(x).rank, type_of(x).dtype
    variance = c.cast(variance, dtype)
    deviation = c.ops.sqrt(x=c.ops.add(x=variance, y=c.like(epsilon, variance)))
    factor = _channelwise(c, c.ops.real_div(x=c.cast(scale, dtype), y=deviation), rank)
    away = c.ops.sub(x=x, y=_channelwise(c, c.cast(mean, dtype), rank))
    return c.ops.add(x=c.ops.mul(x=away, y=factor), y=_channelwise(c, c.cast(bias, dtype), rank))


def _training(
    c: NodeContext, x: Operand, scale: Operand, bias: Operand, mean: Operand, variance: Operand, epsilon: float
) -> tuple:
    """Batch statistics, and the running ones moved towards them."""
    momentum = c.attr("momentum", 0.9)
    rank = type_of(x).rank
    over = np.array([axis for axis in range(rank) if axis != 1], np.int32)
    own_mean = c.ops.reduce_mean(x=x, axes=over, keep_dims=False)
    away = c.ops.sub(x=x, y=_channelwise(c, own_mean, rank))
    own_variance = c.ops.reduce_mean(x=c.ops.mul(x=away, y=away), axes=over, keep_dims=False)
    y = _affine(c, x, scale, bias, own_mean, own_variance, epsilon)

    def moved(old: Operand, new: Operand) -> Operand:
        new = c.cast(new, type_of(old).dtype)
        kept = c.ops.mul(x=old, y=c.like(momentum, old))
        return c.ops.add(x=kept, y=c.ops.mul(x=new, y=c.like(1 - momentum, new)))

    return y, moved(mean, own_mean), moved(variance, own_variance)


@onnx_op("InstanceNormalization")
def instance_normalization(c: NodeContext) -> Operand:
    x, scale, bias = (c.need(index) for index in range(3))
    epsilon, type_ = c.attr("epsilon", 1e-5), type_of(x)
    constants = isinstance(scale, np.ndarray) and isinstance(bias, np.ndarray)
    if constants and type_.rank in (3, 4) and type_.dtype in _MIL_FLOATS:
        return c.ops.instance_norm(x=x, gamma=scale, beta=bias, epsilon=epsilon)
    y, _, _ = centred(c, x, list(range(2, type_.rank)), epsilon)
    return c.ops.add(x=c.ops.mul(x=y, y=_channelwise(c, scale, type_.rank)), y=_channelwise(c, bias, type_.rank))


@onnx_op("LayerNormalization")
def layer_normalization(c: NodeContext) -> object:
    return layer_norm_of(c, c.need(0), c.need(1), c[2], c.attr("axis", -1), c.attr("epsilon", 1e-5))


def layer_norm_of(
    c: NodeContext, x: Operand, scale: Operand, bias: Operand | None, axis: int, epsilon: float
) -> tuple[Operand, Operand | None, Operand | None]:
    """``layer_norm`` over the axes from ``axis`` on; mean and inverse deviation only where the node wants them."""
    type_ = type_of(x)
    axes = list(range(axis_in(axis, type_.rank), type_.rank))
    span = type_.shape[axes[0] :]
    constants = isinstance(scale, np.ndarray) and (bias is None or isinstance(bias, np.ndarray))
    fits = constants and scale.shape == span and (bias is None or bias.shape == span)
    if fits and type_.dtype in _MIL_FLOATS and not c.wants(1) and not c.wants(2) and not isinstance(x, np.ndarray):
        extra = {} if bias is None else {"beta": bias}
        return c.ops.layer_norm(x=x, axes=np.array(axes, np.int32), gamma=scale, epsilon=epsilon, **extra), None, None
    y, mean, inverse = centred(c, x, axes, epsilon)
    y = c.ops.mul(x=y, y=scale)
    return (y if bias is None else c.ops.add(x=y, y=bias)), mean, inverse


def rms_norm_of(c: NodeContext, x: Operand, scale: Operand, axis: int, epsilon: float) -> Operand:
    """``x / sqrt(mean(x^2) + epsilon) * scale`` over the axes from ``axis`` on."""
    rank = type_of(x).rank
    axes = np.arange(axis_in(axis, rank), rank, dtype=np.int32)
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
    shape = static_shape(c, x)
    groups = c.attr("num_groups")
    if shape[1] % groups:
        raise GraphError(f"{shape[1]} channels in {groups} groups")
    each = shape[1] // groups
    grouped = c.reshape(x, (shape[0], groups, each * int(np.prod(shape[2:]))))
    y, _, _ = centred(c, grouped, [2], c.attr("epsilon", 1e-5))
    y = c.reshape(y, shape)
    factors = []
    for operand in (scale, bias):
        if c.version < 21 and each > 1:
            column = c.reshape(operand, (groups, 1))
            operand = c.reshape(c.ops.tile(x=column, reps=np.array([1, each], np.int32)), (shape[1],))
        factors.append(_channelwise(c, operand, len(shape)))
    return c.ops.add(x=c.ops.mul(x=y, y=factors[0]), y=factors[1])


@onnx_op("LpNormalization")
def lp_normalization(c: NodeContext) -> Operand:
    """``x / norm``, 0 where the norm is 0."""
    x, p = c.need(0), c.attr("p", 2)
    axis = axis_in(c.attr("axis", -1), type_of(x).rank)
    if p not in (1, 2):
        raise GraphError(f"LpNormalization of order {p}")
    norm = c.ops.op(f"reduce_l{p}_norm", x=x, axes=np.array([axis], np.int32), keep_dims=True)
    empty = c.ops.equal(x=norm, y=c.like(0, norm))
    return c.ops.real_div(x=x, y=c.ops.select(cond=empty, a=c.like(1, norm), b=norm))


@onnx_op("LRN")
def lrn(c: NodeContext) -> Operand:
    """MIL's window of odd size is ONNX's; an even one reaches further behind."""
    x, size = c.need(0), c.attr("size")
    alpha, beta, bias = c.attr("alpha", 1e-4), c.attr("beta", 0.75), c.attr("bias", 1.0)
    if size % 2 and type_of(x).rank >= 3 and type_of(x).dtype in _MIL_FLOATS:
        return c.ops.local_response_norm(x=x, size=size, alpha=alpha, beta=beta, k=bias)
    raise Refused(f"its window of {size} is even")
