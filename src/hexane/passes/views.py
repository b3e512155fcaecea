"""Tensors of more than four axes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod
from typing import Any

from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Function, Op, Value
from hexane.graph.ops.slicing import places_of
from hexane.graph.registry import has, spec_of, with_trait
from hexane.graph.traits import ELEMENTWISE, RESHAPES, SAME_VALUES
from hexane.passes.padding import pad_of
from hexane.passes.reshapes import ENGINE_AXES
from hexane.passes.rewriting import Rule, is_static, known, sweep

PER_ELEMENT = ELEMENTWISE | SAME_VALUES
FLOATS = ("fp16", "fp32")
LONGEST_CHAIN = 32
"""Results of element-wise ops that are looked at for reshapes behind them."""


def legalise_views(function: Function) -> int:
    """See transpositions and elementwise ops on five and more axes as ones on four: the engine has no more."""
    rules: dict[str, Rule] = dict.fromkeys(with_trait(PER_ELEMENT), _elementwise)
    for name, rule in _ALONG.items():
        rules[name] = _of_many_axes(rule)
    return sweep(function, rules | {"transpose": _transpose})


def _of_many_axes(rule: Rule) -> Rule:
    """The rule for ops whose first operand has more axes than the engine; the others need none."""
    return lambda op, b: rule(op, b) if len(next(op.operands()).shape) > ENGINE_AXES else None


def joined_axes(shapes: Sequence[tuple[int, ...]], roles: Sequence[Hashable]) -> list[list[int]] | None:
    """Neighbouring axes of one role joined until four are left, and until three as long as rows stay whole.

    ``shapes`` are of one rank. Axes of one element in every shape have any role; axes in which the shapes differ are
    joined where they differ in the same way, which ``roles`` says. None where more than four are left.
    """
    groups = [[axis] for axis in range(len(roles))]
    short = [all(shape[axis] == 1 for shape in shapes) for axis in range(len(roles))]

    def alike(i: int) -> bool:
        first, second = ({roles[a] for a in group if not short[a]} for group in groups[i : i + 2])
        return len(first | second) <= 1

    for most, rest in ((ENGINE_AXES - 1, 2), (ENGINE_AXES, 1)):
        i = 0
        while len(groups) > most and i < len(groups) - rest:
            if alike(i):
                groups[i : i + 2] = [groups[i] + groups[i + 1]]
            else:
                i += 1
    return groups if len(groups) <= ENGINE_AXES else None


def _has_surface(shape: tuple[int, ...]) -> bool:
    """True where at most four axes are left once leading ones of one element are gone."""
    return all(extent == 1 for extent in shape[: max(len(shape) - ENGINE_AXES, 0)])


def _joined(value: Value, groups: list[list[int]], b: GraphBuilder) -> Value:
    """The value with each group of its axes as one; operands of fewer axes get leading ones."""
    rank = sum(map(len, groups))
    full = (1,) * (rank - len(value.shape)) + value.shape
    shape = [prod(full[axis] for axis in group) for group in groups]
    return b.reshape(x=value, shape=shape)


def _along(op: Op, axes: set[int]) -> list[list[int]] | None:
    """Groups for an op that treats ``axes`` one by one and all others alike; None where it needs none."""
    x = next(op.operands())
    if not all(map(is_static, (*op.operands(), *op.outputs))) or x.dtype not in FLOATS or x.is_constant:
        return None
    if all(_has_surface(v.shape) for v in (x, *op.outputs)):
        return None
    shapes = [v.shape for v in (x, *op.outputs) if len(v.shape) == len(x.shape)]
    return joined_axes(shapes, [a if a in axes else "" for a in range(len(x.shape))])


def _place(groups: list[list[int]], axis: int) -> int:
    """Index of the group that has the axis."""
    return next(i for i, group in enumerate(groups) if axis in group)


def _concat(op: Op, b: GraphBuilder) -> Value | None:
    values = op.inputs["values"]
    rank = len(values[0].shape)
    axis = op.arg("axis") % rank
    groups = None if op.arg("interleave") or any(v.is_constant for v in values) else _along(op, {axis})
    if groups is None:
        return None
    result = b.concat(values=tuple(_joined(v, groups, b) for v in values), axis=_place(groups, axis))
    return b.reshape(x=result, shape=list(op.output.shape))


def _softmax(op: Op, b: GraphBuilder) -> Value | None:
    axis = op.arg("axis") % len(op.output.shape)
    groups = _along(op, {axis})
    if groups is None:
        return None
    result = b.softmax(x=_joined(op.inputs["x"], groups, b), axis=_place(groups, axis))
    return b.reshape(x=result, shape=list(op.output.shape))


def _pad(op: Op, b: GraphBuilder) -> Value | None:
    x = op.inputs["x"]
    widths = pad_of(op, len(x.shape))
    axes = {axis for axis, pair in enumerate(widths or ()) if any(pair)}
    groups = _along(op, axes) if widths is not None else None
    if groups is None or widths is None:
        return None
    flat = [width for group in groups for width in next((widths[a] for a in group if a in axes), (0, 0))]
    operands: dict[str, Any] = {**op.inputs, "x": _joined(x, groups, b), "pad": flat}
    return b.reshape(x=b.op(op.type, **operands), shape=list(op.output.shape))


def _slice(op: Op, b: GraphBuilder) -> Value | None:
    """A cut as ``slice_by_index`` with all bounds written out."""
    x = op.inputs["x"]
    if any(not v.is_constant for name, v in op.inputs.items() if name != "x") or not is_static(x):
        return None
    cuts = places_of(op)
    axes = {axis for axis, places in enumerate(cuts) if places != range(x.shape[axis])}
    if any(places.step < 1 for places in cuts):
        return None
    groups = _along(op, axes)
    if groups is None:
        return None
    shape = [prod(x.shape[a] for a in group) for group in groups]
    ranges = [next((cuts[a] for a in group if a in axes), range(n)) for group, n in zip(groups, shape)]
    bounds = {"begin": [c.start for c in ranges], "end": [c.stop for c in ranges], "stride": [c.step for c in ranges]}
    result = b.slice_by_index(x=b.reshape(x=x, shape=shape), **bounds)
    return b.reshape(x=result, shape=list(op.output.shape))


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
    transposed = b.transpose(x=b.reshape(x=x, shape=shape), perm=[by_source.index(run) for run in runs])
    return b.reshape(x=transposed, shape=list(op.output.shape))


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
    """True where a reshape makes an operand and reshapes alone take the result, behind ops of the same kind or at once:
    then two more cost nothing."""
    if not any(has(v.op, RESHAPES) for v in op.operands()):
        return False
    waiting, visited = [op.output], {op.output}
    while waiting:
        value = waiting.pop()
        others = [user for user in value.users if not has(user, RESHAPES)]
        if not value.is_used or value.is_output or len(visited) > LONGEST_CHAIN or not all(map(_has_flat_form, others)):
            return False
        waiting += {user.output for user in others} - visited
        visited |= set(waiting)
    return True


def _has_flat_form(op: Op) -> bool:
    """True where each tensor of an element-wise op is a number or of the result's shape, with floats on one side."""
    if not has(op, PER_ELEMENT) or not is_static(op.output):
        return False
    tensors, shape = [op.inputs[name] for name in spec_of(op).tensors], op.output.shape
    if not all(is_static(v) and (v.shape == shape or prod(v.shape) == 1) for v in tensors):
        return False
    return any(v.dtype in FLOATS and v.shape == shape for v in (*tensors, op.output))


