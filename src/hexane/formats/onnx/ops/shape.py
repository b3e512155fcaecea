"""Shape and order: reshape, transpose, slices, padding, joining and splitting."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np

from hexane.errors import GraphError
from hexane.formats.compositions import Refused, axis_in
from hexane.formats.onnx.context import NodeContext
from hexane.formats.onnx.registry import onnx_op
from hexane.formats.operands import Operand, type_of
from hexane.graph.ops.onnx_runtime import centred, slice_of
from hexane.graph.ops.shape import resolve_reshape
from hexane.graph.types import FLOATS
from hexane.rounding import ceil_div


def static_shape(c: NodeContext, operand: Operand) -> tuple[int, ...]:
    """The operand's shape; Refused where an extent depends on data."""
    type_ = type_of(operand)
    if not type_.is_static:
        raise Refused(f"its input has a shape that depends on data ({type_}); the graph is static")
    return type_.shape


@onnx_op("Shape")
def shape(c: NodeContext) -> Operand:
    whole = static_shape(c, c.need(0))
    return np.array(whole[slice(c.attr("start", 0), c.attr("end", None))], np.int64)


@onnx_op("Size")
def size(c: NodeContext) -> Operand:
    return np.array(prod(static_shape(c, c.need(0))), np.int64)


@onnx_op("Reshape")
def reshape(c: NodeContext) -> Operand:
    x = c.need(0)
    old = static_shape(c, x)
    if not c.is_constant(1):
        allow = bool(c.attr("allowzero", 0))
        return c.at_run_time("Reshape", "the shape input", x=x, shape=c.need(1), allow_zero=allow)
    target = c.ints(1) or []
    if c.attr("allowzero", 0):
        if 0 in target and 0 not in old:
            raise GraphError(f"cannot reshape {old} to {target}")
    elif any(extent == 0 and axis >= len(old) for axis, extent in enumerate(target)):
        raise GraphError(f"shape {target} copies an axis that a tensor {old} lacks")
    else:
        target = [old[axis] if extent == 0 else extent for axis, extent in enumerate(target)]
    return c.reshape(x, resolve_reshape(old, target))


@onnx_op("Flatten")
def flatten(c: NodeContext) -> Operand:
    x = c.need(0)
    old = static_shape(c, x)
    axis = c.attr("axis", 1)
    if not -len(old) <= axis <= len(old):
        raise GraphError(f"axis {axis} of a tensor of rank {len(old)}")
    axis = axis + len(old) if axis < 0 else axis
    return c.reshape(x, (prod(old[:axis]), prod(old[axis:])))


@onnx_op("Squeeze")
def squeeze(c: NodeContext) -> Operand:
    x = c.need(0)
    old = type_of(x).shape
    if not c.has_attr("axes") and not c.is_constant(1):
        return c.at_run_time("Squeeze", "axes", x=x, axes=c.need(1))
    axes = c.axes_input(1)
    gone = {a for a, extent in enumerate(old) if extent == 1} if axes is None else {axis_in(a, len(old)) for a in axes}
    if any(old[axis] != 1 for axis in gone):
        raise GraphError(f"cannot squeeze axes {sorted(gone)} of {old}")
    if not gone:
        return x
    if isinstance(x, np.ndarray):
        return np.squeeze(x, tuple(gone))
    return c.ops.squeeze(x=x, axes=sorted(gone))


@onnx_op("Unsqueeze")
def unsqueeze(c: NodeContext) -> Operand:
    x = c.need(0)
    if not c.has_attr("axes") and not c.is_constant(1):
        return c.at_run_time("Unsqueeze", "axes", x=x, axes=c.need(1))
    axes = c.axes_input(1) or []
    rank = len(type_of(x).shape) + len(axes)
    places = sorted(axis_in(axis, rank) for axis in axes)
    if len(set(places)) != len(places):
        raise GraphError(f"axes {axes} name one place twice")
    if not places:
        return x
    if isinstance(x, np.ndarray):
        return np.expand_dims(x, tuple(places))
    return c.ops.expand_dims(x=x, axes=places)


@onnx_op("Transpose")
def transpose(c: NodeContext) -> Operand:
    x = c.need(0)
    rank = len(type_of(x).shape)
    perm = c.attr("perm", list(range(rank))[::-1])
    if sorted(perm) != list(range(rank)):
        raise GraphError(f"perm {perm} of a tensor of rank {rank}")
    return c.transpose(x, perm)


