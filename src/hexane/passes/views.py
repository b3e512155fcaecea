"""Tensors of more than four axes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hexane.graph.registry import has, spec_of, with_trait
from hexane.graph.traits import ELEMENTWISE, RESHAPES, SAME_VALUES
from hexane.passes.reshapes import ENGINE_AXES
from hexane.passes.rewriting import is_static, known, sweep

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Op, Value

PER_ELEMENT = ELEMENTWISE | SAME_VALUES
FLOATS = ("fp16", "fp32")
LONGEST_CHAIN = 32
"""Results of element-wise ops that are looked at for reshapes behind them."""


def legalise_views(function: Function) -> int:
    """See transpositions and elementwise ops on five and more axes as ones on four: the engine has no more."""
    return sweep(function, {"transpose": _transpose} | dict.fromkeys(with_trait(PER_ELEMENT), _elementwise))


def _transpose(op: Op, b: GraphBuilder) -> Value | None:
    """Axes of one element dropped, axes that stay neighbours joined."""
    x, perm = op.inputs["x"], op.arg("perm")
    if not known(perm) or not is_static(x) or len(perm) <= ENGINE_AXES:
        return None
    rank = len(perm)
    runs = [[p % rank] for p in perm if x.shape[p] != 1]
    at = 1
    while len(runs) > ENGINE_AXES and at < len(runs):  # rows stay whole as long as other axes can be joined
        if runs[at - 1][-1] == _before(runs[at][0], x.shape):
            runs[at - 1 : at + 1] = [runs[at - 1] + runs[at]]
        else:
            at += 1
    if len(runs) > ENGINE_AXES:
        return None
    by_source = sorted(runs)
    shape = [prod(x.shape[a] for a in run) for run in by_source]
    turned = b.transpose(x=b.reshape(x=x, shape=shape), perm=[by_source.index(run) for run in runs])
    return b.reshape(x=turned, shape=list(op.output.shape))


def _before(axis: int, shape: tuple[int, ...]) -> int:
    """The next axis to the left that has more than one element."""
    axis -= 1
    while axis >= 0 and shape[axis] == 1:
        axis -= 1
    return axis


def _flat(shape: tuple[int, ...]) -> list[int] | None:
    """The shape on four axes, leading ones joined; None where it needs no change."""
    if len(shape) <= ENGINE_AXES or all(extent == 1 for extent in shape[: len(shape) - ENGINE_AXES]):
        return None
    lead = len(shape) - ENGINE_AXES + 1
    return [1, prod(shape[:lead]) * shape[lead], *shape[lead + 1 :]] if len(shape) > lead + 1 else None


def _between_reshapes(op: Op) -> bool:
    """Whether a reshape makes an operand and reshapes alone take the result, behind ops of the same kind or at once:
    then two more cost nothing."""
    if not any(has(v.op, RESHAPES) for v in op.operands()):
        return False
    waiting, seen = [op.output], {op.output}
    while waiting:
        value = waiting.pop()
        others = [user for user in value.users if not has(user, RESHAPES)]
        if not value.is_used or value.is_output or len(seen) > LONGEST_CHAIN or not all(map(_has_flat_form, others)):
            return False
        waiting += {user.output for user in others} - seen
        seen |= set(waiting)
    return True


def _has_flat_form(op: Op) -> bool:
    """Whether each tensor of an element-wise op is a number or of the result's shape, with floats on one side."""
    if not has(op, PER_ELEMENT) or not is_static(op.output):
        return False
    tensors, shape = [op.inputs[name] for name in spec_of(op).tensors], op.output.shape
    if not all(is_static(v) and (v.shape == shape or prod(v.shape) == 1) for v in tensors):
        return False
    return any(v.dtype in FLOATS and v.shape == shape for v in (*tensors, op.output))


def _elementwise(op: Op, b: GraphBuilder) -> Value | None:
    shape = op.output.shape
    flat = _flat(shape) if _has_flat_form(op) and _between_reshapes(op) else None
    if flat is None:
        return None
    tensors = {name: op.inputs[name] for name in spec_of(op).tensors}
    seen = {name: b.reshape(x=v, shape=flat if v.shape == shape else [1] * 4) for name, v in tensors.items()}
    made = b.op(op.type, opset=op.opset, **{**op.inputs, **seen})
    return b.reshape(x=made, shape=list(shape))
