"""Joining, cutting, repeating and padding tensors (docs/reference/mil.md 5.6)."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._gradients import joined, through_matrix
from hexane.graph.ops._rules import axis_of, padded
from hexane.graph.registry import op
from hexane.graph.traits import PICKS
from hexane.graph.types import TensorType

if TYPE_CHECKING:
    from hexane.graph.formulas import Formula
    from hexane.graph.gradient import Derivation


def _concat_type(values: tuple[TensorType, ...], axis: int, interleave: bool) -> TensorType:
    if not values:
        raise GraphError("concat of nothing")
    first = values[0]
    if all(type_.rank == 0 for type_ in values) and axis in (0, -1):  # coremltools joins scalars into a vector
        return first.with_shape((len(values),))
    where = axis_of(axis, first.rank)
    total: Any = 0
    for type_ in values:
        if type_.rank != first.rank or any(
            a != b and None not in (a, b) for i, (a, b) in enumerate(zip(type_.shape, first.shape)) if i != where
        ):
            raise GraphError(f"shapes {first.shape} and {type_.shape} cannot be joined on axis {axis}")
        extent = type_.shape[where]
        total = None if total is None or extent is None else total + extent
    if interleave and any(type_.shape != first.shape for type_ in values):
        raise GraphError("interleave needs operands of one shape")
    shape = tuple(
        total if i == where else next((t.shape[i] for t in values if t.shape[i] is not None), None)
        for i in range(first.rank)
    )
    return first.with_shape(shape)


def _concat_gradients(d: Derivation) -> tuple[Formula, ...]:
    """To each operand its part, of every ``len(values)``th element where they are interleaved."""
    values, grad = d.values, d.grad
    if not values[0].rank:
        return tuple(grad.cut(0, i, 1).shaped(()) for i in range(len(values)))
    axis, starts = axis_of(d.axis, values[0].rank), np.cumsum([0, *(v.shape[d.axis] for v in values)])
    if d.interleave:
        shape = values[0].shape
        grad = grad.shaped((*shape[: axis + 1], len(values), *shape[axis + 1 :]))
        return tuple(grad.cut(axis + 1, i, 1).shaped(shape) for i in range(len(values)))
    return tuple(grad.cut(axis, int(start), v.shape[axis]) for v, start in zip(values, starts))


@op(
    "concat",
    "values:A* axis:int interleave:bool=False",
    infer=_concat_type,
    dynamic=True,
    traits=PICKS,
    derivative={"values": _concat_gradients},
)
def concat(values: tuple[np.ndarray, ...], axis: int, interleave: bool) -> np.ndarray:
    """One after the other along the axis; interleaved: element 0 of each, then element 1 of each."""
    if not interleave:
        return np.concatenate([np.atleast_1d(value) for value in values], axis=axis)
    where = axis % values[0].ndim
    shape = list(values[0].shape)
    shape[where] *= len(values)
    return np.stack(values, axis=where + 1).reshape(shape)


def _stack_type(values: tuple[TensorType, ...], axis: int) -> TensorType:
    if not values:
        raise GraphError("stack of nothing")
    if any(type_.shape != values[0].shape for type_ in values):
        raise GraphError(f"shapes {', '.join(str(type_.shape) for type_ in values)} cannot be stacked")
    where = axis_of(axis, values[0].rank + 1)
    return values[0].with_shape((*values[0].shape[:where], len(values), *values[0].shape[where:]))


def _stack_gradients(d: Derivation) -> tuple[Formula, ...]:
    values = d.values
    axis = axis_of(d.axis, values[0].rank + 1)
    return tuple(d.grad.cut(axis, i, 1).shaped(value.shape) for i, value in enumerate(values))


@op("stack", "values:A* axis:int", infer=_stack_type, traits=PICKS, derivative={"values": _stack_gradients})
def stack(values: tuple[np.ndarray, ...], axis: int) -> np.ndarray:
    """Joined along a new axis."""
    return np.stack(values, axis=axis)


def split_sizes_of(extent: int, num_splits: Any, split_sizes: Any) -> tuple[int, ...]:
    """The parts of an axis of this extent."""
    if split_sizes is not None:
        if sum(split_sizes) != extent or any(size < 0 for size in split_sizes):
            raise GraphError(f"split_sizes {tuple(split_sizes)} do not add up to {extent}")
        if num_splits is not None and num_splits != len(split_sizes):
            raise GraphError(f"num_splits {num_splits} with {len(split_sizes)} split_sizes")
        return tuple(split_sizes)
    if num_splits is None or num_splits < 1:
        raise GraphError("split needs num_splits or split_sizes")
    if extent % num_splits:
        raise GraphError(f"{extent} does not split into {num_splits} equal parts")
    return (extent // num_splits,) * num_splits


def _split_type(x: TensorType, num_splits: Any, split_sizes: Any, axis: int) -> tuple[TensorType, ...]:
    where = axis_of(axis, x.rank)
    sizes = split_sizes_of(x.shape[where], num_splits, split_sizes)
    return tuple(x.with_shape((*x.shape[:where], size, *x.shape[where + 1 :])) for size in sizes)


@op(
    "split",
    "x:A num_splits:int? split_sizes:ints? axis:int",
    infer=_split_type,
    traits=PICKS,
    derivative=lambda d: joined([d.grad_of(i) for i in range(len(d.grads))], axis_of(d.axis, d.x.rank)),
)
def split(x: np.ndarray, num_splits: Any, split_sizes: Any, axis: int) -> tuple[np.ndarray, ...]:
    """Cut along an axis into equal parts, or parts of these sizes."""
    sizes = split_sizes_of(x.shape[axis], num_splits, split_sizes)
    return tuple(np.split(x, np.cumsum(sizes)[:-1].tolist(), axis=axis))


def _tile_type(x: TensorType, reps: Any) -> TensorType:
    if len(reps) != x.rank or any(rep < 0 for rep in reps):
        raise GraphError(f"reps {tuple(reps)} for a tensor of rank {x.rank}")
    return x.with_shape(extent * rep for extent, rep in zip(x.shape, reps))


def _tile_gradient(d: Derivation) -> Formula:
    """The sum over the repetitions, one axis after the other."""
    total = d.grad
    for axis, (rep, extent) in enumerate(zip(d.reps, d.x.shape)):
        if rep != 1:
            shape, rest = total.shape, prod(total.shape[axis + 1 :])
            total = total.shaped((prod(shape[:axis]), rep, extent * rest)).reduce_sum(axes=[1])
            total = total.shaped((*shape[:axis], extent, *shape[axis + 1 :]))
    return total


@op("tile", "x:A reps:ints", infer=_tile_type, traits=PICKS, derivative=_tile_gradient)
def tile(x: np.ndarray, reps: Any) -> np.ndarray:
    """Repeat the whole tensor along each axis."""
    return np.tile(x, reps)


PAD_MODES = {
    "constant": "constant",
    "reflect": "reflect",
    "replicate": "edge",
    "reflection": "reflect",
    "symmetric": "symmetric",
}
"""NumPy's words for the modes of a pad."""


