"""Shapes, order, joining, cutting, padding, tensors made from numbers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from hexane.formats.compositions import Refused, axis_in
from hexane.formats.operands import Operand
from hexane.frontends.aten.node import AtenNode, aten


@aten("view.default", "_unsafe_view.default", "reshape.default", "view_copy.default", "_reshape_copy.default")
def view(c: AtenNode) -> Operand:
    return c.reshape(c.x(), c.out().shape)


@aten("permute.default", "permute_copy.default")
def permute(c: AtenNode) -> Operand:
    x = c.x()
    return c.transpose(x, [axis_in(axis, c.rank(x)) for axis in c.ints("dims")])


@aten("t.default")
def t(c: AtenNode) -> Operand:
    x = c.x()
    return x if c.rank(x) < 2 else c.swap(x)


@aten("transpose.int")
def transpose(c: AtenNode) -> Operand:
    x = c.x()
    rank = c.rank(x)
    perm = list(range(rank))
    a, b = c.axis(x, "dim0"), c.axis(x, "dim1")
    if rank:
        perm[a], perm[b] = perm[b], perm[a]
    return c.transpose(x, perm)


@aten("expand.default", "expand_copy.default")
def expand(c: AtenNode) -> Operand:
    return c.broadcast(c.x(), c.out().shape)


@aten(
    "unsqueeze.default", "squeeze.dim", "squeeze.dims", "squeeze.default", "unsqueeze_copy.default", "squeeze_copy.dim",
    "squeeze_copy.dims", "flatten.using_ints",
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


@aten("stack.default")
def stack(c: AtenNode) -> Operand:
    return c.stack([c.cast(part, c.out().dtype) for part in c.xs("tensors")], c["dim"])


def _cut(c: AtenNode, x: Operand, axis: int, sizes: list[int]) -> tuple[Operand, ...]:
    starts = np.cumsum([0, *sizes]).tolist()
    return tuple(c.window(x, {axis: slice(begin, end)}) for begin, end in pairwise(starts))


@aten("split_with_sizes.default", "split_with_sizes_copy.default", "split.Tensor", "unbind.int", "unbind_copy.int")
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


@aten("roll.default")
def roll(c: AtenNode) -> Operand:
    x, shifts, dims = c.x(), c.ints("shifts"), c.ints("dims")
    shape = c.shape(x)
    if not dims:
        x, dims = c.reshape(x, (int(np.prod(shape)),)), [0]
    for shift, axis in zip(shifts, dims):
        axis = axis_in(axis, c.rank(x))
        extent = c.shape(x)[axis]
        cut = (-shift) % extent
        if cut:
            x = c.join((c.window(x, {axis: slice(cut, None)}), c.window(x, {axis: slice(0, cut)})), axis)
    return c.reshape(x, shape)


def _widths(c: AtenNode, name: str = "padding") -> list[tuple[int, int]]:
    """(before, after) of the trailing axes, the first of them first."""
    widths = c.ints(name)
    return list(zip(widths[::2], widths[1::2]))[::-1]


@aten("constant_pad_nd.default")
def constant_pad(c: AtenNode) -> Operand:
    return c.pad(c.x(), _widths(c, "pad"), "constant", c.number("value", 0.0))


@aten("reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default")
def reflection_pad(c: AtenNode) -> Operand:
    return c.pad(c.x(), _widths(c), "reflect")


@aten("replication_pad1d.default", "replication_pad2d.default", "replication_pad3d.default")
def replication_pad(c: AtenNode) -> Operand:
    return c.pad(c.x(), _widths(c), "replicate")


@aten("full.default", "full_like.default", "new_full.default")
def full(c: AtenNode) -> Operand:
    return c.full(c.number("fill_value"), c.out().dtype, c.out().shape)


@aten(
    "zeros.default", "zeros_like.default", "new_zeros.default", "empty.memory_format", "empty_like.default",
    "empty_permuted.default", "empty_strided.default", "new_empty.default", "new_empty_strided.default",
)  # fmt: skip
def zeros(c: AtenNode) -> Operand:
    """Zeros; also where PyTorch leaves open what a new tensor holds."""
    return c.full(0, c.out().dtype, c.out().shape)


@aten("ones.default", "ones_like.default", "new_ones.default")
def ones(c: AtenNode) -> Operand:
    return c.full(1, c.out().dtype, c.out().shape)


@aten("scalar_tensor.default")
def scalar_tensor(c: AtenNode) -> Operand:
    return c.full(c.number("s"), c.out().dtype)


@aten("fill.Scalar", "fill.Tensor")
def fill(c: AtenNode) -> Operand:
    value = c["value"]
    if isinstance(value, int | float):
        return c.full(value, c.out().dtype, c.out().shape)
    return c.broadcast(c.cast(value, c.out().dtype), c.out().shape)


@aten("copy.default")
def copy(c: AtenNode) -> Operand:
    return c.broadcast(c.cast(c.x("src"), c.out().dtype), c.out().shape)


@aten("arange.start_step", "arange.start", "arange.default")
def arange(c: AtenNode) -> Operand:
    start = c.number("start", 0.0) if "start" in c.arguments else 0.0
    step = c.number("step", 1.0) if "step" in c.arguments else 1.0
    out = c.out()
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


@aten("select_scatter.default")
def select_scatter(c: AtenNode) -> Operand:
    x = c.x()
    axis, (index,) = c.axis(x), c.ints("index")
    index %= c.shape(x)[axis]
    return _replaced(c, x, axis, index, index + 1)


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


@aten("tril.default", "triu.default")
def triangle(c: AtenNode) -> Operand:
    return c.triangle(c.x(), int(c["diagonal"]), upper="triu" in str(c.node.target))
