"""Translations of classic Core ML layers, by the name of the layer's protobuf field."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from hexane.errors import GraphError, UnsupportedError
from hexane.formats.coreml.network import LayerContext
from hexane.formats.operands import Operand, type_of

LAYERS: dict[str, Callable[[LayerContext], Any]] = {}


def layer(*kinds: str) -> Callable[[Callable[[LayerContext], Any]], Callable[[LayerContext], Any]]:
    """Declare the translation of one or more kinds of layers."""

    def declare(translate: Callable[[LayerContext], Any]) -> Callable[[LayerContext], Any]:
        for kind in kinds:
            LAYERS[kind] = translate
        return translate

    return declare


def ints(values: Any) -> np.ndarray:
    return np.array([int(value) for value in values], np.int32)


def shape_of(operand: Operand) -> tuple[int, ...]:
    return type_of(operand).shape


def reshape(c: LayerContext, x: Operand, shape: Any) -> Operand:
    return c.ops.reshape(x=x, shape=ints(shape))


# -------------------------------------------------------------------------------------------- convolution, pooling


def _borders(c: LayerContext, padding: Any, axes: int = 2) -> np.ndarray:
    amounts = padding.paddingAmounts.borderAmounts
    if not amounts:
        return np.zeros(2 * axes, np.int32)
    return ints(edge for pair in amounts for edge in (pair.startEdgeSize, pair.endEdgeSize))


def _padding(c: LayerContext, field: str) -> dict[str, Any]:
    """MIL's ``pad_type`` and ``pad`` of a convolution or pooling layer."""
    if field == "same":
        heavy_front = c.params.same.asymmetryMode == 1
        return {"pad_type": "same_lower" if heavy_front else "same"}
    pad = _borders(c, c.params.valid)
    return {"pad_type": "custom", "pad": pad} if pad.any() else {"pad_type": "valid"}


