"""Ops that change a tensor's shape or the order of its elements, not their values (docs/reference/mil.md 5.6)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._gradients import reshaped, through_matrix
from hexane.graph.ops._rules import axes_of, axis_of, positive, rank_between
from hexane.graph.registry import UNKNOWN, op
from hexane.graph.traits import REARRANGES, RESHAPES
from hexane.graph.types import NUMBERS, TensorType, eval_dtype

if TYPE_CHECKING:
    from hexane.graph.formulas import Formula
    from hexane.graph.gradient import Derivation


def resolve_reshape(shape: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """The extents that ``reshape`` gives: 0 copies the input's, one -1 takes what is left."""
    out = []
    for position, extent in enumerate(target):
        if extent == 0 and prod(shape) != 0:
            if position >= len(shape):
                raise GraphError(f"extent 0 at position {position} copies from a shape of rank {len(shape)}")
            extent = shape[position]
        out.append(extent)
    if any(extent < -1 for extent in out) or out.count(-1) > 1:
        raise GraphError(f"{tuple(target)} is no shape to reshape to")
    if -1 in out:
        rest = prod(extent for extent in out if extent != -1)
        if rest == 0 or prod(shape) % rest:
            raise GraphError(f"{tuple(shape)} cannot be reshaped to {tuple(target)}")
        out[out.index(-1)] = prod(shape) // rest
    if prod(out) != prod(shape):
        raise GraphError(f"{tuple(shape)} has {prod(shape)} elements, {tuple(target)} has {prod(out)}")
    return tuple(out)


def _reshape_type(x: TensorType, shape: Any) -> TensorType:
    if shape is UNKNOWN:
        raise GraphError("shape must be a constant", hint="hexane's graphs have static shapes")
    return x.with_shape(resolve_reshape(x.shape, shape))


@op("reshape", "x:A shape:ints", infer=_reshape_type, traits=RESHAPES, derivative=reshaped)
def reshape(x: np.ndarray, shape: Any) -> np.ndarray:
    """The same elements in row-major order under another shape; 0 copies an extent, one -1 takes the rest."""
    return x.reshape(resolve_reshape(x.shape, shape))


def _transpose_type(x: TensorType, perm: Any) -> TensorType:
    if sorted(axes_of(perm, x.rank, "perm")) != list(range(x.rank)):
        raise GraphError(f"perm {perm} is no permutation of {x.rank} axes")
    return x.with_shape(x.shape[axis] for axis in axes_of(perm, x.rank))


@op(
    "transpose",
    "x:A perm:ints",
    infer=_transpose_type,
    dynamic=True,
    traits=REARRANGES,
    derivative=lambda d: d.grad.ordered(*np.argsort(axes_of(d.perm, d.x.rank)).tolist()),
)
def transpose(x: np.ndarray, perm: Any) -> np.ndarray:
    """Result axis i is axis perm[i] of x."""
    return x.transpose(axes_of(perm, x.ndim))


