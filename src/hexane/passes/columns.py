"""Networks of tokens with features as channels and tokens along W: what is turned, and what each op becomes.

A layer of [S, C] rows costs a turned copy in front of its product. Seen as [1, C, 1, S] it is a 1x1 convolution, a mean
over features is a product with ones, and heads are channels side by side. Ops are taken over in connected parts, and
a part only where the copies at its border are smaller than those that it saves.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hexane.chips import L2_BYTES
from hexane.graph.builder import GraphBuilder
from hexane.graph.rewrite import remove_dead, replace_op, replace_uses
from hexane.lowering.transformations import is_on
from hexane.passes.attention import operands_of_attention, square_up
from hexane.passes.column_ops import Seen, Writer, back, images_of, relation
from hexane.passes.rewriting import hand_down_names

if TYPE_CHECKING:
    from hexane.graph.ir import Function, Op, Value

NAME = "features-as-channels"
SUMS = ("linear", "matmul")
MOST_SWEEPS = 4
CHANGES = {"layer_norm": 3, "reduce_mean": 2}
"""How often more the units change in the turned form of an op."""
CHANGE, SMALL = 30_000, 16_384
"""A change of unit in the time of copied elements, and the size up to which it costs (``unit_switch_us``)."""
LARGE, PASSES = L2_BYTES // 4, 2.6
"""Elements from which on a map and its squares do not fit L2, and what a norm of one costs more: passes over memory."""


def features_as_channels(function: Function) -> int:
    """Compute linear layers, norms and what is between them with features as channels, where that saves copies."""
    if not is_on(NAME):
        return 0
    square_up(function)
    seen = _kinds(function)
    parts = [part for part in _parts(function, seen) if _pays(part, seen)]
    chosen = {op for part in parts for op in part}
    if not chosen:
        return 0
    _rewrite(function, chosen, seen)
    remove_dead(function)
    return len(chosen)


def _kinds(function: Function) -> Seen:
    """Which values can be seen turned, and how: from products on, forwards and backwards until nothing changes."""
    seen = Seen(operands_of_attention(function))
    ops = list(function.ops)
    for _ in range(MOST_SWEEPS):
        before = len(seen.kinds)
        for op in (*ops, *reversed(ops)):
            found = relation(op, seen)
            if found is not None:
                for value, kind in found.items():
                    seen.kinds.setdefault(value, kind)
        if len(seen.kinds) == before:
            break
    for op in ops:
        found = relation(op, seen)
        if found is not None and all(seen.kinds.get(value) is kind for value, kind in found.items()):
            seen.ops[op] = found
    return seen


def _parts(function: Function, seen: Seen) -> list[list[Op]]:
    """The ops that can be taken over, in connected parts."""
    root: dict[Op, Op] = {}

    def find(op: Op) -> Op:
        while root.setdefault(op, op) is not op:
            root[op] = root[root[op]]
            op = root[op]
        return op

    for op, found in seen.ops.items():
        for value in found:
            if value.op is not None and value.op in seen.ops and value.op is not op and value in seen.ops[value.op]:
                root[find(op)] = find(value.op)
    parts: dict[Op, list[Op]] = {}
    for op in function.ops:
        if op in seen.ops:
            parts.setdefault(find(op), []).append(op)
    return list(parts.values())


def _pays(part: list[Op], seen: Seen) -> bool:
    """Whether less is turned at the border than inside without it: rows of products, rows of norms twice read."""
    inside = set(part)
    rows: dict[Value, int] = {}
    saved = border = 0
    entering: set[Value] = set()
    for op in part:
        if op.type in SUMS:
            x = op.inputs["x"]
            rows[x] = _count(x)
        elif op.type in CHANGES:
            count = _count(op.inputs["x"])
            saved += count // 2 if op.type == "layer_norm" else 0
            border += CHANGES[op.type] * CHANGE if count <= SMALL else 0
            border += int(PASSES * count) if op.type == "layer_norm" and count > LARGE else 0
        for value in seen.ops[op]:
            if value.op not in inside and value not in entering and not seen.is_turned_already(value):
                entering.add(value)
                border += _count(value)
        border += sum(_count(value) for value in op.outputs if _leaves(value, inside, seen))
    return saved + sum(rows.values()) > border


def _leaves(value: Value, inside: set[Op], seen: Seen) -> bool:
    """Whether a value has to be turned back for somebody outside."""
    if value not in seen.kinds:
        return False
    users = list(value.users)
    outside = [user for user in users if user not in inside]
    if not value.is_output and not outside:
        return False
    if not value.is_output and value in seen.attention.columns:
        return False  # attention takes it as it is
    alone = len(outside) == len(users)
    return not (alone and value.op is not None and value.op.type in SUMS)


def _count(value: Value) -> int:
    return prod(value.shape) if value.shape[-1] != 1 else 0


def _rewrite(function: Function, chosen: set[Op], seen: Seen) -> None:
    b = GraphBuilder(function=function, opset=function.opset)
    writer = Writer(seen, chosen, b)
    for op in list(function.ops):
        if op not in chosen:
            continue
        b.block, b.before = function, op
        behind = op._previous
        alone = not any(user in chosen for user in op.outputs[0].users)
        if alone and op.type in SUMS and images_of(op.output.shape) == 1:
            results: list[Value | None] = [writer.rows(op)]
        else:
            twins = writer.results(op)
            for value, made in zip(op.outputs, twins):
                if value in seen.ops[op]:
                    writer.twins[value] = made
            results = [_wanted(value, made, op, writer) for value, made in zip(op.outputs, twins)]
            for value, made, plain in zip(op.outputs, twins, results):
                if plain is None or value not in seen.kinds:
                    continue
                seen.kinds.setdefault(plain, seen.kinds[value])  # it takes the value's place for chosen users too
                if value in seen.ops[op]:
                    writer.twins.setdefault(plain, made)
        wanted = tuple(made for made in results if made is not None)
        if len(wanted) == len(results):
            hand_down_names(op, wanted, behind)
            replace_op(op, wanted)
            continue
        for value, plain in zip(op.outputs, results):  # some pieces of a split go on turned, others do not
            if plain is not None:
                replace_uses(value, plain)


def _wanted(value: Value, made: Value, op: Op, writer: Writer) -> Value | None:
    """What stands for a result outside of the turned part; None where nobody there wants it."""
    if value not in writer.seen.ops[op]:
        return made
    if not value.is_output and value.users and all(user in writer.chosen for user in value.users):
        return None
    return back(value, made, writer.seen.kinds[value], writer.b)