@onnx_op("Concat")
def concat(c: NodeContext) -> Operand:
    operands = c.inputs()
    axis = axis_in(c.attr("axis", 0), len(type_of(operands[0]).shape))
    return join(c, operands, axis)


def join(c: NodeContext, operands: list[Operand], axis: int) -> Operand:
    """Concatenation that leaves out empty parts and does nothing for one."""
    full = [operand for operand in operands if type_of(operand).shape[axis] != 0] or operands[:1]
    if len(full) == 1:
        return c.ops.identity(x=full[0])
    return c.ops.concat(values=tuple(full), axis=axis, interleave=False)


@onnx_op("Split")
def split(c: NodeContext) -> tuple[Operand, ...]:
    x = c.need(0)
    old = static_shape(c, x)
    axis = axis_in(c.attr("axis", 0), len(old))
    count = len(c.node.output)
    if not c.has_attr("split") and not c.is_constant(1):
        sizes = [c.declared_shape("split", index)[axis] for index in range(count)]
        results = c.ops.op("onnx.Split", x=x, split=c.need(1), axis=axis, output_sizes=sizes)
        return results if isinstance(results, tuple) else (results,)
    lengths = c.axes_input(1, "split")
    if lengths is None:
        parts = c.attr("num_outputs", count)
        if parts != count:
            raise GraphError(f"Split has {count} outputs and num_outputs {parts}")
        each = ceil_div(old[axis], parts)
        lengths = [min(each, max(old[axis] - each * i, 0)) for i in range(parts)]
    if sum(lengths) != old[axis] or any(extent < 0 for extent in lengths):
        raise GraphError(f"cannot split {old[axis]} into {lengths}")
    return cut(c, x, axis, lengths)


def cut(c: NodeContext, x: Operand, axis: int, sizes: list[int]) -> tuple[Operand, ...]:
    """Pieces along an axis."""
    if isinstance(x, np.ndarray):
        return tuple(np.split(x, np.cumsum(sizes)[:-1], axis=axis))
    if len(sizes) == 1:
        return (c.ops.identity(x=x),)
    if 0 in sizes:
        edges = [0, *np.cumsum(sizes).tolist()]
        return tuple(c.window(x, {axis: slice(a, b)}) for a, b in pairwise(edges))
    return c.ops.split(x=x, split_sizes=sizes, axis=axis)


@onnx_op("Slice")
def slice_(c: NodeContext) -> Operand:
    x = c.need(0)
    old = static_shape(c, x)
    if c.has_attr("starts"):
        starts, ends, axes, steps = c.attr("starts"), c.attr("ends"), c.attr("axes"), None
    elif all(c.is_constant(index) for index in range(1, 5)):
        starts, ends, axes, steps = (c.ints(index) for index in range(1, 5))
    else:
        optional = {name: c.need(i) for i, name in ((3, "axes"), (4, "steps")) if c.has(i)}
        return c.at_run_time("Slice", "starts, ends, axes or steps", x=x, starts=c.need(1), ends=c.need(2), **optional)
    picks = slice_of(old, starts, ends, axes, steps)
    return c.window(x, dict(enumerate(picks)))


@onnx_op("Expand")
def expand(c: NodeContext) -> Operand:
    x = c.need(0)
    if not c.is_constant(1):
        return c.at_run_time("Expand", "the shape input", x=x, shape=c.need(1))
    old, wanted = static_shape(c, x), c.ints(1) or []
    try:
        return c.broadcast(x, np.broadcast_shapes(old, tuple(wanted)))
    except ValueError as error:
        raise GraphError(f"{old} does not broadcast with {wanted}") from error


@onnx_op("Tile")
def tile(c: NodeContext) -> Operand:
    x = c.need(0)
    if not c.is_constant(1):
        return c.at_run_time("Tile", "repeats", x=x, reps=c.need(1))
    reps = c.ints(1) or []
    old = static_shape(c, x)
    if len(reps) != len(old) or any(rep < 0 for rep in reps):
        raise GraphError(f"repeats {reps} of a tensor {old}")
    if 0 in reps:
        return np.zeros([a * b for a, b in zip(old, reps)], type_of(x).carrier)
    return x if all(rep == 1 for rep in reps) else c.ops.tile(x=x, reps=reps)


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "wrap"}


