"""Machinery of passes: one sweep over the ops, a rule per op type, new ops right before the old one.

A rule gets an op and a builder that stands in front of it, and returns the values that take the place of the op's
results, or None when the op is fine as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Function, Op, Value
from hexane.graph.registry import UNKNOWN
from hexane.graph.rewrite import remove_dead, replace_op
from hexane.graph.types import TensorType

Rule = Callable[["Op", GraphBuilder], "Value | tuple[Value, ...] | None"]


def sweep(function: Function, rules: Mapping[str, Rule], doubt: str = "") -> int:
    """Apply the rule of each op's type once, in order, inner blocks included; how many ops were replaced.

    New ops have this ``doubt`` (`Op.doubt`), or that of the op which they replace. One builder serves the
    whole sweep, so that the cost is linear in the number of ops.
    """
    builder: GraphBuilder | None = None
    count = 0
    for op in function.walk(rules):
        if op.block is None or _is_empty(op):
            continue
        if builder is None:
            builder = GraphBuilder(function=function, opset=function.opset)
        builder.block, builder.before = op.block, op
        behind = op._previous
        results = rules[op.type](op, builder)
        if results is not None:
            hand_down(op, results, behind, doubt)
            replace_op(op, results)
            count += 1
    return count


def sweep_again(function: Function, rules: Mapping[str, Rule], most: int) -> int:
    """Sweeps until one changes nothing, at most so many; what was replaced is no user any more in the next."""
    total = 0
    for _ in range(most):
        changed = sweep(function, rules)
        total += changed
        if not changed:
            break
        remove_dead(function)
    return total


def _is_empty(op: Op) -> bool:
    """True where no result has an element: no form of such an op is better than another, and many have none."""
    for value in op.outputs:
        if not isinstance(value.type, TensorType) or 0 not in value.type.shape:
            return False
    return bool(op.outputs)


def hand_down(op: Op, results: Value | tuple[Value, ...], behind: Op | None, doubt: str = "") -> None:
    """A value that a rule made in place of another one is the same value, so it has the same name; see `Op.doubt`.

    Reports and errors per layer find it under the network's own name. Values that were there before keep theirs, and
    so do outputs, whose names are handed on with their uses.
    """
    fresh_ops = set()
    fresh = op._previous
    while fresh is not None and fresh is not behind:
        fresh_ops.add(fresh)
        fresh.doubt = fresh.doubt or doubt or op.doubt
        fresh = fresh._previous
    for old, new in zip(op.outputs, results if isinstance(results, tuple) else (results,)):
        if new.op in fresh_ops and not old.is_output and not new.is_output and new.type == old.type:
            old.name, new.name = new.name, old.name


def is_static(value: Value) -> bool:
    return None not in value.shape


def known(*arguments: Any) -> bool:
    """True where compile-time parameters are known."""
    return not any(argument is UNKNOWN for argument in arguments)


def bias_of(op: Op) -> dict[str, Value]:
    """The bias of an op as an operand, where it has one."""
    return {"bias": op.inputs["bias"]} if "bias" in op.inputs else {}


def fitted(x: Value, spans: Mapping[int, tuple[int, int]], b: GraphBuilder, value: float = 0.0) -> Value:
    """``length`` elements from ``begin`` on along axes, by axis: cut, and continued with a number where x has none."""
    begin, size, frame = [0] * x.rank, list(x.shape), [0] * (2 * x.rank)
    for axis, (first, length) in spans.items():
        extent = x.shape[axis]
        if not -length < first < extent:
            shape = [spans[i][1] if i in spans else side for i, side in enumerate(x.shape)]
            return b.const(np.full(shape, value, np.float16 if x.dtype == "fp16" else np.float32))
        last = min(first + length, extent)
        begin[axis], size[axis] = max(first, 0), last - max(first, 0)
        frame[2 * axis : 2 * axis + 2] = max(-first, 0), first + length - last
    if size != list(x.shape):
        x = b.slice_by_size(x=x, begin=begin, size=size)
    if any(frame):
        x = b.pad(x=x, pad=frame, mode="constant", constant_val=value)
    return x


def array_of(value: Value | None) -> np.ndarray | None:
    """A constant's values in float64 where they are floats, None for what is computed."""
    if value is None or not value.is_constant:
        return None
    data = value.data
    return data.astype(np.float64) if data.dtype.kind == "f" else np.asarray(data)


def number_of(value: Value | None) -> float | None:
    """The number that a constant holds in every element, None for anything else."""
    data = None if value is None or not value.is_constant else value.data
    if data is None or data.size == 0 or data.dtype.kind not in "fiu":
        return None
    first = data.reshape(-1)[0]
    if data.size > 1 and not np.all(data == first):
        return None
    return float(first)


def operand_and_constant(op: Op) -> tuple[Value, Value, bool] | None:
    """(computed operand, constant, whether the constant comes first) of an op on x and y."""
    x, y = op.inputs["x"], op.inputs["y"]
    if y.is_constant and not x.is_constant:
        return x, y, False
    if x.is_constant and not y.is_constant:
        return y, x, True
    return None


def operand_and_number(op: Op) -> tuple[Value, float, bool] | None:
    """The same where the constant holds one number in every element."""
    pair = operand_and_constant(op)
    number = None if pair is None else number_of(pair[1])
    return None if pair is None or number is None else (pair[0], number, pair[2])


def in_place_of(op: Op, value: Value) -> Value | None:
    """A value in the place of an op's result; None for an output that is an input: its name needs an op to carry it."""
    free = value.type == op.output.type and not (op.output.is_output and (value.op is None or value.is_output))
    return value if free else None


def reduced_axes(op: Op) -> list[int]:
    """The axes of a reduction, none negative, in order."""
    rank, axes = op.inputs["x"].rank, op.arg("axes")
    return list(range(rank)) if axes is None else sorted(axis % rank for axis in axes)


def as_dtype(values: np.ndarray, like: Value) -> np.ndarray:
    """An array in the dtype of another value's data."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, float_of(like))


def float_of(like: Value) -> np.dtype:
    """The dtype of a value's data, float32 where they are no floats of NumPy."""
    return np.dtype(NUMPY_FLOATS.get(like.dtype, np.float32))


NUMPY_FLOATS = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}
"""Float dtypes of which NumPy has arrays; constants of the others are not made from arrays alone."""


def per_channel(values: np.ndarray, channels: int, rank: int) -> np.ndarray | None:
    """A constant that depends on the channel axis (1) only, as a vector of ``channels`` numbers; None otherwise."""
    shape = (1,) * (rank - values.ndim) + values.shape
    if len(shape) != rank or any(extent != 1 for axis, extent in enumerate(shape) if axis != 1):
        return None
    if shape[1] not in (1, channels):
        return None
    return np.broadcast_to(values.reshape(-1), (channels,)).astype(np.float64)
