"""Indices, order, shapes taken from other tensors, logic, and three-dimensional windows of classic Core ML networks."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from hexane.errors import GraphError, UnsupportedError
from hexane.formats.compositions import axis_in
from hexane.formats.coreml.layers.context import LayerContext
from hexane.formats.coreml.layers.registry import layer
from hexane.formats.operands import Operand
from hexane.graph import Value
from hexane.graph.types import TensorType

_MODES = ("update", "add", "sub", "mul", "div", "max", "min")


def _known(c: LayerContext, index: int, what: str) -> np.ndarray:
    """An input that must be known now: the graph is static."""
    operand = c[index]
    if isinstance(operand, Value):
        if not operand.is_constant:
            raise UnsupportedError(f"{what} that is computed at run time")
        operand = operand.data
    return np.asarray(operand).reshape(-1)


def _number(c: LayerContext, index: int, what: str) -> float:
    numbers = _known(c, index, what)
    if numbers.size != 1:
        raise GraphError(f"{what} of {numbers.size} numbers")
    return float(numbers[0])


def _indices(c: LayerContext, index: int) -> Operand:
    return c.cast(c[index], "int32")


@layer("gatherND")
def gather_nd(c: LayerContext) -> Operand:
    return c.ops.gather_nd(x=c[0], indices=_indices(c, 1))


@layer("gatherAlongAxis")
def gather_along_axis(c: LayerContext) -> Operand:
    return c.ops.gather_along_axis(x=c[0], indices=_indices(c, 1), axis=int(c.params.axis))


@layer("scatter", "scatterAlongAxis", "scatterND")
def scatter(c: LayerContext) -> Operand:
    op = {"scatter": "scatter", "scatterAlongAxis": "scatter_along_axis", "scatterND": "scatter_nd"}[c.kind]
    more = {} if c.kind == "scatterND" else {"axis": int(c.params.axis)}
    return c.ops.op(op, data=c[0], indices=_indices(c, 1), updates=c[2], mode=_MODES[c.params.mode], **more)


@layer("argSort")
def argsort(c: LayerContext) -> Operand:
    p = c.params
    return c.cast(c.ops.argsort(x=c[0], axis=int(p.axis), ascending=not p.descending), "fp32")


@layer("topK")
def topk(c: LayerContext) -> Any:
    p = c.params
    k = int(p.K) if len(c) < 2 else int(_number(c, 1, "a number of elements"))
    values, indices = c.ops.topk(x=c[0], k=k, axis=int(p.axis), ascending=bool(p.useBottomK))
    return values, c.cast(indices, "fp32")


@layer("oneHot")
def one_hot(c: LayerContext) -> Operand:
    p = c.params
    size = int(p.oneHotVectorSize) if len(c) < 2 else int(_number(c, 1, "a size"))
    return c.ops.one_hot(
        indices=_indices(c, 0),
        one_hot_vector_size=size,
        axis=int(p.axis),
        on_value=np.float32(p.onValue),
        off_value=np.float32(p.offValue),
    )


@layer("lowerTriangular", "upperTriangular")
def triangle(c: LayerContext) -> Operand:
    """The part on and below (above) diagonal ``k``, zeros elsewhere."""
    return c.triangle(c[0], int(c.params.k), upper=c.kind == "upperTriangular")


@layer("logicalAnd", "logicalOr", "logicalXor")
def logic(c: LayerContext) -> Operand:
    op = {"logicalAnd": "logical_and", "logicalOr": "logical_or", "logicalXor": "logical_xor"}[c.kind]
    return c.ops.op(op, x=c.cast(c[0], "bool"), y=c.cast(c[1], "bool"))


@layer("getShape")
def get_shape(c: LayerContext) -> Operand:
    return np.array(c.shape(c[0]), np.float32)


@layer("rangeStatic", "rangeDynamic")
def range_(c: LayerContext) -> Operand:
    p = c.params
    if c.kind == "rangeStatic":
        end, start, step = p.endValue, p.startValue, p.stepSizeValue
    else:
        numbers = [_number(c, index, "a range") for index in range(max(len(c), 1))]
        more = [float(p.startValue), float(p.stepSizeValue)][len(numbers) - 1 :]
        end, start, step = [*numbers, *more][:3]
    if not step:
        raise GraphError("a range with steps of 0")
    TensorType("fp32", (max(0, ceil((end - start) / step)),))  # refuses more elements than a tensor may have
    return np.arange(start, end, step, dtype=np.float64).astype(np.float32)


@layer("reshapeDynamic", "reshapeLike")
def reshape_to(c: LayerContext) -> Operand:
    return c.ops.reshape(x=c[0], shape=_shape(c, 1, "reshapeLike"))


def _shape(c: LayerContext, index: int, like: str) -> list[int]:
    """The shape of an input in layers of the kind ``like``, else the numbers that the input holds."""
    return list(c.shape(c[index])) if c.kind == like else _known(c, index, "a shape").astype(int).tolist()


@layer("broadcastToLike", "broadcastToDynamic")
def broadcast_to(c: LayerContext) -> Operand:
    return c.broadcast(c[0], _shape(c, 1, "broadcastToLike"))


@layer("fillLike", "fillDynamic")
def fill(c: LayerContext) -> Operand:
    return c.broadcast(np.array(c.params.value, np.float32), _shape(c, 0, "fillLike"))


@layer("slidingWindows")
def windows(c: LayerContext) -> Operand:
    p = c.params
    return c.ops.sliding_windows(x=c[0], axis=int(p.axis), size=int(p.windowSize), stride=int(p.step) or 1)


@layer("sliceBySize")
def slice_by_size(c: LayerContext) -> Operand:
    begin, size = [0] * c.rank(c[0]), list(c.shape(c[0]))
    axis = axis_in(int(c.params.axis), len(size))
    begin[axis], size[axis] = int(_number(c, 1, "a start")), int(c.params.size)
    return c.ops.slice_by_size(x=c[0], begin=begin, size=size)


def _three(p: Any, name: str) -> list[int]:
    return [int(getattr(p, f"{name}{axis}")) or 1 for axis in ("Depth", "Height", "Width")]


def _padding(p: Any) -> dict[str, Any]:
    if p.paddingType == 2:
        return {"pad_type": "same"}
    if p.paddingType == 1:
        return {"pad_type": "valid"}
    sides = ("Front", "Back", "Top", "Bottom", "Left", "Right")
    return {"pad_type": "custom", "pad": [getattr(p, f"customPadding{side}") for side in sides]}


@layer("convolution3d")
def convolution3d(c: LayerContext) -> Operand:
    p = c.params
    groups, kernel = int(p.nGroups) or 1, _three(p, "kernel")
    outputs, inputs = int(p.outputChannels), int(p.inputChannels)
    how = {"strides": _three(p, "stride"), "dilations": _three(p, "dilation"), "groups": groups, **_padding(p)}
    bias = c.weight(p.bias, (outputs,)) if p.hasBias else None
    if not p.isDeconvolution:
        return c.conv(c[0], c.weight(p.weights, (outputs, inputs // groups, *kernel)), bias, **how)
    if p.outputShape:
        how["output_shape"] = [c.shape(c[0])[0], outputs, *p.outputShape]
    return c.conv(c[0], c.weight(p.weights, (inputs, outputs // groups, *kernel)), bias, "conv_transpose", **how)


@layer("pooling3d")
def pooling3d(c: LayerContext) -> Operand:
    p = c.params
    how = {"kernel_sizes": _three(p, "kernel"), "strides": _three(p, "stride"), **_padding(p)}
    if p.type == 0:
        return c.ops.max_pool(x=c[0], **how)
    return c.ops.avg_pool(x=c[0], exclude_padding_from_average=bool(p.countExcludePadding), **how)
