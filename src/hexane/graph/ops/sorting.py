"""Sorting, selection by order, and what makes index tensors (docs/reference/mil.md 5.7)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._rules import along, axis_of
from hexane.graph.registry import op
from hexane.graph.types import TensorType

if TYPE_CHECKING:
    from hexane.graph.formulas import Formula
    from hexane.graph.gradient import Derivation


def sorted_indices(x: np.ndarray, axis: int, ascending: bool) -> np.ndarray:
    """Indices that sort an axis; among equals the lower index comes first either way."""
    if ascending:
        return np.argsort(x, axis=axis, kind="stable")
    backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - backwards, axis)


def _argsort_type(x: TensorType, axis: int) -> TensorType:
    axis_of(axis, x.rank)
    return x.with_dtype("int32")


_INDEX = "an index is constant between its jumps"


@op("argsort", "x:N axis:int=-1 ascending:bool=False", infer=_argsort_type, derivative=_INDEX)
def argsort(x: np.ndarray, axis: int, ascending: bool) -> np.ndarray:
    """Indices that sort the axis."""
    return sorted_indices(x, axis, ascending).astype(np.int32)


_INDEX_DTYPES = ("int32", "uint16", "int16", "uint8", "int8", "int64")


def _topk_type(
    x: TensorType, k: int, axis: int, return_indices: bool, output_indices_dtype: str
) -> tuple[TensorType, ...]:
    where = axis_of(axis, x.rank)
    count = x.shape[where] if k == -1 else k
    if not 0 <= count <= x.shape[where]:
        raise GraphError(f"k {k} of {x.shape[where]} elements")
    values = x.with_shape((*x.shape[:where], count, *x.shape[where + 1 :]))
    return (values, values.with_dtype(output_indices_dtype)) if return_indices else (values,)


def _topk_gradient(d: Derivation) -> Formula:
    if d.return_indices:
        index = d.result(1)
    else:
        index = d.apply("topk", x=d.x, k=d.k, axis=d.axis, ascending=d.ascending, sort=d.sort)[1]
    return d.grad.zeros(d.x.shape).scatter_along_axis(indices=index, updates=d.grad, axis=d.axis, mode="add")


@op(
    "topk",
    "x:N k:int=1 axis:int=-1 ascending:bool=False sort:bool=True@16 return_indices:bool=True@16 "
    "output_indices_dtype:str='int32'@17",
    infer=_topk_type,
    derivative=_topk_gradient,
    output_indices_dtype=_INDEX_DTYPES,
)
def topk(x: np.ndarray, k: int, axis: int, ascending: bool, return_indices: bool, output_indices_dtype: str) -> Any:
    """The k largest (or smallest) of an axis, in order, and their indices; among equals the lower index first."""
    count = x.shape[axis] if k == -1 else k
    index = sorted_indices(x, axis, ascending).take(np.arange(count), axis)
    values = np.take_along_axis(x, index, axis)
    return (values, index.astype(output_indices_dtype)) if return_indices else values


def _non_zero_type(x: TensorType) -> TensorType:
    return TensorType("int32", (None, x.rank))  # type: ignore[arg-type]


@op("non_zero", "x:A", infer=_non_zero_type, dynamic=True, derivative=_INDEX)
def non_zero(x: np.ndarray) -> np.ndarray:
    """Index vectors of the elements that are not zero, in row-major order."""
    return np.argwhere(x).astype(np.int32)


def _one_hot_type(
    indices: TensorType, one_hot_vector_size: int, axis: int, on_value: Any, off_value: Any
) -> TensorType:
    where = axis_of(axis, indices.rank + 1)
    if one_hot_vector_size < 0:
        raise GraphError(f"one_hot_vector_size {one_hot_vector_size} is negative")
    filler = on_value or off_value
    shape = (*indices.shape[:where], one_hot_vector_size, *indices.shape[where:])
    return TensorType(filler.dtype if filler is not None else "int32", shape)


def _one_hot_gradient(d: Derivation, on: bool) -> Formula:
    """The sum of the gradients at the places of the value."""
    values = [d.constant(float(number), d.grad) for number in (on, not on)]
    size, axis = d.one_hot_vector_size, d.axis
    mask = d.indices.one_hot(one_hot_vector_size=size, axis=axis, on_value=values[0], off_value=values[1])
    return (d.grad * mask).total(range(d.grad.rank)).shaped((d.on_value if on else d.off_value).shape)


@op(
    "one_hot",
    "indices:I one_hot_vector_size:int axis:int=-1 on_value:A? off_value:A?",
    infer=_one_hot_type,
    derivative={"on_value": partial(_one_hot_gradient, on=True), "off_value": partial(_one_hot_gradient, on=False)},
)
def one_hot(indices: np.ndarray, one_hot_vector_size: int, axis: int, on_value: Any, off_value: Any) -> np.ndarray:
    """A new axis with ``on_value`` at the index and ``off_value`` elsewhere (everywhere for an index outside)."""
    where = axis % (indices.ndim + 1)
    positions = np.where(indices < 0, indices + one_hot_vector_size, indices)
    hit = np.expand_dims(positions, where) == along(np.arange(one_hot_vector_size), indices.ndim + 1, where)
    on = np.int32(1) if on_value is None else on_value.reshape(())
    off = np.zeros((), on.dtype) if off_value is None else off_value.reshape(())
    return np.where(hit, on, off)


def _cumsum_type(x: TensorType, axis: int) -> TensorType:
    axis_of(axis, x.rank)
    return x


@op(
    "cumsum",
    "x:N axis:int=0 exclusive:bool=False reverse:bool=False",
    infer=_cumsum_type,
    derivative=lambda d: d.grad.cumsum(axis=d.axis, exclusive=d.exclusive, reverse=not d.reverse),
)
def cumsum(x: np.ndarray, axis: int, exclusive: bool, reverse: bool) -> np.ndarray:
    """Running sums; ``exclusive`` begins with 0, ``reverse`` runs from the end."""
    data = np.flip(x, axis) if reverse else x
    total = np.cumsum(data, axis=axis, dtype=x.dtype)
    if exclusive and x.shape[axis]:
        total = np.roll(total, 1, axis)
        first: list[Any] = [slice(None)] * x.ndim
        first[axis] = slice(0, 1)
        total[tuple(first)] = 0
    return np.flip(total, axis) if reverse else total


def _band_type(x: TensorType) -> TensorType:
    if x.rank < 2:
        raise GraphError(f"x has rank {x.rank}, at least 2 is needed")
    return x


@op(
    "band_part",
    "x:A lower:int=-1 upper:int=-1",
    infer=_band_type,
    derivative=lambda d: d.grad.band_part(lower=d.lower, upper=d.upper),
)
def band_part(x: np.ndarray, lower: int, upper: int) -> np.ndarray:
    """The diagonals from ``lower`` below to ``upper`` above the main one (-1: all), zero elsewhere."""
    offset = np.arange(x.shape[-2])[:, None] - np.arange(x.shape[-1])[None, :]
    inside = np.ones(offset.shape, bool)
    if lower >= 0:
        inside &= offset <= lower
    if upper >= 0:
        inside &= -offset <= upper
    return np.where(inside, x, x.dtype.type(0))


def _reverse_sequence_type(x: TensorType, lengths: TensorType, seq_axis: int, batch_axis: int) -> TensorType:
    seq, batch = axis_of(seq_axis, x.rank), axis_of(batch_axis, x.rank)
    if seq == batch or lengths.shape != (x.shape[batch],):
        raise GraphError(f"seq_axis {seq_axis}, batch_axis {batch_axis} and lengths {lengths.shape} for {x.shape}")
    return x


@op(
    "reverse_sequence",
    "x:A lengths:I seq_axis:int=0 batch_axis:int=0",
    infer=_reverse_sequence_type,
    derivative=lambda d: d.grad.reverse_sequence(lengths=d.lengths, seq_axis=d.seq_axis, batch_axis=d.batch_axis),
)
def reverse_sequence(x: np.ndarray, lengths: np.ndarray, seq_axis: int, batch_axis: int) -> np.ndarray:
    """The first ``lengths[b]`` elements of each sequence turned around."""
    sequences = np.moveaxis(x, (batch_axis, seq_axis), (0, 1))
    if np.any(lengths < 0) or np.any(lengths > sequences.shape[1]):
        raise GraphError(f"a length lies outside 0 to {sequences.shape[1]}")
    result = sequences.copy()
    for row, length in zip(range(len(lengths)), lengths):
        result[row, :length] = sequences[row, :length][::-1]
    return np.moveaxis(result, (0, 1), (batch_axis, seq_axis))
