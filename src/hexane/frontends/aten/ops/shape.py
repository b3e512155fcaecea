"""Shapes, order, joining, cutting, padding, tensors made from numbers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from hexane.formats.operands import Operand
from hexane.frontends.aten.node import AtenNode, Refused, aten


@aten("view.default", "_unsafe_view.default", "reshape.default", "view_copy.default", "_reshape_copy.default")
def view(c: AtenNode) -> Operand:
    return c.reshape(c.x(), c.out().shape)


@aten("permute.default", "permute_copy.default")
def permute(c: AtenNode) -> Operand:
    x = c.x()
    return c.transpose(x, [c.axis(axis, c.rank(x)) for axis in c.ints("dims")])


@aten("t.default")
def t(c: AtenNode) -> Operand:
    x = c.x()
    return x if c.rank(x) < 2 else c.swapped(x)


@aten("transpose.int")
def transpose(c: AtenNode) -> Operand:
    x = c.x()
    rank = c.rank(x)
    perm = list(range(rank))
    a, b = c.axis(c["dim0"], rank), c.axis(c["dim1"], rank)
    if rank:
        perm[a], perm[b] = perm[b], perm[a]
    return c.transpose(x, perm)


@aten("expand.default", "expand_copy.default")
def expand(c: AtenNode) -> Operand:
    return c.expanded(c.x(), c.out().shape)


@aten(
    "unsqueeze.default", "squeeze.dim", "squeeze.dims", "squeeze.default", "unsqueeze_copy.default", "squeeze_copy.dim",
    "squeeze_copy.dims", "flatten.using_ints",
)  # fmt: skip
def reshaped(c: AtenNode) -> Operand:
    return c.reshape(c.x(), c.out().shape)


@aten("slice.Tensor", "slice_copy.Tensor")
def slice_(c: AtenNode) -> Operand:
    x = c.x()
    axis = c.axis(c["dim"], c.rank(x))
    begin, end, step = slice(c["start"], c["end"], c["step"]).indices(c.shape(x)[axis])
    return c.slice(x, axis, begin, end, step)


@aten("select.int", "select_copy.int")
def select(c: AtenNode) -> Operand:
    x = c.x()
    axis, (index,) = c.axis(c["dim"], c.rank(x)), c.ints("index")
    index += c.shape(x)[axis] if index < 0 else 0
    return c.reshape(c.slice(x, axis, index, index + 1), c.out().shape)


@aten("narrow_copy.default", "narrow.default")
def narrow(c: AtenNode) -> Operand:
    x, (start,), (length,) = c.x(), c.ints("start"), c.ints("length")
    axis = c.axis(c["dim"], c.rank(x))
    start += c.shape(x)[axis] if start < 0 else 0
    return c.slice(x, axis, start, start + length)


@aten("cat.default")
def cat(c: AtenNode) -> Operand:
    parts = [c.cast(part, c.out().dtype) for part in c.xs("tensors") if c.shape(part) != (0,)]
    axis = c.axis(c["dim"], c.rank(parts[0]))
    return parts[0] if len(parts) == 1 else c.ops.concat(values=tuple(parts), axis=axis)


@aten("stack.default")
def stack(c: AtenNode) -> Operand:
    parts = [c.cast(part, c.out().dtype) for part in c.xs("tensors")]
    axis = c.axis(c["dim"], c.rank(parts[0]) + 1)
    grown = [c.reshape(part, (*c.shape(part)[:axis], 1, *c.shape(part)[axis:])) for part in parts]
    return grown[0] if len(grown) == 1 else c.ops.concat(values=tuple(grown), axis=axis)


def _cut(c: AtenNode, x: Operand, axis: int, sizes: list[int]) -> tuple[Operand, ...]:
    starts = np.cumsum([0, *sizes]).tolist()
    return tuple(c.slice(x, axis, begin, end) for begin, end in pairwise(starts))


@aten("split_with_sizes.default", "split_with_sizes_copy.default", "split.Tensor", "unbind.int", "unbind_copy.int")
def split(c: AtenNode) -> tuple[Operand, ...]:
    x = c.x()
    axis = c.axis(c["dim"], c.rank(x))
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
    return x if all(rep == 1 for rep in reps) else c.ops.tile(x=x, reps=np.array(reps, np.int32))


@aten("flip.default")
def flip(c: AtenNode) -> Operand:
    x, dims = c.x(), c.ints("dims")
    axes = [c.axis(axis, c.rank(x)) for axis in dims]
    return c.ops.reverse(x=x, axes=np.array(axes, np.int32)) if axes and c.rank(x) else x


@aten("roll.default")
def roll(c: AtenNode) -> Operand:
    x, shifts, dims = c.x(), c.ints("shifts"), c.ints("dims")
    shape = c.shape(x)
    if not dims:
        x, dims = c.reshape(x, (int(np.prod(shape)),)), [0]
    for shift, axis in zip(shifts, dims):
        axis = c.axis(axis, c.rank(x))
        extent = c.shape(x)[axis]
        cut = (-shift) % extent
        if cut:
            x = c.ops.concat(values=(c.slice(x, axis, cut, extent), c.slice(x, axis, 0, cut)), axis=axis)
    return c.reshape(x, shape)


def _widths(c: AtenNode, name: str = "padding") -> list[tuple[int, int]]:
    """(before, after) of the trailing axes, the first of them first."""
    given = c.ints(name)
    return list(zip(given[::2], given[1::2]))[::-1]


def _padded(c: AtenNode, x: Operand, widths: list[tuple[int, int]], mode: str, value: float = 0.0) -> Operand:
    """Padded; a negative width cuts."""
    first = c.rank(x) - len(widths)
    for axis, (before, after) in enumerate(widths, start=first):
        if before < 0 or after < 0:
            x = c.slice(x, axis, max(-before, 0), c.shape(x)[axis] + min(after, 0))
    flat = [max(width, 0) for pair in widths for width in pair]
    if not any(flat):
        return x
    if c.dtype(x) == "bool":
        whole = c.ops.pad(x=c.cast(x, "int32"), pad=np.array(flat, np.int32), mode=mode, constant_val=float(value))
        return c.cast(whole, "bool")
    return c.ops.pad(x=x, pad=np.array(flat, np.int32), mode=mode, constant_val=float(value))


@aten("constant_pad_nd.default")
def constant_pad(c: AtenNode) -> Operand:
    return _padded(c, c.x(), _widths(c, "pad"), "constant", c.number("value", 0.0))


@aten("reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default")
def reflection_pad(c: AtenNode) -> Operand:
    return _padded(c, c.x(), _widths(c), "reflect")


@aten("replication_pad1d.default", "replication_pad2d.default", "replication_pad3d.default")
def replication_pad(c: AtenNode) -> Operand:
    return _padded(c, c.x(), _widths(c), "replicate")


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
    return c.expanded(c.cast(value, c.out().dtype), c.out().shape)


@aten("copy.default")
def copy(c: AtenNode) -> Operand:
    return c.expanded(c.cast(c.x("src"), c.out().dtype), c.out().shape)


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
    x, source = c.x(), c.cast(c.x("src"), c.out().dtype)
    axis = c.axis(c["dim"], c.rank(x))
    extent = c.shape(x)[axis]
    begin, end, step = slice(c["start"], c["end"], c["step"]).indices(extent)
    if step != 1:
        raise Refused("a slice with steps replaced")
    parts = [
        part
        for part, size in (
            (c.slice(x, axis, 0, begin) if begin else None, begin),
            (source, end - begin),
            (c.slice(x, axis, end, extent) if end < extent else None, extent - end),
        )
        if size > 0 and part is not None
    ]
    return parts[0] if len(parts) == 1 else c.ops.concat(values=tuple(parts), axis=axis)


@aten("select_scatter.default")
def select_scatter(c: AtenNode) -> Operand:
    x = c.x()
    axis, (index,) = c.axis(c["dim"], c.rank(x)), c.ints("index")
    extent = c.shape(x)[axis]
    index += extent if index < 0 else 0
    shape = c.shape(x)
    source = c.reshape(c.cast(c.x("src"), c.out().dtype), (*shape[:axis], 1, *shape[axis + 1 :]))
    parts = [source]
    if index:
        parts.insert(0, c.slice(x, axis, 0, index))
    if index + 1 < extent:
        parts.append(c.slice(x, axis, index + 1, extent))
    return parts[0] if len(parts) == 1 else c.ops.concat(values=tuple(parts), axis=axis)


@aten("diagonal.default", "diagonal_copy.default")
def diagonal(c: AtenNode) -> Operand:
    """Elements of two axes with equal indices, as a gather on the two axes made one."""
    x = c.x()
    rank = c.rank(x)
    a, b, offset = c.axis(c["dim1"], rank), c.axis(c["dim2"], rank), c["offset"]
    rest = [axis for axis in range(rank) if axis not in (a, b)]
    rows, columns = c.shape(x)[a], c.shape(x)[b]
    i = np.arange(c.out().shape[-1])
    places = (i + max(-offset, 0)) * columns + i + max(offset, 0)
    shape = [c.shape(x)[axis] for axis in rest]
    flat = c.reshape(c.transpose(x, [*rest, a, b]), (*shape, rows * columns))
    return c.ops.gather(x=flat, indices=places.astype(np.int32), axis=len(rest))


@aten("tril.default", "triu.default")
def triangle(c: AtenNode) -> Operand:
    x, k = c.x(), int(c["diagonal"])
    rows, columns = c.shape(x)[-2:]
    keep = np.tri(rows, columns, k if "tril" in str(c.node.target) else k - 1, dtype=bool)
    keep = keep if "tril" in str(c.node.target) else ~keep
    return c.ops.select(cond=np.broadcast_to(keep, c.shape(x)).copy(), a=x, b=c.like(0, x))
