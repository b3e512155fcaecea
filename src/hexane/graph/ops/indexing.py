"""Gather and scatter (docs/reference/mil.md 5.7). Negative indices count from the end; an index outside is an error."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._rules import axis_of, one_of
from hexane.graph.registry import op
from hexane.graph.types import TensorType


def checked_indices(indices: np.ndarray, extent: Any) -> np.ndarray:
    """Indices from 0 on, of an axis (or of several, by the last axis); GraphError outside."""
    where = indices.astype(np.int64)
    limits = np.asarray(extent, np.int64)
    if where.size and (np.any(where < -limits) or np.any(where >= limits)):
        raise GraphError(f"an index lies outside {extent}")
    return np.where(where < 0, where + limits, where)


def _gather_type(x: TensorType, indices: TensorType, axis: int, batch_dims: int, validate_indices: bool) -> TensorType:
    where = axis_of(axis, x.rank)
    if not 0 <= batch_dims <= min(where, indices.rank):
        raise GraphError(f"batch_dims {batch_dims} with axis {axis} and indices of rank {indices.rank}")
    if x.shape[:batch_dims] != indices.shape[:batch_dims]:
        raise GraphError(f"batch axes of {x.shape} and {indices.shape} differ")
    return x.with_shape((*x.shape[:where], *indices.shape[batch_dims:], *x.shape[where + 1 :]))


@op(
    "gather",
    "x:A indices:I axis:int=0 batch_dims:int=0@16 validate_indices:bool=False@17",
    infer=_gather_type,
    dynamic=True,
)
def gather(x: np.ndarray, indices: np.ndarray, axis: int, batch_dims: int, validate_indices: bool) -> np.ndarray:
    """Slices of an axis, by index; ``batch_dims`` leading axes go together."""
    where = axis % x.ndim
    index = checked_indices(indices, x.shape[where])
    if not batch_dims:
        return x.take(index, where)
    batch = int(np.prod(x.shape[:batch_dims]))
    flat = x.reshape(batch, *x.shape[batch_dims:])
    chosen = index.reshape(batch, *index.shape[batch_dims:])
    inner = where - batch_dims
    rows = [flat[b].take(chosen[b], inner) for b in range(batch)]
    shape = (*x.shape[:where], *index.shape[batch_dims:], *x.shape[where + 1 :])
    return np.stack(rows).reshape(shape) if rows else np.zeros(shape, x.dtype)


def _along_type(x: TensorType, indices: TensorType, axis: int, validate_indices: bool) -> TensorType:
    where = axis_of(axis, x.rank)
    if indices.rank != x.rank or any(i != n for a, (i, n) in enumerate(zip(indices.shape, x.shape)) if a != where):
        raise GraphError(f"x {x.shape} and indices {indices.shape} may differ on axis {axis} only")
    return x.with_shape(indices.shape)


@op("gather_along_axis", "x:A indices:I axis:int=0 validate_indices:bool=False@17", infer=_along_type)
def gather_along_axis(x: np.ndarray, indices: np.ndarray, axis: int, validate_indices: bool) -> np.ndarray:
    """One element of the axis for each index."""
    return np.take_along_axis(x, checked_indices(indices, x.shape[axis]), axis)


def _nd_type(x: TensorType, indices: TensorType, batch_dims: int, validate_indices: bool) -> TensorType:
    if not 0 <= batch_dims < max(indices.rank, 1) or indices.rank < 1:
        raise GraphError(f"batch_dims {batch_dims} with indices of rank {indices.rank}")
    depth = indices.shape[-1]
    if depth is None or batch_dims + depth > x.rank or x.shape[:batch_dims] != indices.shape[:batch_dims]:
        raise GraphError(f"x {x.shape} and indices {indices.shape} do not go together")
    return x.with_shape((*indices.shape[:-1], *x.shape[batch_dims + depth :]))


@op("gather_nd", "x:A indices:I batch_dims:int=0@16 validate_indices:bool=False@17", infer=_nd_type, dynamic=True)
def gather_nd(x: np.ndarray, indices: np.ndarray, batch_dims: int, validate_indices: bool) -> np.ndarray:
    """Slices of the leading axes, by index vectors along the last axis of ``indices``."""
    depth = indices.shape[-1]
    index = checked_indices(indices, np.array(x.shape[batch_dims : batch_dims + depth], np.int64))
    lead: list[np.ndarray] = []
    for axis in range(batch_dims):
        shape = [1] * (index.ndim - 1)
        shape[axis] = x.shape[axis]
        lead.append(np.arange(x.shape[axis]).reshape(shape))
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


def _scatter_type(
    data: TensorType, indices: TensorType, updates: TensorType, axis: int, mode: str, **_: Any
) -> TensorType:
    one_of(mode, _MODES, "mode")
    where = axis_of(axis, data.rank)
    wanted = (*data.shape[:where], *indices.shape, *data.shape[where + 1 :])
    if updates.shape != wanted:
        raise GraphError(f"updates has shape {updates.shape}, {wanted} is needed")
    return data


_SCATTER = "data:A indices:I updates:A axis:int=0 mode:str='add' validate_indices:bool=False@17"


@op("scatter", _SCATTER, infer=_scatter_type)
def scatter(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int, mode: str, validate_indices: bool
) -> np.ndarray:
    """Slices of an axis changed by updates, repeated indices one after the other."""
    where = axis % data.ndim
    result = data.copy()
    lead = (slice(None),) * where
    _apply(result, (*lead, checked_indices(indices, data.shape[where])), updates, mode)
    return result


def _scatter_along_type(
    data: TensorType, indices: TensorType, updates: TensorType, axis: int, mode: str, **_: Any
) -> TensorType:
    one_of(mode, _MODES, "mode")
    where = axis_of(axis, data.rank)
    if indices.shape != updates.shape or indices.rank != data.rank:
        raise GraphError(
            f"indices {indices.shape} and updates {updates.shape} must have one shape, of rank {data.rank}"
        )
    if any(i > n for a, (i, n) in enumerate(zip(indices.shape, data.shape)) if a != where):
        raise GraphError(f"indices {indices.shape} reach outside data {data.shape}")
    return data


@op("scatter_along_axis", _SCATTER, infer=_scatter_along_type)
def scatter_along_axis(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int, mode: str, validate_indices: bool
) -> np.ndarray:
    """One element of the axis changed for each index."""
    where = axis % data.ndim
    result = data.copy()
    index: list[Any] = list(np.indices(indices.shape, sparse=True))
    index[where] = checked_indices(indices, data.shape[where])
    _apply(result, tuple(index), updates, mode)
    return result


def _scatter_nd_type(data: TensorType, indices: TensorType, updates: TensorType, mode: str, **_: Any) -> TensorType:
    one_of(mode, _MODES, "mode")
    if indices.rank < 1 or indices.shape[-1] > data.rank:
        raise GraphError(f"data {data.shape} and indices {indices.shape} do not go together")
    wanted = (*indices.shape[:-1], *data.shape[indices.shape[-1] :])
    if updates.shape != wanted:
        raise GraphError(f"updates has shape {updates.shape}, {wanted} is needed")
    return data


@op(
    "scatter_nd",
    "data:A indices:I updates:A mode:str='add' validate_indices:bool=False@17",
    infer=_scatter_nd_type,
)
def scatter_nd(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, mode: str, validate_indices: bool
) -> np.ndarray:
    """Slices of the leading axes changed, by index vectors."""
    depth = indices.shape[-1]
    result = data.copy()
    index = checked_indices(indices, np.array(data.shape[:depth], np.int64))
    _apply(result, tuple(np.moveaxis(index, -1, 0)) if depth else Ellipsis, updates, mode)
    return result