def pad_widths(rank: int, pad: Any) -> list[tuple[int, int]]:
    """(before, after) of each axis; ``pad`` speaks of the trailing axes only."""
    if len(pad) % 2 or len(pad) > 2 * rank:
        raise GraphError(f"pad {tuple(pad)} for a tensor of rank {rank}", hint="two numbers for each trailing axis")
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    return [(0, 0)] * (rank - len(pairs)) + pairs


def _pad_type(x: TensorType, pad: Any, mode: str) -> TensorType:
    widths = pad_widths(x.rank, pad)
    for extent, (before, after) in zip(x.shape, widths):
        if min(before, after) < 0 and (mode != "constant" or extent + min(before, 0) + min(after, 0) < 0):
            raise GraphError(f"pad {tuple(pad)} takes more than there is")
        if PAD_MODES[mode] == "reflect" and max(before, after) >= max(extent, 1):
            raise GraphError(f"a reflection of {max(before, after)} needs an extent above it, not {extent}")
        if mode in ("replicate", "symmetric") and extent == 0 and (before or after):
            raise GraphError("there is nothing to repeat")
    return x.with_shape(extent + before + after for extent, (before, after) in zip(x.shape, widths))


def _pad_gradient(d: Derivation) -> Formula:
    """The part without the pads, or what each element was repeated to, added by a matrix of ones."""
    widths = pad_widths(d.x.rank, d.pad)
    if d.mode == "constant":
        return d.grad.padded([(-before, -after) for before, after in widths])
    total = d.grad
    for axis, (extent, pair) in enumerate(zip(d.x.shape, widths)):
        if pair != (0, 0):
            index = np.pad(np.arange(extent), pair, mode=PAD_MODES[d.mode])  # type: ignore[call-overload]
            total = through_matrix(d, total, axis, np.arange(extent)[:, None] == index)
    return total


@op(
    "pad",
    "x:A pad:ints mode:str='constant' constant_val:float=0.0",
    infer=_pad_type,
    mode=PAD_MODES,
    derivative=_pad_gradient,
)
def pad(x: np.ndarray, pad: Any, mode: str, constant_val: float) -> np.ndarray:
    """Extend the trailing axes: with a constant, mirrored (the edge once), or the edge repeated."""
    return padded(x, pad_widths(x.ndim, pad), PAD_MODES[mode], x.dtype.type(constant_val))
