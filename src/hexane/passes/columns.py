"""Networks of tokens with features as channels and tokens along W: what is turned, and what each op becomes.

A layer of [S, C] rows costs a turned copy in front of its product. Seen as [1, C, 1, S] it is a 1x1 convolution, a mean
over features is a product with ones, and heads are channels side by side. Ops are taken over in connected parts, and
a part only where it is cheaper on the chip that is compiled for (hexane.passes.column_price).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hexane.graph.builder import GraphBuilder
from hexane.graph.rewrite import remove_dead, replace_op, replace_uses
from hexane.passes.attention import operands_of_attention, square_up
from hexane.passes.column_ops import ColumnWriter, back
from hexane.passes.column_price import SUMS, is_cheaper_turned
from hexane.passes.column_relations import Analysis, Relation, images_of, relation
from hexane.passes.rewriting import hand_down

if TYPE_CHECKING:
    from hexane.graph.ir import Function, Op, Value
    from hexane.lowering.compilation import Compilation

MOST_SWEEPS = 4


def features_as_channels(function: Function, compilation: Compilation) -> int:
    """Compute linear layers, norms and what is between them with features as channels, where that saves copies."""
    if not compilation.on.features_as_channels:
        return 0
    square_up(function, compilation)
    analysis = _kinds(function, compilation)
    choice = {op for part in _parts(function, analysis) for op in _paying(part, analysis)}
    if not choice:
        return 0
    _rewrite(function, choice, analysis)
    remove_dead(function)
    return len(choice)


def _kinds(function: Function, compilation: Compilation) -> Analysis:
    """Values with a transposed view, and its kind: from products on, forwards and backwards until nothing changes.

    An op is looked at again when one of its values has got a kind.
    """
    analysis = Analysis(compilation, operands_of_attention(function, compilation))
    ops = list(function.ops)
    relations: dict[Op, Relation | None] = {}
    for _ in range(MOST_SWEEPS):
        for op in (*ops, *reversed(ops)):
            if op in relations:
                continue
            kinds = relations[op] = relation(op, analysis)
            for value, kind in (kinds or {}).items():
                if value not in analysis.kinds:
                    analysis.kinds[value] = kind
                    for neighbour in value.neighbours:
                        relations.pop(neighbour, None)
        if len(relations) == len(ops):
            break
    for op in ops:
        kinds = relations[op] if op in relations else relation(op, analysis)
        if kinds is not None and all(analysis.kinds.get(value) is kind for value, kind in kinds.items()):
            analysis.ops[op] = kinds
    return analysis


Part = list["Op"]


def _parts(function: Function, analysis: Analysis) -> list[list[Part]]:
    """The ops that can be taken over, in connected parts; those that share a value from outside stand together."""
    links, shared = _Links(), _Links()
    users: dict[Value, Op] = {}
    for op, kinds in analysis.ops.items():
        for value in kinds:
            if (
                value.op is not None
                and value.op in analysis.ops
                and value.op is not op
                and value in analysis.ops[value.op]
            ):
                links.join(op, value.op)
                shared.join(op, value.op)
            elif value.op is not op:
                shared.join(op, users.setdefault(value, op))
    parts: dict[Op, Part] = {}
    for op in function.ops:
        if op in analysis.ops:
            parts.setdefault(links.find(op), []).append(op)
    together: dict[Op, list[Part]] = {}
    for part in parts.values():
        together.setdefault(shared.find(part[0]), []).append(part)
    return list(together.values())


class _Links:
    """Ops in disjoint sets."""

    def __init__(self) -> None:
        self.root: dict[Op, Op] = {}

    def find(self, op: Op) -> Op:
        while self.root.setdefault(op, op) is not op:
            self.root[op] = self.root[self.root[op]]
            op = self.root[op]
        return op

    def join(self, a: Op, b: Op) -> None:
        self.root[self.find(a)] = self.find(b)


def _paying(parts: list[Part], analysis: Analysis) -> Part:
    """All parts where they are cheaper turned; else those that are so by themselves."""
    if len(parts) > 1:
        place = {op: i for i, op in enumerate(analysis.ops)}
        whole = sorted((op for part in parts for op in part), key=place.__getitem__)
        if _pays(whole, analysis):
            return whole
    return [op for part in parts if _pays(part, analysis) for op in part]


def _pays(part: Part, analysis: Analysis) -> bool:
    inside = set(part)
    return is_cheaper_turned(part, analysis, lambda value: _leaves(value, inside, analysis))


def _leaves(value: Value, inside: set[Op], analysis: Analysis) -> bool:
    """True where a value has to be turned back for somebody outside."""
    if value not in analysis.kinds:
        return False
    users = list(value.users)
    outside = [user for user in users if user not in inside]
    if not value.is_output and not outside:
        return False
    if not value.is_output and value in analysis.attention.columns:
        return False  # attention takes it as it is
    alone = len(outside) == len(users)
    return not (alone and value.op is not None and value.op.type in SUMS)


def _rewrite(function: Function, choice: set[Op], analysis: Analysis) -> None:
    b = GraphBuilder(function=function, opset=function.opset)
    writer = ColumnWriter(analysis, choice, b)
    for op in list(function.ops):
        if op not in choice:
            continue
        b.block, b.before = function, op
        behind = op._previous
        alone = not any(user in choice for user in op.outputs[0].users)
        if alone and op.type in SUMS and images_of(op.output.shape) == 1:
            results: list[Value | None] = [writer.rows(op)]
        else:
            twins = writer.results(op)
            for value, twin in zip(op.outputs, twins):
                if value in analysis.ops[op]:
                    writer.twins[value] = twin
            results = [_wanted(value, twin, op, writer) for value, twin in zip(op.outputs, twins)]
            for value, twin, plain in zip(op.outputs, twins, results):
                if plain is None or value not in analysis.kinds:
                    continue
                analysis.kinds.setdefault(
                    plain, analysis.kinds[value]
                )  # it takes the value's place for chosen users too
                if value in analysis.ops[op]:
                    writer.twins.setdefault(plain, twin)
        plain_results = tuple(twin for twin in results if twin is not None)
        if len(plain_results) == len(results):
            hand_down(op, plain_results, behind)
            replace_op(op, plain_results)
            continue
        for value, plain in zip(op.outputs, results):  # some pieces of a split go on turned, others do not
            if plain is not None:
                replace_uses(value, plain)


def _wanted(value: Value, twin: Value, op: Op, writer: ColumnWriter) -> Value | None:
    """Stand-in for a result outside of the transposed part; None where nobody there wants it."""
    if value not in writer.analysis.ops[op]:
        return twin
    if not value.is_output and value.users and all(user in writer.chosen for user in value.users):
        return None
    return back(value, twin, writer.analysis.kinds[value], writer.b)
