"""Pooling windows in one to three dimensions (docs/reference/mil.md 5.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._gradients import joined, tap
from hexane.graph.ops._rules import along, per_axis, positive, rank_between
from hexane.graph.ops.conv import PAD_TYPES, image_gradient, pad_spatial, window_pads
from hexane.graph.registry import op
from hexane.graph.traits import POOLS
from hexane.graph.types import TensorType
from hexane.rounding import ceil_div

if TYPE_CHECKING:
    from hexane.graph.formulas import Formula
    from hexane.graph.gradient import Derivation
    from hexane.graph.ir import Op


PoolGeometry = tuple[tuple[int, ...], list[tuple[int, int]], list[tuple[int, int]], tuple[int, ...]]
"""Strides, pads as asked for, pads that the last windows reach, and output extents."""


def pool_geometry(
    x: Sequence[int], kernel_sizes: Sequence[int], strides: Any, pad_type: str, pad: Any, ceil_mode: bool
) -> PoolGeometry:
    """Strides, pads as asked for, pads that the last windows reach, and output extents.

    With ``ceil_mode`` a last window that would begin in the padding after the input is left out.
    """
    rank = len(x) - 2
    per_axis(kernel_sizes, rank, 1, "kernel_sizes")
    steps = per_axis(strides, rank, 1, "strides")
    positive(kernel_sizes, "kernel_sizes")
    positive(steps, "strides")
    pads = window_pads(pad_type, pad, x[2:], kernel_sizes, steps, (1,) * rank)
    reach, out = [], []
    for extent, k, stride, (before, after) in zip(x[2:], kernel_sizes, steps, pads):
        room = extent + before + after - k
        if min(before, after) < 0:
            raise GraphError("pads of a pool must not be negative")
        if room < 0 and not (ceil_mode and room > -stride):
            raise GraphError(f"a window of {k} does not fit into {extent + before + after}")
        count = (ceil_div(room, stride) if ceil_mode else room // stride) + 1
        if ceil_mode and (count - 1) * stride >= extent + before and (before > 0 or after > 0):
            count -= 1
        if count < 1:
            raise GraphError(f"a window of {k} does not fit into {extent + before + after}")
        out.append(count)
        needed = (count - 1) * stride + k - extent - before
        reach.append((before, min(max(needed, after), needed + stride - 1)))  # no room for a window that is left out
    return steps, pads, reach, tuple(out)


def pool_geometry_of(op: Op) -> PoolGeometry:
    """``pool_geometry`` of a pool, by its arguments."""
    return pool_geometry(op.inputs["x"].shape, **{name: op.arg(name) for name in _WINDOW})


_WINDOW = ("kernel_sizes", "strides", "pad_type", "pad", "ceil_mode")


def pool_type(x: TensorType, kernel_sizes: Any, strides: Any, pad_type: str, pad: Any, ceil_mode: bool) -> TensorType:
    rank_between(x, 3, 5)
    out = pool_geometry(x.shape, kernel_sizes, strides, pad_type, pad, ceil_mode)[3]
    return x.with_shape((*x.shape[:2], *out))


def fold_windows(
    x: np.ndarray, kernel: Sequence[int], steps: Sequence[int], out: Sequence[int], combine: Any
) -> np.ndarray:
    """Combine the elements of every window, one axis after the other (the operation is separable)."""
    for axis, (k, stride, count) in enumerate(zip(kernel, steps, out), start=2):
        lead = (slice(None),) * axis
        total = x[(*lead, slice(0, (count - 1) * stride + 1, stride))].copy()
        for offset in range(1, k):
            combine(total, x[(*lead, slice(offset, offset + (count - 1) * stride + 1, stride))], out=total)
        x = total
    return x


_POOL = "x:T kernel_sizes:ints strides:ints? pad_type:str pad:ints? ceil_mode:bool=False"


def _back_to_image(d: Derivation, grad: Formula, kernel: np.ndarray, pads: Any) -> Formula:
    """Gradient through windows, ``grad`` [N, C, *out]: by a kernel [T, 1, *K] that serves every T channels."""
    steps, _, _, out = pool_geometry_of(d.operation)
    groups = grad.shape[1] // kernel.shape[0]
    weight = d.constant(np.tile(kernel, (groups, *(1,) * (kernel.ndim - 1))), grad)
    geometry = (steps, (1,) * len(out), pads, out)
    return image_gradient(grad, weight, d.x.shape[2:], geometry, groups)


def _max_gradient(d: Derivation) -> Formula:
    """All to the first of the largest of each window: the places of a window are channels, counted up to each."""
    steps, _, reach, out = pool_geometry_of(d.operation)
    n, c = d.x.shape[:2]
    kernel = tuple(d.kernel_sizes)
    image = d.x.shaped((n * c, 1, *d.x.shape[2:])).padded([(0, 0), (0, 0), *reach])
    inside = np.pad(np.ones((1, 1, *d.x.shape[2:])), [(0, 0), (0, 0), *reach])
    ones = (1,) * len(out)
    places = list(np.ndindex(*kernel))
    largest = joined([tap(image, place, steps, ones, out) for place in places], 1)
    largest = largest.where("equal", d.out.shaped((n * c, 1, *out)))
    if not inside.all():
        meets = [inside[_places(place, steps, out)] for place in places]
        largest = largest * d.constant(np.concatenate(meets, 1), largest)
    before = np.tril(np.ones((len(places), len(places))), -1)
    earlier = largest.conv(weight=d.constant(before.reshape(*before.shape, *ones), largest))
    first = largest * earlier.where("less", 0.5)
    weight = np.eye(len(places)).reshape(len(places), 1, *kernel)
    shares = first * d.grad.shaped((n * c, 1, *out))
    return _back_to_image(d, shares, weight, reach).shaped(d.x.shape)


def _places(place: Sequence[int], steps: Sequence[int], out: Sequence[int]) -> tuple[Any, ...]:
    return (..., *(slice(p, p + (n - 1) * s + 1, s) for p, s, n in zip(place, steps, out)))


def _average_gradient(d: Derivation) -> Formula:
    geometry, grad = pool_geometry_of(d.operation), d.grad
    counts = window_counts(d.x.shape, d.kernel_sizes, geometry, d.exclude_padding_from_average)
    for axis, numbers in enumerate(counts, start=2):
        grad = grad * d.constant(along(1 / numbers, grad.rank, axis), grad)
    return _back_to_image(d, grad, np.ones((1, 1, *d.kernel_sizes)), geometry[2])


def _square_gradient(d: Derivation) -> Formula:
    grad = d.grad / (d.out + d.out.where("equal", 0.0))
    return d.x * _back_to_image(d, grad, np.ones((1, 1, *d.kernel_sizes)), pool_geometry_of(d.operation)[2])


@op("max_pool", _POOL, infer=pool_type, pad_type=PAD_TYPES, traits=POOLS, derivative=_max_gradient)
def max_pool(x: np.ndarray, kernel_sizes: Any, **window: Any) -> np.ndarray:
    """The largest element of each window; padding never wins."""
    steps, _, reach, out = pool_geometry(x.shape, kernel_sizes, **window)
    return fold_windows(pad_spatial(x, reach, -np.inf), kernel_sizes, steps, out, np.maximum)


def window_counts(
    x: Sequence[int], kernel_sizes: Sequence[int], geometry: PoolGeometry, exclude_padding: bool
) -> list[np.ndarray]:
    """Number of elements that the mean of each window counts, axis by axis."""
    steps, pads, _, out = geometry
    counts = []
    for extent, k, stride, count, (before, after) in zip(x[2:], kernel_sizes, steps, out, pads):
        low, high = (before, before + extent) if exclude_padding else (0, before + extent + after)
        starts = np.arange(count) * stride
        counts.append(np.maximum(np.minimum(starts + k, high) - np.maximum(starts, low), 1))
    return counts


@op(
    "avg_pool",
    _POOL + " exclude_padding_from_average:bool=False",
    infer=pool_type,
    pad_type=PAD_TYPES,
    traits=POOLS,
    derivative=_average_gradient,
)
def avg_pool(x: np.ndarray, kernel_sizes: Any, exclude_padding_from_average: bool, **window: Any) -> np.ndarray:
    """The mean of each window; padding counts as zeros, or not at all. What ``ceil_mode`` adds beyond never counts."""
    geometry = pool_geometry(x.shape, kernel_sizes, **window)
    steps, _, reach, out = geometry
    total = fold_windows(pad_spatial(x, reach), kernel_sizes, steps, out, np.add)
    counts = window_counts(x.shape, kernel_sizes, geometry, exclude_padding_from_average)
    for axis, numbers in enumerate(counts, start=2):
        total /= along(numbers.astype(x.dtype), x.ndim, axis)
    return total


@op("l2_pool", _POOL, infer=pool_type, pad_type=PAD_TYPES, traits=POOLS, derivative=_square_gradient)
def l2_pool(x: np.ndarray, kernel_sizes: Any, **window: Any) -> np.ndarray:
    """The square root of the sum of squares of each window."""
    steps, _, reach, out = pool_geometry(x.shape, kernel_sizes, **window)
    return np.sqrt(fold_windows(np.square(pad_spatial(x, reach)), kernel_sizes, steps, out, np.add))
