"""Constants, shape and order of classic Core ML networks."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from hexane.errors import GraphError, UnsupportedError
from hexane.formats.coreml.layers.context import LayerContext
from hexane.formats.coreml.layers.registry import borders, layer
from hexane.formats.operands import Operand


@layer("loadConstant")
def load_constant(c: LayerContext) -> Operand:
    """[1, 1, channels, height, width] where networks have the ranks that they say."""
    shape = tuple(int(n) for n in c.params.shape)
    return c.weight(c.params.data, shape).reshape((1, 1, *shape) if c.exact else (1, *shape))


@layer("loadConstantND")
def load_constant_nd(c: LayerContext) -> Operand:
    return c.weight(c.params.data, tuple(int(n) for n in c.params.shape))


@layer("reshape")
def reshape_layer(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    target = [int(n) for n in p.targetShape]
    target = target if len(target) == 4 else [c.shape(x)[0], *target]
    if p.mode == 0:
        return c.reshape(x, target)
    # Channels last: read height, width, channels, and write so again.
    y = c.ops.transpose(x=x, perm=(0, 2, 3, 1))
    y = c.reshape(y, (target[0], target[2], target[3], target[1]))
    return c.ops.transpose(x=y, perm=(0, 3, 1, 2))


@layer("flatten")
def flatten(c: LayerContext) -> Operand:
    x = c[0]
    if c.params.mode == 1:
        x = c.ops.transpose(x=x, perm=(0, 2, 3, 1))
    shape = c.shape(x)
    return c.reshape(x, (shape[0], prod(shape[1:]), 1, 1))


@layer("permute")
def permute(c: LayerContext) -> Operand:
    axes = [int(a) for a in c.params.axis]
    if axes[0] != 0:
        raise UnsupportedError("a permutation of the sequence axis")
    return c.ops.transpose(x=c[0], perm=axes)


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
    how = {"split_sizes": [*p.splitSizes]} if p.splitSizes else {"num_splits": int(p.numSplits)}
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


@layer("slice")
def slice_layer(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    rank = c.rank(x)
    axis = rank - 3 + p.axis  # channels, height, width: counted from behind, also where there are fewer axes
    if axis < 0:
        raise GraphError(f"an input of rank {rank} has no axis {('channels', 'height')[p.axis]}")
    begin, end, stride = [0] * rank, list(c.shape(x)), [1] * rank
    begin[axis], end[axis], stride[axis] = int(p.startIndex), int(p.endIndex), int(p.stride) or 1
    if p.endIndex < 0:
        end[axis] = c.shape(x)[axis] + int(p.endIndex) + 1
    return c.ops.slice_by_index(x=x, begin=begin, end=end, stride=stride)


@layer("sliceStatic")
def slice_static(c: LayerContext) -> Operand:
    p = c.params
    rank = c.rank(c[0])
    squeeze = list(p.squeezeMasks) or [False] * rank
    return c.ops.slice_by_index(
        x=c[0],
        begin=[*p.beginIds],
        end=[*p.endIds],
        stride=[*p.strides],
        begin_mask=np.array(p.beginMasks, bool),
        end_mask=np.array(p.endMasks, bool),
        squeeze_mask=np.array(squeeze, bool),
    )


@layer("crop")
def crop(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    height, width = c.shape(x)[-2:]
    if len(c) > 1:
        size, offset = c.shape(c[1])[-2:], [int(n) for n in p.offset] or [0, 0]
        if len(size) != 2 or len(offset) != 2:
            raise GraphError(f"{len(offset)} offsets and {len(size)} extents, height and width are two")
        top, left = offset
        rows, columns = (top, height - top - size[0]), (left, width - left - size[1])
    else:
        rows, columns = borders(p.cropAmounts)
    return c.ops.crop(x=x, crop_height=rows, crop_width=columns)


@layer("padding")
def padding(c: LayerContext) -> Operand:
    p = c.params
    kind = p.WhichOneof("PaddingType") or "constant"
    pad = [edge for pair in borders(p.paddingAmounts) for edge in pair]
    mode = {"constant": "constant", "reflection": "reflect", "replication": "replicate"}[kind]
    return c.ops.pad(x=c[0], pad=pad, mode=mode, constant_val=float(p.constant.value) if kind == "constant" else 0.0)


@layer("constantPad")
def constant_pad(c: LayerContext) -> Operand:
    p = c.params
    if p.padToGivenOutputSizeMode or len(c) > 1:
        raise UnsupportedError("padding to an output size")
    return c.ops.pad(x=c[0], pad=[*p.padAmounts], mode="constant", constant_val=float(p.value))


@layer("squeeze")
def squeeze(c: LayerContext) -> Operand:
    p = c.params
    return c.ops.squeeze(x=c[0]) if p.squeezeAll else c.ops.squeeze(x=c[0], axes=[*p.axes])


@layer("reverse")
def reverse(c: LayerContext) -> Operand:
    axes = [axis for axis, flag in enumerate(c.params.reverseDim) if flag]
    return c.ops.reverse(x=c[0], axes=axes) if axes else c.ops.identity(x=c[0])


@layer("broadcastToStatic")
def broadcast_to(c: LayerContext) -> Operand:
    return c.broadcast(c[0], c.params.targetShape)


@layer("fillStatic")
def fill_static(c: LayerContext) -> Operand:
    return c.broadcast(np.array(c.params.value, np.float32), c.params.targetShape)


@layer("gather")
def gather(c: LayerContext) -> Operand:
    return c.ops.gather(x=c[0], indices=c.cast(c[1], "int32"), axis=int(c.params.axis))
