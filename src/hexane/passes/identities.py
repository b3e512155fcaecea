"""Ops that change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hexane.passes.rewriting import array_of, is_static, known, number_of, operand_and_constant, sweep

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Op, Value


def remove_identities(function: Function) -> int:
    """Drop what changes nothing: identity, x * 1, x + 0, casts, reshapes, slices to the same, choices by a constant."""
    return sweep(function, _RULES)


def _free(op: Op) -> bool:
    """True where the op's operand may stand in its place: an output that is an input needs an op to carry its name."""
    x = op.inputs["x"]
    return x.type == op.output.type and not (op.output.is_output and (x.op is None or x.is_output))


def _identity(op: Op, b: GraphBuilder) -> Value | None:
    return op.inputs["x"] if _free(op) else None


def _neutral(op: Op, b: GraphBuilder) -> Value | None:
    """x * 1, x / 1, x + 0, x - 0."""
    pair = operand_and_constant(op)
    if pair is None:
        return None
    x, constant, first = pair
    neutral = 0.0 if op.type in ("add", "sub") else 1.0
    if number_of(constant) != neutral or (first and op.type in ("sub", "real_div")):
        return None
    if x.type != op.output.type or (op.output.is_output and (x.op is None or x.is_output)):
        return None
    return x


def _same_shape(op: Op, b: GraphBuilder) -> Value | None:
    x = op.inputs["x"]
    return x if is_static(x) and x.shape == op.output.shape and _free(op) else None


def _transpose(op: Op, b: GraphBuilder) -> Value | None:
    perm = op.arg("perm")
    return op.inputs["x"] if known(perm) and list(perm) == sorted(p % len(perm) for p in perm) and _free(op) else None


def _whole_slice(op: Op, b: GraphBuilder) -> Value | None:
    """A slice as long as its source is the source, unless it steps backwards."""
    if op.type == "slice_by_index" and any(s < 0 for s in (op.arg("stride") or ()) if known(op.arg("stride"))):
        return None
    return _same_shape(op, b)


def _single_concat(op: Op, b: GraphBuilder) -> Value | None:
    values = op.inputs["values"]
    if (
        len(values) != 1
        or values[0].type != op.output.type
        or (op.output.is_output and (values[0].op is None or values[0].is_output))
    ):
        return None
    return values[0]


def _chosen(op: Op, b: GraphBuilder) -> Value | None:
    """A choice by a constant that says the same everywhere."""
    cond = array_of(op.inputs["cond"])
    if cond is None or not cond.size or cond.any() != cond.all():
        return None
    branch = op.inputs["a" if cond.any() else "b"]
    if branch.is_constant or branch.type != op.output.type:
        return None
    return None if op.output.is_output and (branch.op is None or branch.is_output) else branch


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
