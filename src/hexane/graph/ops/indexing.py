"""Gather and scatter (docs/reference/mil.md 5.7). Negative indices count from the end; an index outside is an error."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._gradients import joined, through_matrix
from hexane.graph.ops._rules import along, axis_of
from hexane.graph.registry import op
from hexane.graph.traits import GATHERS
from hexane.graph.types import TensorType

if TYPE_CHECKING:
    from hexane.graph.formulas import Formula
    from hexane.graph.gradient import Derivation


def checked_indices(indices: np.ndarray, extent: Any) -> np.ndarray:
    """Indices from 0 on, of an axis (or of several, by the last axis); GraphError outside."""
    where = indices.astype(np.int64)
    limits = np.asarray(extent, np.int64)
    if where.size and (np.any(where < -limits) or np.any(where >= limits)):
        raise GraphError(f"an index lies outside {extent}")
    return np.where(where < 0, where + limits, where)


def _gather_type(x: TensorType, indices: TensorType, axis: int, batch_dims: int) -> TensorType:
    where = axis_of(axis, x.rank)
    if not 0 <= batch_dims <= min(where, indices.rank):
        raise GraphError(f"batch_dims {batch_dims} with axis {axis} and indices of rank {indices.rank}")
    if x.shape[:batch_dims] != indices.shape[:batch_dims]:
        raise GraphError(f"batch axes of {x.shape} and {indices.shape} differ")
    return x.with_shape((*x.shape[:where], *indices.shape[batch_dims:], *x.shape[where + 1 :]))


MOST_CHOICES = 1 << 22
"""Elements of the matrix of ones that adds the gradients of constant indices; larger ones are scattered."""


def _gather_gradient(d: Derivation) -> Formula:
    """To each slice what was taken of it: constant indices by a matrix, which the engine multiplies."""
    axis, batch, x = axis_of(d.axis, d.x.rank), d.batch_dims, d.x
    extent, index = x.shape[axis], d.indices
    constant = index.value.constant
    if batch:
        return _batched_gradient(d, axis)
    if constant is not None and extent * constant.array.size <= MOST_CHOICES:
        places = checked_indices(constant.array, extent).reshape(-1)
        grad = d.grad.shaped((*x.shape[:axis], len(places), *x.shape[axis + 1 :]))
        return through_matrix(d, grad, axis, np.arange(extent)[:, None] == places)
    return d.grad.zeros(x.shape).scatter(indices=index, updates=d.grad, axis=axis, mode="add")


def _batched_gradient(d: Derivation, axis: int) -> Formula:
    """Batches as parts of one axis: every index counts from where its batch begins."""
    x, index, batch = d.x, d.indices, d.batch_dims
    lead, extent, count = prod(x.shape[:batch]), x.shape[axis], prod(index.shape[batch:])
    between, after = prod(x.shape[batch:axis]), prod(x.shape[axis + 1 :])
    starts = np.arange(lead).reshape(-1, 1) * extent
    flat = index.shaped((lead, count)).cast(dtype="int32")
    places = flat + flat.where("less", 0) * extent + d.constant(starts, flat)
    rows = d.grad.shaped((lead, between, count, after)).ordered(0, 2, 1, 3).shaped((lead * count, between, after))
    zeros = d.grad.zeros((lead * extent, between, after))
    total = zeros.scatter(indices=places.shaped((lead * count,)), updates=rows, axis=0, mode="add")
    return total.shaped((lead, extent, between, after)).ordered(0, 2, 1, 3).shaped(x.shape)


@op(
    "gather",
    "x:A indices:I axis:int=0 batch_dims:int=0@16 validate_indices:bool=False@17",
    infer=_gather_type,
    traits=GATHERS,
    dynamic=True,
    derivative=_gather_gradient,
)
def gather(x: np.ndarray, indices: np.ndarray, axis: int, batch_dims: int) -> np.ndarray:
    """Slices of an axis, by index; ``batch_dims`` leading axes go together."""
    where = axis % x.ndim
    index = checked_indices(indices, x.shape[where])
    if not batch_dims:
        return x.take(index, where)
    batch = int(np.prod(x.shape[:batch_dims]))
    flat = x.reshape(batch, *x.shape[batch_dims:])
    selection = index.reshape(batch, *index.shape[batch_dims:])
    inner = where - batch_dims
    rows = [flat[b].take(selection[b], inner) for b in range(batch)]
    shape = (*x.shape[:where], *index.shape[batch_dims:], *x.shape[where + 1 :])
    return np.stack(rows).reshape(shape) if rows else np.zeros(shape, x.dtype)


def _along_type(x: TensorType, indices: TensorType, axis: int) -> TensorType:
    where = axis_of(axis, x.rank)
    if indices.rank != x.rank or any(i != n for a, (i, n) in enumerate(zip(indices.shape, x.shape)) if a != where):
        raise GraphError(f"x {x.shape} and indices {indices.shape} may differ on axis {axis} only")
    return x.with_shape(indices.shape)


@op(
    "gather_along_axis",
    "x:A indices:I axis:int=0 validate_indices:bool=False@17",
    infer=_along_type,
    traits=GATHERS,
    derivative=lambda d: d.grad.zeros(d.x.shape).scatter_along_axis(
        indices=d.indices, updates=d.grad, axis=d.axis, mode="add"
    ),
)
def gather_along_axis(x: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    """One element of the axis for each index."""
    return np.take_along_axis(x, checked_indices(indices, x.shape[axis]), axis)


def _nd_type(x: TensorType, indices: TensorType, batch_dims: int) -> TensorType:
    if not 0 <= batch_dims < max(indices.rank, 1) or indices.rank < 1:
        raise GraphError(f"batch_dims {batch_dims} with indices of rank {indices.rank}")
    depth = indices.shape[-1]
    if depth is None or batch_dims + depth > x.rank or x.shape[:batch_dims] != indices.shape[:batch_dims]:
        raise GraphError(f"x {x.shape} and indices {indices.shape} do not go together")
    return x.with_shape((*indices.shape[:-1], *x.shape[batch_dims + depth :]))


def _nd_gradient(d: Derivation) -> Formula:
    """Scattered; batches as one more number in front of each index vector."""
    index, batch = d.indices, d.batch_dims
    if batch:
        index = index.cast(dtype="int32")
        numbers = np.indices(index.shape[:-1])[:batch]
        lead = tuple(d.constant(number[..., None], index) for number in numbers)
        index = joined([*lead, index], index.rank - 1)
    return d.grad.zeros(d.x.shape).scatter_nd(indices=index, updates=d.grad, mode="add")


@op(
    "gather_nd",
    "x:A indices:I batch_dims:int=0@16 validate_indices:bool=False@17",
    infer=_nd_type,
    traits=GATHERS,
    dynamic=True,
    derivative=_nd_gradient,
)
def gather_nd(x: np.ndarray, indices: np.ndarray, batch_dims: int) -> np.ndarray:
    """Slices of the leading axes, by index vectors along the last axis of ``indices``."""
    depth = indices.shape[-1]
    index = checked_indices(indices, np.array(x.shape[batch_dims : batch_dims + depth], np.int64))
    lead = [along(np.arange(x.shape[axis]), index.ndim - 1, axis) for axis in range(batch_dims)]
    return (
        x[(*lead, *np.moveaxis(index, -1, 0))]
        if batch_dims + depth
        else np.broadcast_to(x, (*index.shape[:-1], *x.shape)).copy()
    )


_UPDATES: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}
_MODES = ("update", *_UPDATES)


def _apply(target: np.ndarray, index: Any, updates: np.ndarray, mode: str) -> None:
    if mode == "update":
        target[index] = updates
    elif mode == "div" and target.dtype.kind in "iu":
        np.floor_divide.at(target, index, updates)
    else:
        _UPDATES[mode].at(target, index, updates)


def _scatter_type(data: TensorType, indices: TensorType, updates: TensorType, axis: int) -> TensorType:
    where = axis_of(axis, data.rank)
    expected = (*data.shape[:where], *indices.shape, *data.shape[where + 1 :])
    if updates.shape != expected:
        raise GraphError(f"updates has shape {updates.shape}, {expected} is needed")
    return data


_SCATTER = "data:A indices:I updates:A axis:int=0 mode:str='add' validate_indices:bool=False@17"


def _scattered(name: str, gather: str) -> dict[str, Any]:
    """The derivatives of an op that scatters; of a repeated index in the mode ``update``, the last alone counts."""
    places = ("axis",) if gather != "gather_nd" else ()

    def parameters(d: Derivation) -> dict[str, Any]:
        if d.mode not in ("add", "sub", "update"):
            raise d.refuse(f"the mode {d.mode!r} has no derivative; add, sub and update have")
        return {"indices": d.indices, **{place: getattr(d, place) for place in places}}

    def of_data(d: Derivation) -> Formula:
        where = parameters(d)
        if d.mode != "update":
            return d.grad
        updates = d.grad.zeros(d.updates.shape)
        return d.grad.op(name, data=d.grad, updates=updates, mode="update", **where)

    def of_updates(d: Derivation) -> Formula:
        where = parameters(d)
        if d.mode == "update":
            count = prod(d.updates.shape)
            numbers = d.constant(np.arange(1, count + 1).reshape(d.updates.shape), d.grad.cast(dtype="int32"))
            zeros = numbers.zeros(d.data.shape)
            last = zeros.op(name, data=zeros, updates=numbers, mode="update", **where)
            counts = numbers.where("equal", zeros.op(gather, x=last, **where)).cast(dtype=d.grad.dtype)
            return d.grad.op(gather, x=d.grad, **where) * counts
        grad = d.grad.op(gather, x=d.grad, **where)
        return -grad if d.mode == "sub" else grad

    return {"data": of_data, "updates": of_updates}


@op("scatter", _SCATTER, infer=_scatter_type, mode=_MODES, derivative=_scattered("scatter", "gather"))
def scatter(data: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int, mode: str) -> np.ndarray:
    """Slices of an axis changed by updates, repeated indices one after the other."""
    where = axis % data.ndim
    result = data.copy()
    lead = (slice(None),) * where
    _apply(result, (*lead, checked_indices(indices, data.shape[where])), updates, mode)
    return result


def _scatter_along_type(data: TensorType, indices: TensorType, updates: TensorType, axis: int) -> TensorType:
    where = axis_of(axis, data.rank)
    if indices.shape != updates.shape or indices.rank != data.rank:
        raise GraphError(
            f"indices {indices.shape} and updates {updates.shape} must have one shape, of rank {data.rank}"
        )
    if any(i > n for a, (i, n) in enumerate(zip(indices.shape, data.shape)) if a != where):
        raise GraphError(f"indices {indices.shape} reach outside data {data.shape}")
    return data


@op(
    "scatter_along_axis",
    _SCATTER,
    infer=_scatter_along_type,
    mode=_MODES,
    derivative=_scattered("scatter_along_axis", "gather_along_axis"),
)
def scatter_along_axis(data: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int, mode: str) -> np.ndarray:
    """One element of the axis changed for each index."""
    where = axis % data.ndim
    result = data.copy()
    index: list[Any] = list(np.indices(indices.shape, sparse=True))
    index[where] = checked_indices(indices, data.shape[where])
    _apply(result, tuple(index), updates, mode)
    return result


def _scatter_nd_type(data: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
    if indices.rank < 1 or indices.shape[-1] > data.rank:
        raise GraphError(f"data {data.shape} and indices {indices.shape} do not go together")
    expected = (*indices.shape[:-1], *data.shape[indices.shape[-1] :])
    if updates.shape != expected:
        raise GraphError(f"updates has shape {updates.shape}, {expected} is needed")
    return data


@op(
    "scatter_nd",
    "data:A indices:I updates:A mode:str='add' validate_indices:bool=False@17",
    infer=_scatter_nd_type,
    derivative=_scattered("scatter_nd", "gather_nd"),
    mode=_MODES,
)
def scatter_nd(data: np.ndarray, indices: np.ndarray, updates: np.ndarray, mode: str) -> np.ndarray:
    """Slices of the leading axes changed, by index vectors."""
    depth = indices.shape[-1]
    result = data.copy()
    index = checked_indices(indices, np.array(data.shape[:depth], np.int64))
    _apply(result, tuple(np.moveaxis(index, -1, 0)) if depth else Ellipsis, updates, mode)
    return result
