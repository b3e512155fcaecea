"""Type rules and checks that several families share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.types import TensorType


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """NumPy's rule, right-aligned; an extent that depends on data (None) gives way to a known one above 1."""
    rank = max(len(shape) for shape in shapes)
    out: list[Any] = []
    for position in range(rank):
        length: Any = 1
        unknown = False
        for shape in shapes:
            index = position - (rank - len(shape))
            if index < 0:
                continue
            extent = shape[index]
            if extent is None:
                unknown = True
            elif extent != 1:
                if length not in (1, extent):
                    raise GraphError(f"shapes {' and '.join(str(tuple(s)) for s in shapes)} do not broadcast")
                length = extent
        out.append(None if unknown and length == 1 else length)
    return tuple(out)


def broadcast_type(**types: TensorType) -> TensorType:
    """Result of an element-wise op: broadcast shape, dtype of the first operand."""
    operands = [type_ for type_ in types.values() if isinstance(type_, TensorType)]
    return TensorType(operands[0].dtype, broadcast(*(type_.shape for type_ in operands)))


def bool_type(**types: TensorType) -> TensorType:
    """Result of a comparison."""
    return broadcast_type(**types).with_dtype("bool")


def axis_of(axis: int, rank: int, what: str = "axis") -> int:
    """A non-negative axis; GraphError when it lies outside the rank."""
    if not -rank <= axis < rank:
        raise GraphError(f"{what} {axis} of a tensor of rank {rank}")
    return axis % rank


def axes_of(axes: Sequence[int] | None, rank: int, what: str = "axes") -> tuple[int, ...]:
    """Non-negative, distinct axes in the given order; all of them for None."""
    if axes is None:
        return tuple(range(rank))
    positions = tuple(axis_of(axis, rank, what) for axis in axes)
    if len(set(positions)) != len(positions):
        raise GraphError(f"{what} {tuple(axes)} name one axis twice")
    return positions


def per_axis(values: Sequence[int] | None, rank: int, default: int, what: str) -> tuple[int, ...]:
    """``values``, or ``default`` for each axis; GraphError for a wrong count."""
    if values is None:
        return (default,) * rank
    if len(values) != rank:
        raise GraphError(f"{what} has {len(values)} entries, {rank} are needed")
    return tuple(values)


def positive(values: Sequence[int], what: str) -> None:
    if any(value < 1 for value in values):
        raise GraphError(f"{what} {tuple(values)} must be positive")


def rank_between(type_: TensorType, low: int, high: int, what: str = "x") -> None:
    if not low <= type_.rank <= high:
        expected = f"{low}" if low == high else f"{low} to {high}"
        raise GraphError(f"{what} has rank {type_.rank}, {expected} is needed")


def fits(operand: TensorType | None, shape: Sequence[int | None], what: str) -> None:
    """GraphError for an operand of another shape; extents that depend on data (None) go with all."""
    if operand is None:
        return
    if operand.rank != len(shape) or any(a != b for a, b in zip(operand.shape, shape) if None not in (a, b)):
        raise GraphError(f"{what} has shape {operand.shape}, {tuple(shape)} is needed")


def channel_vector(vector: TensorType | None, channels: int, what: str) -> None:
    if vector is not None and vector.shape != (channels,):
        raise GraphError(f"{what} has shape {vector.shape}, [{channels}] is needed")


def along(vector: np.ndarray, rank: int, axis: int | None) -> np.ndarray:
    """A scalar or vector ready to broadcast along an axis."""
    if vector.ndim == 0:
        return vector
    shape = [1] * rank
    shape[axis or 0] = -1
    return vector.reshape(shape)


def padded(x: np.ndarray, widths: Sequence[tuple[int, int]], mode: str = "constant", value: Any = 0) -> np.ndarray:
    """x with (before, after) of each axis in one of NumPy's modes; negative widths crop."""
    crop = tuple(slice(max(-before, 0), n - max(-after, 0)) for n, (before, after) in zip(x.shape, widths))
    more = [(max(before, 0), max(after, 0)) for before, after in widths]
    if not any(map(any, more)):
        return x[crop]
    constant = {"constant_values": value} if mode == "constant" else {}
    return np.pad(x[crop], more, mode=mode, **constant)  # type: ignore[call-overload]
