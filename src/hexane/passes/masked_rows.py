"""Softmax of rows that a mask may hide whole, as PyTorch writes it: such a row is zero instead of NaN."""

from __future__ import annotations

import numpy as np

from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Function, Op, Value
from hexane.graph.registry import has
from hexane.graph.traits import MOVES, PRODUCTS, SAME_VALUES
from hexane.passes.rewriting import as_dtype, is_static, known, number_of, sweep


def mask_rows(function: Function) -> int:
    """Zero for rows of -inf behind a softmax: dropped where no mask hides a row, else a factor of 0 or 1 per row.

    PyTorch asks for such rows by ``all(x == -inf)`` or, in ONNX files, by IsNaN of the softmax.
    """
    return sweep(function, {"select": _rule})


def _rule(op: Op, b: GraphBuilder) -> Value | None:
    soft = op.inputs["b"].op
    if soft is None or soft.type != "softmax" or number_of(op.inputs["a"]) != 0.0:
        return None
    weights, scores = soft.output, soft.inputs["x"]
    if not is_static(scores) or weights.type != op.output.type:
        return None
    axis = soft.arg("axis") % len(scores.shape)
    if not (_is_nan(op.inputs["cond"], weights) or _all_hidden(op.inputs["cond"], scores, axis)):
        return None
    if not _may_hide(scores, axis):
        return None if op.output.is_output and weights.is_output else weights
    largest = b.reduce_max(x=scores, axes=[axis], keep_dims=True)
    is_finite = b.greater(x=largest, y=as_dtype(np.array(-np.inf), scores))
    return b.mul(x=weights, y=b.cast(x=is_finite, dtype=weights.dtype))


def _is_nan(value: Value, weights: Value) -> bool:
    """isnan(weights), as an op of its own or as weights != weights."""
    op = value.op
    if op is None:
        return False
    if op.type == "onnx.IsNaN":
        return op.inputs["x"] is weights
    return op.type == "not_equal" and op.inputs["x"] is weights and op.inputs["y"] is weights


def _all_hidden(value: Value, scores: Value, axis: int) -> bool:
    """all(scores == -inf) along the axis: not any(not ..) in numbers, or a minimum of numbers."""
    value, negated = _truth(value)
    op = value.op
    if op is None or op.type not in ("reduce_max", "reduce_min") or negated != (op.type == "reduce_max"):
        return False
    axes = op.arg("axes")
    if not known(axes) or axes is None or [a % len(scores.shape) for a in axes] != [axis] or not op.arg("keep_dims"):
        return False
    value, inner = _truth(op.inputs["x"])
    equal = value.op
    if inner != negated or equal is None or equal.type != "equal":
        return False
    x, y = equal.inputs["x"], equal.inputs["y"]
    return (x is scores and number_of(y) == -np.inf) or (y is scores and number_of(x) == -np.inf)


def _truth(value: Value) -> tuple[Value, bool]:
    """Source of a bool behind casts, comparisons with zero and negations; whether it is negated."""
    negated = False
    while value.op is not None:
        op = value.op
        if op.type == "logical_not":
            negated = not negated
        elif op.type == "not_equal" and number_of(op.inputs["y"]) == 0.0:
            value = op.inputs["x"]
            continue
        elif op.type != "cast":
            break
        value = op.inputs["x"]
    return value, negated


def _may_hide(value: Value, axis: int | None) -> bool:
    """True where all scores along an axis may be -inf. ``axis`` is None where moves have lost it."""
    if value.is_constant:
        hidden = np.isneginf(np.asarray(value.data, np.float64))
        return bool(hidden.any() if axis is None or not hidden.shape else hidden.all(axis).any())
    op = value.op
    if op is None or op.type in ("add", "select"):
        return op is None or _masked(op, axis)
    if has(op, PRODUCTS) or op.type == "einsum":
        return False
    if op.type in ("mul", "real_div"):
        x, y = op.inputs["x"], op.inputs["y"]
        x, y = (x, y) if y.is_constant else (y, x)
        return not y.is_constant or not np.isfinite(y.data).all() or x.shape != op.output.shape or _may_hide(x, axis)
    if has(op, MOVES | SAME_VALUES):
        return _may_hide(op.inputs["x"], axis if has(op, SAME_VALUES) else None)
    return True


def _masked(op: Op, axis: int | None) -> bool:
    """True where scores plus a constant mask, or scores where a constant condition holds, may be -inf along an axis."""
    if axis is None or not is_static(op.output):
        return True
    shape = op.output.shape
    if op.type == "add":
        x, y = op.inputs["x"], op.inputs["y"]
        scores, mask = (x, y) if y.is_constant else (y, x)
        if not mask.is_constant or scores.shape != shape or _may_hide(scores, None):
            return True
        hidden = np.isneginf(np.asarray(mask.data, np.float64))
    else:
        cond, a, other = (op.inputs[name] for name in ("cond", "a", "b"))
        if not cond.is_constant:
            return True
        selection = np.broadcast_to(np.asarray(cond.data, bool), shape)
        hidden = np.zeros(shape, bool)
        for part, where in ((a, selection), (other, ~selection)):
            if part.is_constant:
                hidden |= where & np.isneginf(np.asarray(part.data, np.float64))
            elif _may_hide(part, None):
                return True
    return bool(np.broadcast_to(hidden, shape).all(axis).any())