_ALONG: dict[str, Rule] = {
    "concat": _concat, "pad": _pad, "slice_by_size": _slice, "slice_by_index": _slice, "softmax": _softmax,
}  # fmt: skip


def _elementwise(op: Op, b: GraphBuilder) -> Value | None:
    shape = op.output.shape
    flat = _flat(shape) if _has_flat_form(op) and _between_reshapes(op) else None
    tensors = {name: op.inputs[name] for name in spec_of(op).tensors if name in op.inputs}
    if flat is None:
        return _broadcast(op, tensors, b)
    views = {name: b.reshape(x=v, shape=flat if v.shape == shape else [1] * 4) for name, v in tensors.items()}
    result = b.op(op.type, opset=op.opset, **{**op.inputs, **views})
    return b.reshape(x=result, shape=list(shape))


def _broadcast(op: Op, tensors: dict[str, Value], b: GraphBuilder) -> Value | None:
    """Operands that no surface holds, some of which may be broadcast along some axes."""
    shape = op.output.shape
    if not all(map(is_static, (op.output, *tensors.values()))) or _has_surface(shape):
        return None
    if op.output.dtype not in FLOATS and not any(v.dtype in FLOATS for v in tensors.values()):
        return None
    full = [(1,) * (len(shape) - len(v.shape)) + v.shape for v in tensors.values()]
    groups = joined_axes([shape, *full], [tuple(each[axis] == 1 for each in full) for axis in range(len(shape))])
    if groups is None:
        return None
    views = {name: _joined(v, groups, b) for name, v in tensors.items()}
    return b.reshape(x=b.op(op.type, opset=op.opset, **{**op.inputs, **views}), shape=list(shape))
