"""Cutting a rectangle out of a tensor (docs/reference/mil.md 5.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._rules import rank_between
from hexane.graph.registry import UNKNOWN, op
from hexane.graph.traits import PICKS
from hexane.graph.types import TensorType

if TYPE_CHECKING:
    from hexane.graph.formulas import Formula
    from hexane.graph.gradient import Derivation
    from hexane.graph.ir import Op


def slices_of(
    shape: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
    stride: Any,
    begin_mask: Any,
    end_mask: Any,
    squeeze_mask: Any,
) -> tuple[Any, ...]:
    """The NumPy index of a ``slice_by_index``: an int where the axis is squeezed away, else a slice."""
    rank = len(shape)
    for values, what in (
        (begin, "begin"),
        (end, "end"),
        (stride, "stride"),
        (begin_mask, "begin_mask"),
        (end_mask, "end_mask"),
        (squeeze_mask, "squeeze_mask"),
    ):
        if values is not None and len(values) != rank:
            raise GraphError(f"{what} has {len(values)} entries for rank {rank}")
    index: list[Any] = []
    for axis, extent in enumerate(shape):
        step = 1 if stride is None else stride[axis]
        if step == 0:
            raise GraphError(f"stride 0 on axis {axis}")
        first = None if begin_mask is not None and begin_mask[axis] else begin[axis]
        last = None if end_mask is not None and end_mask[axis] else end[axis]
        if squeeze_mask is not None and squeeze_mask[axis]:
            where = 0 if first is None else first
            if not -extent <= where < extent:
                raise GraphError(f"index {where} on axis {axis} of extent {extent}")
            index.append(where)
        else:
            index.append(slice(first, last, step))
    return tuple(index)


def sliced_shape(shape: Sequence[int], index: Sequence[Any]) -> tuple[int, ...]:
    return tuple(len(range(*part.indices(extent))) for extent, part in zip(shape, index) if isinstance(part, slice))


def _by_index_type(x: TensorType, begin: Any, end: Any, **rest: Any) -> TensorType:
    if begin is UNKNOWN or end is UNKNOWN:
        squeezed = rest["squeeze_mask"] or (False,) * x.rank
        begin_open, end_open = rest["begin_mask"] or (False,) * x.rank, rest["end_mask"] or (False,) * x.rank
        step = rest["stride"] or (1,) * x.rank
        shape: list[Any] = []
        for axis, extent in enumerate(x.shape):
            if squeezed[axis]:
                continue
            bounds = ("open" if begin_open[axis] else begin, "open" if end_open[axis] else end)
            if UNKNOWN in bounds:
                shape.append(None)
            else:
                first = None if bounds[0] == "open" else begin[axis]
                last = None if bounds[1] == "open" else end[axis]
                shape.append(len(range(*slice(first, last, step[axis]).indices(extent))))
        return x.with_shape(shape)
    return x.with_shape(sliced_shape(x.shape, slices_of(x.shape, begin, end, **rest)))


def places_of(op: Op) -> list[range]:
    """Elements along each axis that a ``slice_by_size`` or ``slice_by_index`` of constant bounds takes."""
    shape = op.inputs["x"].shape
    if op.type == "slice_by_size":
        index: tuple[Any, ...] = _by_size(shape, op.arg("begin"), op.arg("size"))
    else:
        index = slices_of(shape, *(op.arg(name) for name in _BOUNDS))
    return [
        range(n)[part] if isinstance(part, slice) else range(n)[part : part % n + 1] for n, part in zip(shape, index)
    ]


_BOUNDS = ("begin", "end", "stride", "begin_mask", "end_mask", "squeeze_mask")
_INDEX = "begin:ints~ end:ints~ stride:ints? begin_mask:bools? end_mask:bools? squeeze_mask:bools?"


def _bounds(d: Derivation) -> tuple[Any, ...]:
    """The NumPy index of a slice whose bounds are constants."""
    bounds = {name: getattr(d, name) for name in _BOUNDS}
    if UNKNOWN in (bounds["begin"], bounds["end"]):
        raise d.refuse("the bounds are computed at run time, and only constant ones have a derivative")
    return slices_of(d.x.shape, **bounds)


def into(grad: Formula, shape: Sequence[int], index: Sequence[Any]) -> Formula:
    """A tensor of zeros of a shape with ``grad`` at the place of a NumPy index of ints and slices."""
    ranges = [
        range(n)[part] if isinstance(part, slice) else range(part % n, part % n + 1) for n, part in zip(shape, index)
    ]
    grad = grad.shaped([len(places) for places in ranges])
    if backwards := [axis for axis, places in enumerate(ranges) if places.step < 0 and len(places) > 1]:
        grad = grad.reverse(axes=backwards)
    widths = []
    for axis, (extent, places) in enumerate(zip(shape, ranges)):
        first, step, count = min(places, default=0), abs(places.step), len(places)
        if step > 1 and count > 1:
            grad, count = grad.apart(axis, step), count * step
        widths.append((first, extent - first - count))
    return grad.padded(widths)


@op(
    "slice_by_index",
    f"x:A {_INDEX}",
    infer=_by_index_type,
    traits=PICKS,
    derivative=lambda d: into(d.grad, d.x.shape, _bounds(d)),
)
def slice_by_index(x: np.ndarray, **index: Any) -> np.ndarray:
    """From begin up to, not including, end; negatives count from the end; masks ignore a bound or drop an axis."""
    return x[slices_of(x.shape, **index)]


def _by_size(shape: Sequence[int], begin: Sequence[int], size: Sequence[int]) -> tuple[slice, ...]:
    if len(begin) != len(shape) or len(size) != len(shape):
        raise GraphError(f"begin and size have {len(begin)} and {len(size)} entries for rank {len(shape)}")
    index = []
    for extent, first, count in zip(shape, begin, size):
        start = first + extent if first < 0 else first
        stop = extent if count == -1 else start + count
        if not 0 <= start <= stop <= extent:
            raise GraphError(f"{count} elements from {first} on do not lie within an extent of {extent}")
        index.append(slice(start, stop))
    return tuple(index)


def _by_size_type(x: TensorType, begin: Any, size: Any) -> TensorType:
    if size is UNKNOWN:
        raise GraphError("size must be a constant")
    if begin is UNKNOWN:
        if len(size) != x.rank:
            raise GraphError(f"size has {len(size)} entries for rank {x.rank}")
        return x.with_shape(None if count == -1 else count for count in size)
    return x.with_shape(part.stop - part.start for part in _by_size(x.shape, begin, size))


def _size_gradient(d: Derivation) -> Formula:
    if d.begin is UNKNOWN:
        raise d.refuse("begin is computed at run time, and only a constant one has a derivative")
    return into(d.grad, d.x.shape, _by_size(d.x.shape, d.begin, d.size))


@op("slice_by_size", "x:A begin:ints~ size:ints~", infer=_by_size_type, traits=PICKS, derivative=_size_gradient)
def slice_by_size(x: np.ndarray, begin: Any, size: Any) -> np.ndarray:
    """``size`` elements from ``begin`` on; -1 takes the rest."""
    return x[_by_size(x.shape, begin, size)]


def _update_type(x: TensorType, update: TensorType, begin: Any, end: Any, **rest: Any) -> TensorType:
    if begin is not UNKNOWN and end is not UNKNOWN:
        hole = sliced_shape(x.shape, slices_of(x.shape, begin, end, **rest))
        if hole != update.shape:
            raise GraphError(f"update has shape {update.shape}, the slice {hole}")
    return x


def _kept_gradient(d: Derivation) -> Formula:
    """Zeros at the place of the slice."""
    index, ones = _bounds(d), np.ones(d.x.shape)
    ones[index] = 0
    return d.grad * d.constant(ones, d.grad)


def _update_gradient(d: Derivation) -> Formula:
    _bounds(d)
    names = ("begin", "end", "stride", "begin_mask", "end_mask", "squeeze_mask")
    return d.grad.slice_by_index(**{name: getattr(d, name) for name in names})


@op(
    "slice_update",
    f"x:A update:A {_INDEX}",
    infer=_update_type,
    since=18,
    derivative={"x": _kept_gradient, "update": _update_gradient},
)
def slice_update(x: np.ndarray, update: np.ndarray, **index: Any) -> np.ndarray:
    """x with a slice replaced."""
    result = x.copy()
    result[slices_of(x.shape, **index)] = update
    return result


def _crop_type(x: TensorType, crop_height: Any, crop_width: Any) -> TensorType:
    rank_between(x, 3, 5)
    if len(crop_height) != 2 or len(crop_width) != 2 or min(*crop_height, *crop_width) < 0:
        raise GraphError("crop_height and crop_width are two numbers from 0 on each")
    height, width = x.shape[-2] - sum(crop_height), x.shape[-1] - sum(crop_width)
    if height < 1 or width < 1:
        raise GraphError(f"cropping {crop_height} and {crop_width} leaves nothing of {x.shape}")
    return x.with_shape((*x.shape[:-2], height, width))


@op(
    "crop",
    "x:A crop_height:ints crop_width:ints",
    infer=_crop_type,
    traits=PICKS,
    derivative=lambda d: d.grad.padded([(0, 0)] * (d.x.rank - 2) + [tuple(d.crop_height), tuple(d.crop_width)]),
)
def crop(x: np.ndarray, crop_height: Any, crop_width: Any) -> np.ndarray:
    """Take rows and columns off the borders: (top, bottom) and (left, right)."""
    return x[..., crop_height[0] : x.shape[-2] - crop_height[1], crop_width[0] : x.shape[-1] - crop_width[1]]
