"""Ops that change nothing."""

from __future__ import annotations

from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Function, Op, Value
from hexane.passes.rewriting import array_of, in_place_of, is_static, known, operand_and_number, sweep


def remove_identities(function: Function) -> int:
    """Drop what changes nothing: identity, x * 1, x + 0, casts, reshapes, slices to the same, choices by a constant."""
    return sweep(function, _RULES)


def _identity(op: Op, b: GraphBuilder) -> Value | None:
    return in_place_of(op, op.inputs["x"])


def _neutral(op: Op, b: GraphBuilder) -> Value | None:
    """x * 1, x / 1, x + 0, x - 0."""
    pair = operand_and_number(op)
    neutral = 0.0 if op.type in ("add", "sub") else 1.0
    if pair is None or pair[1] != neutral or (pair[2] and op.type in ("sub", "real_div")):
        return None
    return in_place_of(op, pair[0])


def _same_shape(op: Op, b: GraphBuilder) -> Value | None:
    x = op.inputs["x"]
    return in_place_of(op, x) if is_static(x) and x.shape == op.output.shape else None


def _transpose(op: Op, b: GraphBuilder) -> Value | None:
    perm = op.arg("perm")
    in_order = known(perm) and list(perm) == sorted(p % len(perm) for p in perm)
    return in_place_of(op, op.inputs["x"]) if in_order else None


def _whole_slice(op: Op, b: GraphBuilder) -> Value | None:
    """A slice as long as its source is the source, unless it steps backwards."""
    if op.type == "slice_by_index" and any(s < 0 for s in (op.arg("stride") or ()) if known(op.arg("stride"))):
        return None
    return _same_shape(op, b)


def _single_concat(op: Op, b: GraphBuilder) -> Value | None:
    values = op.inputs["values"]
    return in_place_of(op, values[0]) if len(values) == 1 else None


def _chosen(op: Op, b: GraphBuilder) -> Value | None:
    """A choice by a constant that says the same everywhere."""
    cond = array_of(op.inputs["cond"])
    if cond is None or not cond.size or cond.any() != cond.all():
        return None
    branch = op.inputs["a" if cond.any() else "b"]
    return None if branch.is_constant else in_place_of(op, branch)


_RULES = {
    "identity": _identity,
    "select": _chosen,
    "cast": _identity,
    "mul": _neutral,
    "real_div": _neutral,
    "add": _neutral,
    "sub": _neutral,
    "reshape": _same_shape,
    "expand_dims": _same_shape,
    "squeeze": _same_shape,
    "tile": _same_shape,
    "pad": _same_shape,
    "transpose": _transpose,
    "slice_by_index": _whole_slice,
    "slice_by_size": _whole_slice,
    "concat": _single_concat,
}