@onnx_op("Pad")
def pad(c: NodeContext) -> Operand:
    x, mode = c.need(0), c.attr("mode", "constant")
    static_shape(c, x)
    if c.version < 11:
        pads, axes, value = c.attr("pads", []), None, c.like(c.attr("value", 0.0), x)
    elif c.is_constant(1) and c.is_constant(2) and c.is_constant(3):
        pads, axes, fill = c.ints(1) or [], c.ints(3), c.constant(2)
        value = c.like(0, x) if fill is None or fill.size == 0 else fill.reshape(())
    else:
        optional = {name: c.need(i) for i, name in ((2, "value"), (3, "axes")) if c.has(i)}
        if "value" in optional:
            optional["value"] = c.reshape(optional["value"], ())
        return c.at_run_time("Pad", "pads", x=x, pads=c.need(1), mode=mode, **optional)
    return padded(c, x, pads, axes, mode, value)


def padded(
    c: NodeContext, x: Operand, pads: list[int], axes: list[int] | None, mode: str, value: np.ndarray
) -> Operand:
    """Padding known now: MIL's ``pad`` where it says the same."""
    rank = type_of(x).rank
    padded_axes = list(range(rank)) if axes is None else [axis_in(axis, rank) for axis in axes]
    if len(pads) != 2 * len(padded_axes):
        raise GraphError(f"{len(pads)} pads for {len(padded_axes)} axes")
    widths = [(0, 0)] * rank
    for i, axis in enumerate(padded_axes):
        widths[axis] = (pads[i], pads[len(padded_axes) + i])
    if mode not in _PAD_MODES:
        raise GraphError(f"Pad has no mode {mode!r}")
    if type_of(x).dtype in (*FLOATS, "bool") or abs(int(value)) < 1 << 24:
        return c.pad(x, widths, _PAD_MODES[mode], float(value))
    x = c.pad(x, [(min(before, 0), min(after, 0)) for before, after in widths])
    flat = [max(pair[side], 0) for side in (0, 1) for pair in widths]
    shape_ = [extent + flat[axis] + flat[rank + axis] for axis, extent in enumerate(type_of(x).shape)]
    return c.ops.op("onnx.Pad", x=x, pads=flat, value=value, mode=mode, output_shape=shape_)


@onnx_op("DepthToSpace")
def depth_to_space(c: NodeContext) -> Operand:
    x, block = c.need(0), c.attr("blocksize")
    if c.attr("mode", "DCR") == "CRD":
        return c.ops.pixel_shuffle(x=x, upscale_factor=block)
    return c.ops.depth_to_space(x=x, block_size=block)


@onnx_op("SpaceToDepth")
def space_to_depth(c: NodeContext) -> Operand:
    x, block = c.need(0), c.attr("blocksize")
    if c.attr("mode", "DCR") == "CRD":
        return c.ops.pixel_unshuffle(x=x, downscale_factor=block)
    return c.ops.space_to_depth(x=x, block_size=block)


@onnx_op("Trilu")
def trilu(c: NodeContext) -> Operand:
    """One triangle of the last two axes, chosen by a constant mask."""
    x, upper = c.need(0), bool(c.attr("upper", 1))
    if not c.is_constant(1):
        k = c.reshape(c.need(1), ())
        return c.ops.op("onnx.Trilu", x=x, k=k, upper=upper, output_shape=static_shape(c, x))
    k = (c.ints(1) or [0])[0]
    static_shape(c, x)
    return c.triangle(x, k, upper)


@onnx_op("CenterCropPad")
def center_crop_pad(c: NodeContext) -> Operand:
    x, axes = c.need(0), c.attr("axes")
    old = static_shape(c, x)
    if not c.is_constant(1):
        extra = {} if axes is None else {"axes": axes}
        return c.at_run_time("CenterCropPad", "the shape input", x=x, shape=c.need(1), **extra)
    crop_axes = list(range(len(old))) if axes is None else [axis_in(axis, len(old)) for axis in axes]
    widths = [(0, 0)] * len(old)
    for extent, axis in zip(c.ints(1) or [], crop_axes):
        widths[axis] = centred(old[axis], extent)
    return c.pad(x, widths)