def _expanded(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    rank = len(shape) + len(axes)
    new = set(axes_of(axes, rank))
    rest = iter(shape)
    return tuple(1 if axis in new else next(rest) for axis in range(rank))


@op(
    "expand_dims",
    "x:A axes:ints",
    infer=lambda x, axes: x.with_shape(_expanded(x.shape, axes)),
    dynamic=True,
    traits=RESHAPES,
    derivative=reshaped,
)
def expand_dims(x: np.ndarray, axes: Any) -> np.ndarray:
    """New axes of extent 1, at these positions of the result."""
    return x.reshape(_expanded(x.shape, axes))


def _squeezed(shape: Sequence[int], axes: Any) -> tuple[int, ...]:
    gone = {i for i, n in enumerate(shape) if n == 1} if axes is None else set(axes_of(axes, len(shape)))
    for axis in gone:
        if shape[axis] not in (1, None):
            raise GraphError(f"axis {axis} of {tuple(shape)} is {shape[axis]}, not 1")
    return tuple(extent for axis, extent in enumerate(shape) if axis not in gone)


@op(
    "squeeze",
    "x:A axes:ints?",
    infer=lambda x, axes: x.with_shape(_squeezed(x.shape, axes)),
    traits=RESHAPES,
    derivative=reshaped,
)
def squeeze(x: np.ndarray, axes: Any) -> np.ndarray:
    """Drop axes of extent 1: these, or all of them."""
    return x.reshape(_squeezed(x.shape, axes))


def _flat_type(x: TensorType, axis: int) -> TensorType:
    if not -x.rank <= axis <= x.rank:
        raise GraphError(f"axis {axis} of a tensor of rank {x.rank}")
    position = axis if axis >= 0 else axis + x.rank
    return x.with_shape((prod(x.shape[:position]), prod(x.shape[position:])))


@op("flatten2d", "x:A axis:int=1", infer=_flat_type, traits=RESHAPES, derivative=reshaped)
def flatten2d(x: np.ndarray, axis: int) -> np.ndarray:
    """Rank 2: the axes before ``axis`` as one, the others as one."""
    position = axis if axis >= 0 else axis + x.ndim
    return x.reshape(prod(x.shape[:position]), prod(x.shape[position:]))


def _shape_type(x: TensorType, output_dtype: str = "int32") -> TensorType:
    return TensorType(output_dtype, (x.rank,))


@op(
    "shape",
    "x:A output_dtype:str='int32'@17",
    infer=_shape_type,
    output_dtype=sorted(NUMBERS),
    dynamic=True,
    derivative="extents are integers that no element changes",
)
def shape_of(x: np.ndarray, output_dtype: str) -> np.ndarray:
    """The extents, as a vector."""
    return np.array(x.shape, eval_dtype(output_dtype))


def _reverse_type(x: TensorType, axes: Any) -> TensorType:
    axes_of(axes, x.rank)
    return x


@op(
    "reverse",
    "x:A axes:ints?",
    infer=_reverse_type,
    dynamic=True,
    traits=REARRANGES,
    derivative=lambda d: d.grad.reverse(axes=d.axes),
)
def reverse(x: np.ndarray, axes: Any) -> np.ndarray:
    """Turn these axes around, or all of them."""
    return np.flip(x, axes_of(axes, x.ndim))


def _divided(extent: int, factor: int, what: str) -> int:
    if factor < 1 or extent % factor:
        raise GraphError(f"{what} {extent} is no multiple of {factor}")
    return extent // factor


def _deepen(x: TensorType, **block: int) -> TensorType:
    rank_between(x, 4, 4)
    n, c, h, w = x.shape
    (factor,) = block.values()
    positive((factor,), "the factor")
    return x.with_shape((n, c * factor * factor, _divided(h, factor, "height"), _divided(w, factor, "width")))


def _spread(x: TensorType, **block: int) -> TensorType:
    rank_between(x, 4, 4)
    n, c, h, w = x.shape
    (factor,) = block.values()
    positive((factor,), "the factor")
    return x.with_shape((n, _divided(c, factor * factor, "channel count"), h * factor, w * factor))


@op(
    "space_to_depth",
    "x:A block_size:int",
    infer=_deepen,
    traits=REARRANGES,
    derivative=lambda d: d.grad.depth_to_space(block_size=d.block_size),
)
def space_to_depth(x: np.ndarray, block_size: int) -> np.ndarray:
    """Blocks of pixels become channels: depth index (by b + bx) C + c."""
    n, c, h, w = x.shape
    b = block_size
    return x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * b * b, h // b, w // b)


@op(
    "depth_to_space",
    "x:A block_size:int",
    infer=_spread,
    traits=REARRANGES,
    derivative=lambda d: d.grad.space_to_depth(block_size=d.block_size),
)
def depth_to_space(x: np.ndarray, block_size: int) -> np.ndarray:
    """The inverse of ``space_to_depth``."""
    n, c, h, w = x.shape
    b = block_size
    return x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // (b * b), h * b, w * b)


@op(
    "pixel_shuffle",
    "x:A upscale_factor:int",
    infer=_spread,
    traits=REARRANGES,
    derivative=lambda d: d.grad.pixel_unshuffle(downscale_factor=d.upscale_factor),
)
def pixel_shuffle(x: np.ndarray, upscale_factor: int) -> np.ndarray:
    """Channels become blocks of pixels: depth index c f f + fy f + fx, as in PyTorch."""
    n, c, h, w = x.shape
    f = upscale_factor
    return x.reshape(n, c // (f * f), f, f, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // (f * f), h * f, w * f)


@op(
    "pixel_unshuffle",
    "x:A downscale_factor:uint",
    infer=_deepen,
    since=16,
    traits=REARRANGES,
    derivative=lambda d: d.grad.pixel_shuffle(upscale_factor=d.downscale_factor),
)
def pixel_unshuffle(x: np.ndarray, downscale_factor: int) -> np.ndarray:
    """The inverse of ``pixel_shuffle``."""
    n, c, h, w = x.shape
    f = downscale_factor
    return x.reshape(n, c, h // f, f, w // f, f).transpose(0, 1, 3, 5, 2, 4).reshape(n, c * f * f, h // f, w // f)


def _pairs(values: Any, blocks: Any, what: str) -> list[tuple[int, int]]:
    if len(values) != 2 * len(blocks) or any(value < 0 for value in values):
        raise GraphError(f"{what} {tuple(values)} must be {2 * len(blocks)} numbers from 0 on")
    return [(values[2 * i], values[2 * i + 1]) for i in range(len(blocks))]


def _to_batch_type(x: TensorType, block_shape: Any, paddings: Any) -> TensorType:
    rank_between(x, len(block_shape) + 2, len(block_shape) + 2)
    positive(block_shape, "block_shape")
    extents = [
        _divided(n + before + after, b, "padded extent")
        for n, b, (before, after) in zip(x.shape[2:], block_shape, _pairs(paddings, block_shape, "paddings"))
    ]
    return x.with_shape((x.shape[0] * prod(block_shape), x.shape[1], *extents))


@op(
    "space_to_batch",
    "x:A block_shape:ints paddings:ints",
    infer=_to_batch_type,
    derivative=lambda d: d.grad.batch_to_space(block_shape=d.block_shape, crops=d.paddings),
)
def space_to_batch(x: np.ndarray, block_shape: Any, paddings: Any) -> np.ndarray:
    """Pad, then blocks of pixels become batch entries: batch index (by b + bx) N + n."""
    rank = len(block_shape)
    x = np.pad(x, [(0, 0), (0, 0), *_pairs(paddings, block_shape, "paddings")])
    n, c, *extents = x.shape
    split = [part for extent, b in zip(extents, block_shape) for part in (extent // b, b)]
    x = x.reshape(n, c, *split)
    order = [3 + 2 * i for i in range(rank)] + [0, 1] + [2 + 2 * i for i in range(rank)]
    return x.transpose(order).reshape(n * prod(block_shape), c, *(e // b for e, b in zip(extents, block_shape)))


def _from_batch_type(x: TensorType, block_shape: Any, crops: Any) -> TensorType:
    rank_between(x, len(block_shape) + 2, len(block_shape) + 2)
    positive(block_shape, "block_shape")
    batch = _divided(x.shape[0], prod(block_shape), "batch")
    extents = [
        n * b - before - after
        for n, b, (before, after) in zip(x.shape[2:], block_shape, _pairs(crops, block_shape, "crops"))
    ]
    return x.with_shape((batch, x.shape[1], *extents))


@op(
    "batch_to_space",
    "x:A block_shape:ints crops:ints",
    infer=_from_batch_type,
    derivative=lambda d: d.grad.space_to_batch(block_shape=d.block_shape, paddings=d.crops),
)
def batch_to_space(x: np.ndarray, block_shape: Any, crops: Any) -> np.ndarray:
    """The inverse of ``space_to_batch``, then cropped."""
    rank = len(block_shape)
    n, c, *extents = x.shape
    n //= prod(block_shape)
    x = x.reshape(*block_shape, n, c, *extents)
    order = [rank, rank + 1] + [axis for i in range(rank) for axis in (rank + 2 + i, i)]
    x = x.transpose(order).reshape(n, c, *(e * b for e, b in zip(extents, block_shape)))
    pairs = _pairs(crops, block_shape, "crops")
    return x[(slice(None), slice(None), *(slice(a, e - b) for (a, b), e in zip(pairs, x.shape[2:])))]


def _windows_type(x: TensorType, axis: int, size: int, stride: int) -> TensorType:
    where = axis_of(axis, x.rank)
    positive((size, stride), "size and stride")
    if size > x.shape[where]:
        raise GraphError(f"a window of {size} does not fit into {x.shape[where]}")
    count = (x.shape[where] - size) // stride + 1
    return x.with_shape((*x.shape[:where], count, size, *x.shape[where + 1 :]))


def _windows_gradient(d: Derivation) -> Formula:
    """A matrix that adds what the windows hold of each element."""
    axis = axis_of(d.axis, d.x.rank)
    extent, count = d.x.shape[axis], d.out.shape[axis]
    index = np.arange(count)[:, None] * d.stride + np.arange(d.size)
    together = d.grad.shaped((*d.x.shape[:axis], count * d.size, *d.x.shape[axis + 1 :]))
    return through_matrix(d, together, axis, np.arange(extent)[:, None] == index.reshape(1, -1))


@op("sliding_windows", "x:A axis:int size:int stride:int=1", infer=_windows_type, derivative=_windows_gradient)
def sliding_windows(x: np.ndarray, axis: int, size: int, stride: int) -> np.ndarray:
    """All windows along an axis; a new axis after it runs inside the window."""
    where = axis % x.ndim
    view = np.lib.stride_tricks.sliding_window_view(x, size, axis=where)
    picked = view[(slice(None),) * where + (slice(None, None, stride),)]
    return np.moveaxis(picked, -1, where + 1)
