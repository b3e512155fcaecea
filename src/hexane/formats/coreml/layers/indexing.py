"""Indices, order, shapes taken from other tensors, logic, and three-dimensional windows of classic Core ML networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.errors import GraphError, UnsupportedError
from hexane.formats.coreml.layers.context import LayerContext
from hexane.formats.coreml.layers.registry import ints, layer, reshape, shape_of
from hexane.formats.operands import Operand, type_of
from hexane.graph import Value

_MODES = ("update", "add", "sub", "mul", "div", "max", "min")


def _known(c: LayerContext, index: int, what: str) -> np.ndarray:
    """An input that must be known now: the graph is static."""
    operand = c[index]
    if isinstance(operand, Value):
        if not operand.is_constant:
            raise UnsupportedError(f"{what} that is computed at run time")
        operand = operand.data
    return np.asarray(operand).reshape(-1)


def _indices(c: LayerContext, index: int) -> Operand:
    return c.ops.cast(x=c[index], dtype="int32")


@layer("gatherND")
def gather_nd(c: LayerContext) -> Operand:
    return c.ops.gather_nd(x=c[0], indices=_indices(c, 1))


@layer("gatherAlongAxis")
def gather_along_axis(c: LayerContext) -> Operand:
    return c.ops.gather_along_axis(x=c[0], indices=_indices(c, 1), axis=int(c.params.axis))


@layer("scatter", "scatterAlongAxis")
def scatter(c: LayerContext) -> Operand:
    op = "scatter" if c.kind == "scatter" else "scatter_along_axis"
    mode = _MODES[c.params.mode]
    return c.ops.op(op, data=c[0], indices=_indices(c, 1), updates=c[2], axis=int(c.params.axis), mode=mode)


@layer("scatterND")
def scatter_nd(c: LayerContext) -> Operand:
    return c.ops.scatter_nd(data=c[0], indices=_indices(c, 1), updates=c[2], mode=_MODES[c.params.mode])


@layer("argSort")
def argsort(c: LayerContext) -> Operand:
    p = c.params
    order = c.ops.argsort(x=c[0], axis=int(p.axis), ascending=not p.descending)
    return c.ops.cast(x=order, dtype="fp32")


@layer("oneHot")
def one_hot(c: LayerContext) -> Operand:
    p = c.params
    size = int(p.oneHotVectorSize) if len(c) < 2 else int(_known(c, 1, "a size")[0])
    return c.ops.one_hot(
        indices=_indices(c, 0),
        one_hot_vector_size=size,
        axis=int(p.axis),
        on_value=np.float32(p.onValue),
        off_value=np.float32(p.offValue),
    )


@layer("matrixBandPart")
def band_part(c: LayerContext) -> Operand:
    return c.ops.band_part(x=c[0], lower=int(c.params.numLower), upper=int(c.params.numUpper))


@layer("lowerTriangular", "upperTriangular")
def triangle(c: LayerContext) -> Operand:
    """The part on and below (above) diagonal ``k``, zeros elsewhere."""
    shape, k = shape_of(c[0]), int(c.params.k)
    keep = np.tri(shape[-2], shape[-1], k if c.kind == "lowerTriangular" else k - 1)
    keep = keep if c.kind == "lowerTriangular" else 1 - keep
    return c.ops.mul(x=c[0], y=keep.astype(type_of(c[0]).carrier))


@layer("logicalAnd", "logicalOr", "logicalXor")
def logic(c: LayerContext) -> Operand:
    op = {"logicalAnd": "logical_and", "logicalOr": "logical_or", "logicalXor": "logical_xor"}[c.kind]
    x, y = (one if type_of(one).dtype == "bool" else c.ops.cast(x=one, dtype="bool") for one in (c[0], c[1]))
    return c.ops.op(op, x=x, y=y)


@layer("getShape")
def get_shape(c: LayerContext) -> Operand:
    return np.array(shape_of(c[0]), np.float32)


@layer("rangeStatic", "rangeDynamic")
def range_(c: LayerContext) -> Operand:
    p = c.params
    if c.kind == "rangeStatic":
        end, start, step = p.endValue, p.startValue, p.stepSizeValue
    else:
        given = [float(_known(c, index, "a range")[0]) for index in range(len(c))]
        more = [float(p.startValue), float(p.stepSizeValue)][len(given) - 1 :]
        end, start, step = [*given, *more][:3]
    if not step:
        raise GraphError("a range with steps of 0")
    return np.arange(start, end, step, dtype=np.float64).astype(np.float32)


@layer("reshapeDynamic", "reshapeLike")
def reshape_to(c: LayerContext) -> Operand:
    wanted = shape_of(c[1]) if c.kind == "reshapeLike" else _known(c, 1, "a shape").astype(int).tolist()
    return reshape(c, c[0], wanted)


@layer("broadcastToLike", "broadcastToDynamic")
def broadcast_to(c: LayerContext) -> Operand:
    wanted = shape_of(c[1]) if c.kind == "broadcastToLike" else tuple(_known(c, 1, "a shape").astype(int).tolist())
    x = c[0]
    have = (1,) * (len(wanted) - c.rank(x)) + shape_of(x)
    return c.ops.tile(x=reshape(c, x, have), reps=ints(b // a for a, b in zip(have, wanted)))


@layer("fillLike", "fillDynamic")
def fill(c: LayerContext) -> Operand:
    wanted = shape_of(c[0]) if c.kind == "fillLike" else tuple(_known(c, 0, "a shape").astype(int).tolist())
    return np.full(wanted, c.params.value, np.float32)


@layer("slidingWindows")
def windows(c: LayerContext) -> Operand:
    p = c.params
    return c.ops.sliding_windows(x=c[0], axis=int(p.axis), size=int(p.windowSize), stride=int(p.step) or 1)


@layer("sliceBySize")
def slice_by_size(c: LayerContext) -> Operand:
    axis = int(c.params.axis) % c.rank(c[0])
    begin = [0] * c.rank(c[0])
    size = list(shape_of(c[0]))
    begin[axis] = int(_known(c, 1, "a start")[0])
    size[axis] = int(c.params.size)
    return c.ops.slice_by_size(x=c[0], begin=ints(begin), size=ints(size))


def _three(p: Any, name: str) -> list[int]:
    return [int(getattr(p, f"{name}{axis}")) or 1 for axis in ("Depth", "Height", "Width")]


def _padding(p: Any) -> dict[str, Any]:
    if p.paddingType == 2:
        return {"pad_type": "same"}
    if p.paddingType == 1:
        return {"pad_type": "valid"}
    sides = ("Front", "Back", "Top", "Bottom", "Left", "Right")
    return {"pad_type": "custom", "pad": ints(getattr(p, f"customPadding{side}") for side in sides)}


@layer("convolution3d")
def convolution3d(c: LayerContext) -> Operand:
    p = c.params
    groups, kernel = int(p.nGroups) or 1, _three(p, "kernel")
    outputs, inputs = int(p.outputChannels), int(p.inputChannels)
    how: dict[str, Any] = {
        "strides": ints(_three(p, "stride")),
        "dilations": ints(_three(p, "dilation")),
        "groups": groups,
        **_padding(p),
    }
    if p.hasBias:
        how["bias"] = c.weight(p.bias, (outputs,))
    if p.isDeconvolution:
        if p.outputShape:
            how["output_shape"] = ints([shape_of(c[0])[0], outputs, *p.outputShape])
        return c.ops.conv_transpose(x=c[0], weight=c.weight(p.weights, (inputs, outputs // groups, *kernel)), **how)
    return c.ops.conv(x=c[0], weight=c.weight(p.weights, (outputs, inputs // groups, *kernel)), **how)


@layer("pooling3d")
def pooling3d(c: LayerContext) -> Operand:
    p = c.params
    how = {"kernel_sizes": ints(_three(p, "kernel")), "strides": ints(_three(p, "stride")), **_padding(p)}
    if "pad" not in how:
        how["pad"] = ints([0] * 6)
    if p.type == 0:
        return c.ops.max_pool(x=c[0], **how)
    return c.ops.avg_pool(x=c[0], exclude_padding_from_average=bool(p.countExcludePadding), **how)
