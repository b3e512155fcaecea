"""Matrix products, normalisation and reductions of classic Core ML networks."""

from __future__ import annotations

from math import prod

import numpy as np

from hexane.errors import GraphError, UnsupportedError
from hexane.formats.coreml.layers.context import LayerContext
from hexane.formats.coreml.layers.registry import layer
from hexane.formats.operands import Operand


@layer("innerProduct")
def inner_product(c: LayerContext) -> Operand:
    """Over the last axis; in networks of five axes, over channels, height and width as one."""
    p, x = c.params, c[0]
    cin, cout = int(p.inputChannels), int(p.outputChannels)
    if p.int8DynamicQuantize:
        raise UnsupportedError("dynamic quantisation")
    weight = c.weight(p.weights, (cout, cin))
    extra = {"bias": c.weight(p.bias, (cout,))} if p.hasBias else {}
    if c.exact:
        return c.ops.linear(x=x, weight=weight, **extra)
    shape = c.shape(x)
    if prod(shape[1:]) != cin:
        raise GraphError(f"{shape} gives {prod(shape[1:])} values, the layer takes {cin}")
    return c.reshape(c.ops.linear(x=c.reshape(x, (shape[0], cin)), weight=weight, **extra), (shape[0], cout, 1, 1))


@layer("batchedMatmul")
def batched_matmul(c: LayerContext) -> Operand:
    p = c.params
    if len(c) == 2:
        return c.ops.matmul(x=c[0], y=c[1], transpose_x=bool(p.transposeA), transpose_y=bool(p.transposeB))
    rows, columns = int(p.weightMatrixFirstDimension), int(p.weightMatrixSecondDimension)
    # The stored matrix is [columns, rows]: what a product from the right takes transposed.
    weight = c.weight(p.weights, (columns, rows))
    extra = {"bias": c.weight(p.bias, (columns,))} if p.hasBias else {}
    return c.ops.linear(x=c[0], weight=weight, **extra)


@layer("embeddingND")
def embedding_nd(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    table = c.weight(p.weights, (int(p.embeddingSize), int(p.vocabSize))).T
    shape = c.shape(x)
    indices = c.cast(c.reshape(x, shape[:-1]), "int32")
    y = c.ops.gather(x=np.ascontiguousarray(table), indices=indices, axis=0)
    return c.ops.add(x=y, y=c.weight(p.bias, (int(p.embeddingSize),))) if p.hasBias else y


@layer("batchnorm")
def batchnorm(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    channels = (int(p.channels),)
    gamma, beta = c.weight(p.gamma, channels), c.weight(p.beta, channels)
    epsilon = p.epsilon or 1e-5
    if p.computeMeanVar and p.instanceNormalization:
        return c.ops.instance_norm(x=x, gamma=gamma, beta=beta, epsilon=epsilon)
    if p.computeMeanVar or p.instanceNormalization:
        raise UnsupportedError("batch statistics")
    mean, variance = c.weight(p.mean, channels), c.weight(p.variance, channels)
    return c.ops.batch_norm(x=x, mean=mean, variance=variance, gamma=gamma, beta=beta, epsilon=epsilon)


@layer("mvn")
def mvn(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    first = c.channel_axis(x) + (0 if p.acrossChannels else 1)
    axes = range(first, c.rank(x))
    if not p.normalizeVariance:
        return c.ops.sub(x=x, y=c.ops.reduce_mean(x=x, axes=axes, keep_dims=True))
    away, _, variance = c.moments(x, axes)
    return c.ops.real_div(x=away, y=c.ops.add(x=c.ops.sqrt(x=variance), y=c.like(p.epsilon, variance)))


@layer("layerNormalization")
def layer_normalization(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    span = tuple(int(n) for n in p.normalizedShape)
    if not 0 < len(span) <= c.rank(x):
        raise GraphError(f"a normalised shape of {len(span)} axes in a tensor of {c.rank(x)}")
    axes = range(c.rank(x) - len(span), c.rank(x))
    return c.ops.layer_norm(x=x, axes=axes, gamma=c.weight(p.gamma, span), beta=c.weight(p.beta, span), epsilon=p.eps)


_AXES = ((-3, -2, -1), (-2, -1), (-3,), (-2,), (-1,))


@layer("reduce")
def reduce(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    kinds = ("sum", "mean", "prod", "log_sum", "sum_square", "l1_norm", "l2_norm", "max", "min", "argmax")
    kind, axes = kinds[p.mode], _AXES[p.axis]
    if kind == "argmax":
        if len(axes) != 1:
            raise UnsupportedError("the largest element over several axes")
        return c.cast(c.ops.reduce_argmax(x=x, axis=axes[0], keep_dims=True), "fp32")
    if kind == "log_sum" and p.epsilon:
        x = c.ops.add(x=x, y=c.like(p.epsilon, x))
    return c.ops.op(f"reduce_{kind}", x=x, axes=axes, keep_dims=True)


_REDUCE = {
    "reduceL1": "l1_norm", "reduceL2": "l2_norm", "reduceMax": "max", "reduceMin": "min", "reduceSum": "sum",
    "reduceProd": "prod", "reduceMean": "mean", "reduceLogSum": "log_sum", "reduceSumSquare": "sum_square",
    "reduceLogSumExp": "log_sum_exp",
}  # fmt: skip


@layer(*_REDUCE)
def reduce_nd(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    axes = range(c.rank(x)) if p.reduceAll or not p.axes else p.axes
    return c.ops.op(f"reduce_{_REDUCE[c.kind]}", x=x, axes=axes, keep_dims=bool(p.keepDims))


@layer("argMax", "argMin")
def arg_extreme(c: LayerContext) -> Operand:
    """An input of one axis keeps it."""
    p, keep = c.params, c.rank(c[0]) == 1 or not c.params.removeDim
    op = "reduce_argmax" if c.kind == "argMax" else "reduce_argmin"
    return c.cast(c.ops.op(op, x=c[0], axis=int(p.axis), keep_dims=keep), "fp32")