@layer("convolution")
def convolution(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    if len(c) > 1:
        raise UnsupportedError("weights that are computed at run time")
    kernel = tuple(int(k) for k in p.kernelSize) or (3, 3)
    strides, dilations = ints(p.stride or (1, 1)), ints(p.dilationFactor or (1, 1))
    groups = int(p.nGroups) or 1
    how = _padding(c, p.WhichOneof("ConvolutionPaddingType") or "valid")
    extra = {"bias": c.weight(p.bias, (int(p.outputChannels),))} if p.hasBias else {}
    if p.isDeconvolution:
        weight = c.weight(p.weights, (int(p.kernelChannels), int(p.outputChannels) // groups, *kernel))
        if p.outputShape:
            shape = shape_of(x)
            how["output_shape"] = ints([shape[0], p.outputChannels, *p.outputShape])
        return c.ops.conv_transpose(
            x=x, weight=weight, strides=strides, dilations=dilations, groups=groups, **how, **extra
        )
    weight = c.weight(p.weights, (int(p.outputChannels), int(p.kernelChannels), *kernel))
    return c.ops.conv(x=x, weight=weight, strides=strides, dilations=dilations, groups=groups, **how, **extra)


@layer("pooling")
def pooling(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    kinds = ("max", "avg", "l2")
    if p.type >= len(kinds):
        raise GraphError(f"pooling of type {p.type}")
    kind = kinds[p.type]
    axis = c.channel_axis(x) + 1
    if p.globalPooling:
        op = {"max": "reduce_max", "avg": "reduce_mean", "l2": "reduce_l2_norm"}[kind]
        return c.ops.op(op, x=x, axes=ints((axis, axis + 1)), keep_dims=True)
    field = p.WhichOneof("PoolingPaddingType") or "valid"
    if field == "includeLastPixel":
        amounts = [int(n) for n in p.includeLastPixel.paddingAmounts] or [0, 0]
        pad = ints((amounts[0], amounts[0], amounts[1], amounts[1]))
        how: dict[str, Any] = {"pad_type": "custom", "pad": pad, "ceil_mode": True}
    else:
        how = _padding(c, field)
    if kind == "avg":
        how["exclude_padding_from_average"] = bool(p.avgPoolExcludePadding)
    return c.ops.op(
        f"{kind}_pool", x=x, kernel_sizes=ints(p.kernelSize or (3, 3)), strides=ints(p.stride or (1, 1)), **how
    )


@layer("globalPooling3d")
def global_pooling_3d(c: LayerContext) -> Operand:
    axes = ints((-3, -2, -1))
    return c.ops.op("reduce_mean" if c.params.type else "reduce_max", x=c[0], axes=axes, keep_dims=True)


@layer("upsample")
def upsample(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    factors = [float(f) for f in p.fractionalScalingFactor] or [int(f) for f in p.scalingFactor] or [1, 1]
    if p.mode == 0:
        return c.ops.upsample_nearest_neighbor(x=x, scale_factor_height=factors[0], scale_factor_width=factors[1])
    align = p.linearUpsampleMode == 1
    if p.linearUpsampleMode == 0:
        target = [int(n * f) for n, f in zip(shape_of(x)[-2:], factors)]
        return c.ops.resize_bilinear(
            x=x, target_size_height=target[0], target_size_width=target[1], sampling_mode="DEFAULT"
        )
    return c.ops.upsample_bilinear(
        x=x, scale_factor_height=factors[0], scale_factor_width=factors[1], align_corners=align
    )


@layer("resizeBilinear")
def resize_bilinear(c: LayerContext) -> Operand:
    p = c.params
    modes = ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "DEFAULT", "OFFSET_CORNERS")
    size = [int(n) for n in p.targetSize]
    mode = modes[p.mode.samplingMethod]
    return c.ops.resize_bilinear(x=c[0], target_size_height=size[0], target_size_width=size[1], sampling_mode=mode)


# ------------------------------------------------------------------------------------------------------ activations


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
    channels = shape_of(x)[c.channel_axis(x)]
    if kind == "PReLU":
        return c.ops.prelu(x=x, alpha=_per_channel(c, p.alpha, channels))
    return c.ops.softplus_parametric(
        x=x, alpha=_per_channel(c, p.alpha, channels), beta=_per_channel(c, p.beta, channels)
    )


def _per_channel(c: LayerContext, params: Any, channels: int) -> np.ndarray:
    single = len(params.floatValue) == 1 or len(params.float16Value) == 2
    return np.broadcast_to(c.weight(params, (1,)), (channels,)).copy() if single else c.weight(params, (channels,))


@layer("clip")
def clip(c: LayerContext) -> Operand:
    return c.ops.clip(x=c[0], alpha=c.params.minVal, beta=c.params.maxVal)


@layer("clampedReLU")
def clamped_relu(c: LayerContext) -> Operand:
    return c.ops.clamped_relu(x=c[0], alpha=c.params.alpha, beta=c.params.beta)


@layer("gelu")
def gelu(c: LayerContext) -> Operand:
    modes = ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION")
    return c.ops.gelu(x=c[0], mode=modes[c.params.mode])


@layer("softmax")
def softmax(c: LayerContext) -> Operand:
    return c.ops.softmax(x=c[0], axis=c.channel_axis(c[0]))


@layer("softmaxND")
def softmax_nd(c: LayerContext) -> Operand:
    return c.ops.softmax(x=c[0], axis=int(c.params.axis))


_UNARY = {
    name: name
    for name in (
        "ceil", "floor", "sign", "round", "exp2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
        "atanh", "erf",
    )
} | {"asinh": "onnx.Asinh", "acosh": "onnx.Acosh", "logicalNot": "logical_not", "copy": "identity"}  # fmt: skip


@layer(*_UNARY)
def unary_nd(c: LayerContext) -> Operand:
    return c.ops.op(_UNARY[c.kind], x=c[0])


@layer("unary")
def unary(c: LayerContext) -> Operand:
    """``f(scale * x + shift)``."""
    p, x = c.params, c[0]
    # Scale and shift have defaults (1 and 0) that the protobuf cannot tell from a written 0 (Core ML reads 0 as 1).
    scale = p.scale or 1.0
    if scale != 1:
        x = c.ops.mul(x=x, y=c.scalar(scale, x))
    if p.shift:
        x = c.ops.add(x=x, y=c.scalar(p.shift, x))
    kind = ("sqrt", "rsqrt", "inverse", "pow", "exp", "log", "abs", "threshold")[p.type]
    epsilon = p.epsilon or 1e-6
    if kind in ("rsqrt", "inverse"):
        return c.ops.op(kind, x=x, epsilon=epsilon)
    if kind == "pow":
        return c.ops.pow(x=x, y=c.scalar(p.alpha, x))
    if kind == "log":
        return c.ops.log(x=x, epsilon=0.0)
    return c.ops.threshold(x=x, alpha=p.alpha) if kind == "threshold" else c.ops.op(kind, x=x)


# ----------------------------------------------------------------------------------------------------- element-wise

_BINARY = {
    "addBroadcastable": "add", "subtractBroadcastable": "sub", "multiplyBroadcastable": "mul",
    "divideBroadcastable": "real_div", "powBroadcastable": "pow", "floorDivBroadcastable": "floor_div",
    "modBroadcastable": "mod", "minBroadcastable": "minimum", "maxBroadcastable": "maximum",
}  # fmt: skip


@layer(*_BINARY, "max", "min")
def binary(c: LayerContext) -> Operand:
    op = _BINARY.get(c.kind) or {"max": "maximum", "min": "minimum"}[c.kind]
    return _fold(c, op, c.inputs())


def _fold(c: LayerContext, op: str, operands: list[Operand]) -> Operand:
    first, *rest = operands
    for other in rest:
        first = c.ops.op(op, x=first, y=other)
    return first if rest else c.ops.identity(x=first)


@layer("add", "multiply")
def add(c: LayerContext) -> Operand:
    """With one input, the layer's own constant is the other operand."""
    op = "add" if c.kind == "add" else "mul"
    if len(c) == 1:
        return c.ops.op(op, x=c[0], y=c.scalar(c.params.alpha, c[0]))
    return _fold(c, op, c.inputs())


@layer("average")
def average(c: LayerContext) -> Operand:
    total = _fold(c, "add", c.inputs())
    return c.ops.mul(x=total, y=c.scalar(1 / len(c), total))


_COMPARE = {
    "equal": "equal", "notEqual": "not_equal", "lessThan": "less", "lessEqual": "less_equal", "greaterThan": "greater",
    "greaterEqual": "greater_equal",
}  # fmt: skip


@layer(*_COMPARE)
def compare(c: LayerContext) -> Operand:
    """Classic networks carry truth as 0 and 1 in floats."""
    other = c[1] if len(c) > 1 else c.scalar(c.params.alpha, c[0])
    return c.ops.cast(x=c.ops.op(_COMPARE[c.kind], x=c[0], y=other), dtype="fp32")


@layer("whereBroadcastable")
def where(c: LayerContext) -> Operand:
    return c.ops.select(cond=c.ops.cast(x=c[0], dtype="bool"), a=c[1], b=c[2])


def _plane(c: LayerContext, values: np.ndarray, x: Operand) -> np.ndarray:
    """A constant of shape [C], [1] or [C, H, W] so that it broadcasts with the last three axes of ``x``."""
    if values.ndim == 1:
        return values.reshape(-1, 1, 1)
    return values


@layer("scale")
def scale(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    y = c.ops.mul(x=x, y=_plane(c, c.weight(p.scale, tuple(int(n) for n in p.shapeScale)), x))
    if p.hasBias:
        y = c.ops.add(x=y, y=_plane(c, c.weight(p.bias, tuple(int(n) for n in p.shapeBias)), y))
    return y


@layer("bias")
def bias(c: LayerContext) -> Operand:
    p = c.params
    return c.ops.add(x=c[0], y=_plane(c, c.weight(p.bias, tuple(int(n) for n in p.shape)), c[0]))


# --------------------------------------------------------------------------------------- matrices and normalisation


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
    shape = shape_of(x)
    if prod(shape[1:]) != cin:
        raise GraphError(f"{shape} gives {prod(shape[1:])} values, the layer takes {cin}")
    return reshape(c, c.ops.linear(x=reshape(c, x, (shape[0], cin)), weight=weight, **extra), (shape[0], cout, 1, 1))


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
    shape = shape_of(x)
    indices = c.ops.cast(x=reshape(c, x, shape[:-1]), dtype="int32")
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
    axes = ints(range(first, c.rank(x)))
    away = c.ops.sub(x=x, y=c.ops.reduce_mean(x=x, axes=axes, keep_dims=True))
    if not p.normalizeVariance:
        return away
    variance = c.ops.reduce_mean(x=c.ops.square(x=away), axes=axes, keep_dims=True)
    deviation = c.ops.add(x=c.ops.sqrt(x=variance), y=c.scalar(p.epsilon, variance))
    return c.ops.real_div(x=away, y=deviation)


@layer("l2normalize")
def l2_normalize(c: LayerContext) -> Operand:
    return c.ops.l2_norm(x=c[0], epsilon=c.params.epsilon)


@layer("lrn")
def lrn(c: LayerContext) -> Operand:
    p = c.params
    return c.ops.local_response_norm(x=c[0], size=int(p.localSize), alpha=p.alpha, beta=p.beta, k=p.k)


@layer("layerNormalization")
def layer_normalization(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    span = tuple(int(n) for n in p.normalizedShape)
    axes = ints(range(c.rank(x) - len(span), c.rank(x)))
    return c.ops.layer_norm(x=x, axes=axes, gamma=c.weight(p.gamma, span), beta=c.weight(p.beta, span), epsilon=p.eps)


# ------------------------------------------------------------------------------------------------------- reductions

_AXES = ((-3, -2, -1), (-2, -1), (-3,), (-2,), (-1,))


@layer("reduce")
def reduce(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    kinds = ("sum", "mean", "prod", "log_sum", "sum_square", "l1_norm", "l2_norm", "max", "min", "argmax")
    kind, axes = kinds[p.mode], _AXES[p.axis]
    if kind == "argmax":
        if len(axes) != 1:
            raise UnsupportedError("the largest element over several axes")
        return c.ops.cast(x=c.ops.reduce_argmax(x=x, axis=axes[0], keep_dims=True), dtype="fp32")
    if kind == "log_sum" and p.epsilon:
        x = c.ops.add(x=x, y=c.scalar(p.epsilon, x))
    return c.ops.op(f"reduce_{kind}", x=x, axes=ints(axes), keep_dims=True)


_REDUCE = {
    "reduceL1": "l1_norm", "reduceL2": "l2_norm", "reduceMax": "max", "reduceMin": "min", "reduceSum": "sum",
    "reduceProd": "prod", "reduceMean": "mean", "reduceLogSum": "log_sum", "reduceSumSquare": "sum_square",
    "reduceLogSumExp": "log_sum_exp",
}  # fmt: skip


@layer(*_REDUCE)
def reduce_nd(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    axes = range(c.rank(x)) if p.reduceAll or not p.axes else p.axes
    return c.ops.op(f"reduce_{_REDUCE[c.kind]}", x=x, axes=ints(axes), keep_dims=bool(p.keepDims))


@layer("argMax", "argMin")
def arg_extreme(c: LayerContext) -> Operand:
    p = c.params
    op = "reduce_argmax" if c.kind == "argMax" else "reduce_argmin"
    return c.ops.cast(x=c.ops.op(op, x=c[0], axis=int(p.axis), keep_dims=not p.removeDim), dtype="fp32")


# ---------------------------------------------------------------------------------------------------- shape and order


@layer("loadConstant")
def load_constant(c: LayerContext) -> Operand:
    shape = tuple(int(n) for n in c.params.shape)
    values = c.weight(c.params.data, shape)
    return values if c.exact else values.reshape(1, *shape)


@layer("loadConstantND")
def load_constant_nd(c: LayerContext) -> Operand:
    return c.weight(c.params.data, tuple(int(n) for n in c.params.shape))


@layer("reshape")
def reshape_layer(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    target = [int(n) for n in p.targetShape]
    target = target if len(target) == 4 else [shape_of(x)[0], *target]
    if p.mode == 0:
        return reshape(c, x, target)
    # Channels last: read height, width, channels, and write so again.
    y = c.ops.transpose(x=x, perm=ints((0, 2, 3, 1)))
    y = reshape(c, y, (target[0], target[2], target[3], target[1]))
    return c.ops.transpose(x=y, perm=ints((0, 3, 1, 2)))


@layer("flatten")
def flatten(c: LayerContext) -> Operand:
    x = c[0]
    if c.params.mode == 1:
        x = c.ops.transpose(x=x, perm=ints((0, 2, 3, 1)))
    shape = shape_of(x)
    return reshape(c, x, (shape[0], prod(shape[1:]), 1, 1))


@layer("permute")
def permute(c: LayerContext) -> Operand:
    axes = [int(a) for a in c.params.axis]
    if axes[0] != 0:
        raise UnsupportedError("a permutation of the sequence axis")
    return c.ops.transpose(x=c[0], perm=ints(axes))


@layer("transpose")
def transpose(c: LayerContext) -> Operand:
    return c.ops.transpose(x=c[0], perm=ints(c.params.axes))


@layer("concat")
def concat(c: LayerContext) -> Operand:
    if c.params.sequenceConcat:
        raise UnsupportedError("concatenation of sequences")
    return c.ops.concat(values=tuple(c.inputs()), axis=c.channel_axis(c[0]), interleave=False)


@layer("concatND")
def concat_nd(c: LayerContext) -> Operand:
    return c.ops.concat(values=tuple(c.inputs()), axis=int(c.params.axis), interleave=bool(c.params.interleave))


@layer("stack")
def stack(c: LayerContext) -> Operand:
    return c.ops.stack(values=tuple(c.inputs()), axis=int(c.params.axis))


@layer("split")
def split(c: LayerContext) -> Any:
    return c.ops.split(x=c[0], num_splits=int(c.params.nOutputs), axis=c.channel_axis(c[0]))


@layer("splitND")
def split_nd(c: LayerContext) -> Any:
    p = c.params
    how = {"split_sizes": ints(p.splitSizes)} if p.splitSizes else {"num_splits": int(p.numSplits)}
    return c.ops.split(x=c[0], axis=int(p.axis), **how)


@layer("reorganizeData")
def reorganize(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    block = int(p.blockSize)
    if p.mode == 0:
        return c.ops.space_to_depth(x=x, block_size=block)
    if p.mode == 1:
        return c.ops.depth_to_space(x=x, block_size=block)
    return c.ops.pixel_shuffle(x=x, upscale_factor=block)


def _sliced(c: LayerContext, x: Operand, **index: Any) -> Operand:
    return c.ops.slice_by_index(x=x, **index)


@layer("slice")
def slice_layer(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    axis, rank = c.channel_axis(x) + p.axis, c.rank(x)
    begin, end, stride = [0] * rank, list(shape_of(x)), [1] * rank
    begin[axis], end[axis], stride[axis] = int(p.startIndex), int(p.endIndex), int(p.stride) or 1
    if p.endIndex < 0:
        end[axis] = shape_of(x)[axis] + int(p.endIndex) + 1
    return _sliced(c, x, begin=ints(begin), end=ints(end), stride=ints(stride))


@layer("sliceStatic")
def slice_static(c: LayerContext) -> Operand:
    p = c.params
    rank = c.rank(c[0])
    squeeze = list(p.squeezeMasks) or [False] * rank
    return _sliced(
        c,
        c[0],
        begin=ints(p.beginIds),
        end=ints(p.endIds),
        stride=ints(p.strides),
        begin_mask=np.array(p.beginMasks, bool),
        end_mask=np.array(p.endMasks, bool),
        squeeze_mask=np.array(squeeze, bool),
    )


@layer("crop")
def crop(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    height, width = shape_of(x)[-2:]
    if len(c) > 1:
        wanted = shape_of(c[1])[-2:]
        top, left = (int(n) for n in p.offset) if p.offset else (0, 0)
        rows, columns = (top, height - top - wanted[0]), (left, width - left - wanted[1])
    else:
        edges = [(int(e.startEdgeSize), int(e.endEdgeSize)) for e in p.cropAmounts.borderAmounts] or [(0, 0), (0, 0)]
        rows, columns = edges
    return c.ops.crop(x=x, crop_height=ints(rows), crop_width=ints(columns))


@layer("padding")
def padding(c: LayerContext) -> Operand:
    p = c.params
    kind = p.WhichOneof("PaddingType") or "constant"
    pad = _borders(c, p)
    mode = {"constant": "constant", "reflection": "reflect", "replication": "replicate"}[kind]
    return c.ops.pad(x=c[0], pad=pad, mode=mode, constant_val=float(p.constant.value) if kind == "constant" else 0.0)


@layer("constantPad")
def constant_pad(c: LayerContext) -> Operand:
    p = c.params
    if p.padToGivenOutputSizeMode or len(c) > 1:
        raise UnsupportedError("padding to an output size")
    return c.ops.pad(x=c[0], pad=ints(p.padAmounts), mode="constant", constant_val=float(p.value))


@layer("squeeze")
def squeeze(c: LayerContext) -> Operand:
    p = c.params
    return c.ops.squeeze(x=c[0]) if p.squeezeAll else c.ops.squeeze(x=c[0], axes=ints(p.axes))


@layer("expandDims")
def expand_dims(c: LayerContext) -> Operand:
    return c.ops.expand_dims(x=c[0], axes=ints(c.params.axes))


@layer("flattenTo2D")
def flatten_to_2d(c: LayerContext) -> Operand:
    return c.ops.flatten2d(x=c[0], axis=int(c.params.axis))


@layer("reshapeStatic", "rankPreservingReshape")
def reshape_static(c: LayerContext) -> Operand:
    return reshape(c, c[0], c.params.targetShape)


@layer("tile")
def tile(c: LayerContext) -> Operand:
    return c.ops.tile(x=c[0], reps=ints(c.params.reps))


@layer("reverse")
def reverse(c: LayerContext) -> Operand:
    axes = [axis for axis, flag in enumerate(c.params.reverseDim) if flag]
    return c.ops.reverse(x=c[0], axes=ints(axes)) if axes else c.ops.identity(x=c[0])


@layer("broadcastToStatic")
def broadcast_to(c: LayerContext) -> Operand:
    x, target = c[0], tuple(int(n) for n in c.params.targetShape)
    old = (1,) * (len(target) - c.rank(x)) + shape_of(x)
    if np.broadcast_shapes(old, target) != target:
        raise GraphError(f"{shape_of(x)} does not broadcast to {target}")
    reps = [new // extent for new, extent in zip(target, old)]
    return c.ops.tile(x=reshape(c, x, old), reps=ints(reps))


@layer("fillStatic")
def fill_static(c: LayerContext) -> Operand:
    return np.broadcast_to(np.float32(c.params.value), tuple(int(n) for n in c.params.targetShape))


@layer("gather")
def gather(c: LayerContext) -> Operand:
    return c.ops.gather(x=c[0], indices=c.ops.cast(x=c[1], dtype="int32"), axis=int(c.params.axis))


@layer("topK")
def topk(c: LayerContext) -> Any:
    p = c.params
    if len(c) > 1:
        raise UnsupportedError("a number of elements that is computed at run time")
    values, indices = c.ops.topk(x=c[0], k=int(p.K), axis=int(p.axis), ascending=bool(p.useBottomK))
    return values, c.ops.cast(x=indices, dtype="fp32")


@layer("cumSum")
def cumsum(c: LayerContext) -> Operand:
    p = c.params
    return c.ops.cumsum(x=c[0], axis=int(p.axis), exclusive=bool(p.excludeFinalSum), reverse=bool(p.reverse))
