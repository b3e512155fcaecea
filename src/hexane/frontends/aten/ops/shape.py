"""Shapes, order, joining, cutting, padding, tensors made from numbers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from hexane.formats.compositions import Refused, axis_in
from hexane.formats.operands import Operand
from hexane.frontends.aten.node import AtenNode, aten


@aten("permute.default", "permute_copy.default")
def permute(c: AtenNode) -> Operand:
    x = c.x()
    return c.transpose(x, [axis_in(axis, c.rank(x)) for axis in c.ints("dims")])


@aten("expand.default", "expand_copy.default")
def expand(c: AtenNode) -> Operand:
    return c.broadcast(c.x(), c.out().shape)


@aten(
    "view.default", "reshape.default", "view_copy.default", "_reshape_copy.default", "unsqueeze.default",
    "squeeze.dims", "unsqueeze_copy.default", "squeeze_copy.dim", "squeeze_copy.dims", "flatten.using_ints",
)  # fmt: skip
def reshaped(c: AtenNode) -> Operand:
    return c.reshape(c.x(), c.out().shape)


@aten("slice.Tensor", "slice_copy.Tensor")
def slice_(c: AtenNode) -> Operand:
    x = c.x()
    axis = c.axis(x)
    begin, end, step = slice(c["start"], c["end"], c["step"]).indices(c.shape(x)[axis])
    return c.window(x, {axis: slice(begin, end, step)})


@aten("select.int", "select_copy.int")
def select(c: AtenNode) -> Operand:
    x = c.x()
    axis, (index,) = c.axis(x), c.ints("index")
    return c.pick(x, axis, index % c.shape(x)[axis])


@aten("narrow_copy.default", "narrow.default")
def narrow(c: AtenNode) -> Operand:
    x, (start,), (length,) = c.x(), c.ints("start"), c.ints("length")
    axis = c.axis(x)
    start += c.shape(x)[axis] if start < 0 else 0
    return c.window(x, {axis: slice(start, start + length)})


@aten("cat.default")
def cat(c: AtenNode) -> Operand:
    parts = [c.cast(part, c.out().dtype) for part in c.xs("tensors") if c.shape(part) != (0,)]
    return c.join(parts, c.axis(parts[0]))


def _cut(c: AtenNode, x: Operand, axis: int, sizes: list[int]) -> tuple[Operand, ...]:
    starts = np.cumsum([0, *sizes]).tolist()
    return tuple(c.window(x, {axis: slice(begin, end)}) for begin, end in pairwise(starts))


@aten("split_with_sizes.default", "split_with_sizes_copy.default", "unbind_copy.int")
def split(c: AtenNode) -> tuple[Operand, ...]:
    x = c.x()
    axis = c.axis(x)
    if "unbind" in str(c.node.target):
        parts = _cut(c, x, axis, [1] * c.shape(x)[axis])
    else:
        parts = _cut(c, x, axis, [int(value.shape[axis]) for value in c.results])
    return tuple(c.reshape(part, value.shape) for part, value in zip(parts, c.results))


@aten("repeat.default")
def repeat(c: AtenNode) -> Operand:
    x, reps = c.x(), c.ints("repeats")
    x = c.reshape(x, (1,) * (len(reps) - c.rank(x)) + c.shape(x))
    if isinstance(x, np.ndarray):
        return np.tile(x, reps)
    return x if all(rep == 1 for rep in reps) else c.ops.tile(x=x, reps=reps)


@aten("flip.default")
def flip(c: AtenNode) -> Operand:
    x, dims = c.x(), c.ints("dims")
    axes = [axis_in(axis, c.rank(x)) for axis in dims]
    return c.ops.reverse(x=x, axes=axes) if axes and c.rank(x) else x


@aten("constant_pad_nd.default")
def constant_pad(c: AtenNode) -> Operand:
    widths = c.ints("pad")  # before and after, of the last axis first
    return c.pad(c.x(), list(zip(widths[::2], widths[1::2]))[::-1], "constant", c.number("value", 0.0))


@aten("full.default", "full_like.default")
def full(c: AtenNode) -> Operand:
    return c.full(c.number("fill_value"), c.out().dtype, c.out().shape)


@aten("empty.memory_format", "empty_permuted.default", "empty_strided.default", "new_empty_strided.default")
def empty(c: AtenNode) -> Operand:
    """Zeros where PyTorch leaves open what a new tensor holds."""
    return c.full(0, c.out().dtype, c.out().shape)


@aten("scalar_tensor.default")
def scalar_tensor(c: AtenNode) -> Operand:
    return c.full(c.number("s"), c.out().dtype)


@aten("copy.default")
def copy(c: AtenNode) -> Operand:
    return c.broadcast(c.cast(c.x("src"), c.out().dtype), c.out().shape)


@aten("arange.start_step")
def arange(c: AtenNode) -> Operand:
    start, step, out = c.number("start", 0.0), c.number("step", 1.0), c.out()
    return (start + step * np.arange(out.shape[0], dtype=np.float64)).astype(out.carrier)


@aten("prims::iota.default")
def iota(c: AtenNode) -> Operand:
    out = c.out()
    return (c.number("start") + c.number("step") * np.arange(out.shape[0])).astype(out.carrier)


@aten("prims::convert_element_type.default")
def convert(c: AtenNode) -> Operand:
    return c.cast(c.x("a"), c.out().dtype)


@aten("pixel_shuffle.default")
def pixel_shuffle(c: AtenNode) -> Operand:
    x = c.x()
    if c.rank(x) != 4:
        raise Refused(f"pixel_shuffle of rank {c.rank(x)}")
    return c.ops.pixel_shuffle(x=x, upscale_factor=c["upscale_factor"])


@aten("pixel_unshuffle.default")
def pixel_unshuffle(c: AtenNode) -> Operand:
    x = c.x()
    if c.rank(x) != 4:
        raise Refused(f"pixel_unshuffle of rank {c.rank(x)}")
    return c.ops.pixel_unshuffle(x=x, downscale_factor=np.uint32(c["downscale_factor"]))


@aten("slice_scatter.default")
def slice_scatter(c: AtenNode) -> Operand:
    """A slice replaced: what is before it, the new part, what is behind it."""
    x = c.x()
    axis = c.axis(x)
    begin, end, step = slice(c["start"], c["end"], c["step"]).indices(c.shape(x)[axis])
    if step != 1:
        raise Refused("a slice with steps replaced")
    return _replaced(c, x, axis, begin, max(begin, end))


def _replaced(c: AtenNode, x: Operand, axis: int, begin: int, end: int) -> Operand:
    """The tensor with a new part in place of a slice."""
    shape = c.shape(x)
    source = c.reshape(c.cast(c.x("src"), c.out().dtype), (*shape[:axis], end - begin, *shape[axis + 1 :]))
    parts = [c.window(x, {axis: slice(0, begin)}), source, c.window(x, {axis: slice(end, None)})]
    return c.join([part for part in parts if c.shape(part)[axis]], axis)


@aten("diagonal.default", "diagonal_copy.default")
def diagonal(c: AtenNode) -> Operand:
    """Elements of two axes with equal indices, as a gather on the two axes made one."""
    x = c.x()
    rank = c.rank(x)
    a, b, offset = c.axis(x, "dim1"), c.axis(x, "dim2"), c["offset"]
    rest = [axis for axis in range(rank) if axis not in (a, b)]
    rows, columns = c.shape(x)[a], c.shape(x)[b]
    i = np.arange(c.out().shape[-1])
    places = (i + max(-offset, 0)) * columns + i + max(offset, 0)
    shape = [c.shape(x)[axis] for axis in rest]
    flat = c.reshape(c.transpose(x, [*rest, a, b]), (*shape, rows * columns))
    return c.ops.gather(x=flat, indices=places.astype(np.int32), axis=len(rest))
