"""Segment of each op of the network as it was given: passes rename, join, take apart and fold ops.

Verdicts by op and the shares of multiply-accumulates come from here, so that they count the same network.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.chips import Evidence
from hexane.counts import counted
from hexane.frozen import dict_init, replace
from hexane.graph.macs import macs_of
from hexane.graph.registry import has, values_of
from hexane.graph.rewrite import live_ops
from hexane.graph.traits import MOVES, PICKS, SAME_VALUES
from hexane.program.segment import HOST

if TYPE_CHECKING:
    from hexane.graph.ir import Graph, Op, Value
    from hexane.program.segment import Segment


@dict_init
@dataclass(frozen=True)
class OpPlace:
    """An op of the compiled program: the number of its segment, its value's name, and how errors call it.

    ``evidence``: the weakest mark of it and of all ops of the program between the operands of the network's op and its
    result; APPLE where none is weaker. ``held_back``: of those ops, one that the host computes (a bare change of dtype
    aside) while this one is on the engine.
    """

    segment: int
    name: str
    label: str
    evidence: Evidence = Evidence.APPLE
    held_back: OpPlace | None = None


def visible_ops(graph: Graph) -> list[Op]:
    """Ops of the function that runs whose results a result of the network or a state depends on.

    Those inside blocks belong to the op that holds them.
    """
    return [op for op in live_ops(graph.main) if op.outputs]


def places_of(graph: Graph, segments: Sequence[Segment]) -> dict[str, OpPlace]:
    """First result's name -> where the op is computed; ops that are computed while compiling are left out."""
    ops, compiled = visible_ops(graph), _compiled(segments)
    makers = makers_of(segments)
    ways = Ways.of(graph, ops, makers)
    stands_for = stand_ins(ops, compiled)
    stands_for.update(_work_elsewhere(ops, ways, compiled, stands_for))
    places = {name: compiled[other] for name, other in stands_for.items()}
    inferred = {label for part in segments for label, mark in part.evidence.items() if mark == Evidence.INFERRED}
    doubted = {op for name, op in makers.items() if name in compiled and compiled[name].label in inferred}
    host_names = {name for name, place in compiled.items() if segments[place.segment].kind == HOST}
    on_host = {op for name, op in makers.items() if name in host_names and not has(op, SAME_VALUES)}
    moved = {op.outputs[0].name for op in ops if _copies(op)}
    answers: dict[Op, Op | None] = {}
    of_host: dict[Op, Op | None] = {}
    for name, place in places.items():
        maker = makers.get(name if name in makers else place.name)
        if place.label in inferred or (maker is not None and ways.first(maker, doubted.__contains__, answers)):
            place = replace(place, evidence=Evidence.INFERRED)
        if maker is not None and segments[place.segment].kind != HOST:
            part = ways.first(maker, on_host.__contains__, of_host)
            if part is not None and (name not in moved or _copies(part)):  # a copy needs no function of others
                place = replace(place, held_back=compiled[part.outputs[0].name])
        places[name] = place
    return places


def _compiled(segments: Sequence[Segment]) -> dict[str, OpPlace]:
    """The ops of the compiled program by the names of their values."""
    return {
        value_name(described): OpPlace(number, value_name(described), described)
        for number, segment in enumerate(segments)
        for described in segment.ops
    }


def makers_of(segments: Sequence[Segment]) -> dict[str, Op]:
    """The ops of the compiled program by the names of their results."""
    parts = (segment.source or segment.graph for segment in segments)
    return {value.name: op for part in parts if part is not None for op in part.main.ops for value in op.outputs}


class Ways:
    """The ops of the compiled program that make a value from values that the network has itself.

    Where all values have other names in the program, each way goes back to its start: what is known of an op serves all
    ways through it.
    """

    def __init__(self, makers: Mapping[str, Op], names: Set[str]) -> None:
        self.makers, self.names = makers, names

    @classmethod
    def of(cls, graph: Graph, ops: Sequence[Op], makers: Mapping[str, Op]) -> Ways:
        """Through the program that a network with these visible ops became."""
        return cls(makers, {value.name for op in ops for value in op.outputs} | set(graph.inputs))

    def _before(self, op: Op) -> Iterator[Op]:
        """The ops right before one, those of its last operand first."""
        values = [v.name for v in op.operands() if not v.is_constant and v.name not in self.names]
        return (self.makers[name] for name in reversed(values) if name in self.makers)

    def first(self, maker: Op, accepts: Callable[[Op], bool], answers: dict[Op, Op | None]) -> Op | None:
        """The first op that ``accepts`` takes on the way to one, itself included; ``answers``: those of ``accepts``."""
        path: list[Op] = []
        before = [iter((maker,))]
        while before:
            part = next(before[-1], None)
            if part is None:
                before.pop()
                del path[-1:]
                continue
            if part not in answers:
                answers[part] = part if accepts(part) else None
                path.append(part)
                before.append(self._before(part))
            if answers[part] is not None:
                answers.update(dict.fromkeys(path, answers[part]))
                return answers[part]
        return None


def with_macs(graph: Graph, segments: Sequence[Segment]) -> list[Segment]:
    """The segments with the multiply-accumulates of the network's ops that each computes."""
    ops, compiled = visible_ops(graph), _compiled(segments)
    stands_for = stand_ins(ops, compiled)
    counted = {op: count for op in ops if op.outputs[0].name in stands_for and (count := macs_of(op))}
    if len(segments) > 1:
        ways = Ways.of(graph, ops, makers_of(segments))
        stands_for.update(_work_elsewhere(list(counted), ways, compiled, stands_for))
    counts = [0] * len(segments)
    for op, count in counted.items():
        counts[compiled[stands_for[op.outputs[0].name]].segment] += count
    return [replace(segment, macs=count) for segment, count in zip(segments, counts)]


def share_on_engine(engine_macs: int, macs: int, host_ops: int) -> float:
    """Share of the multiply-accumulates on the engine, 0 to 1; of none at all, 1 where no op is left to the host."""
    return engine_macs / macs if macs else float(not host_ops)


def share_text(counts: Mapping[str, Any], whole: str = "the") -> str:
    """That share in words, of `Program.stats()` or the totals of `hexane.check`, which know of ops in two parts."""
    if not counts["macs"]:
        return "nothing to multiply"
    parts = counts.get("partly_ops", 0)
    of_host = f" ({counted(parts, 'op')} of the host {'have' if parts > 1 else 'has'} products there)"
    return f"{counts['macs_on_engine']:.1%} of {whole} multiply-accumulates{of_host * bool(parts)}"


def value_name(described: str) -> str:
    """The name in what ``Op.describe`` gives."""
    _, _, quoted = described.partition(" ")
    if quoted[:1] == quoted[-1:] == "'" and "\\" not in quoted:
        return quoted[1:-1]  # plain, as nearly all are
    try:
        return str(ast.literal_eval(quoted)) if quoted else described
    except (ValueError, SyntaxError):
        return quoted


def stand_ins(ops: Sequence[Op], compiled: Mapping[str, Any]) -> dict[str, str]:
    """For ops that the passes took apart or folded away: the value in the compiled program that stands for each."""
    stand_ins: dict[str, str] = {}
    for op in reversed(ops):  # downwards first: a scale lives on in the convolution behind it
        name = op.outputs[0].name
        if name in compiled:
            stand_ins[name] = name
            continue
        for user in op.outputs[0].users:
            below = stand_ins.get(user.outputs[0].name) if user.outputs else None
            if below is not None:
                stand_ins[name] = below
                break
    for op in ops:
        name = op.outputs[0].name
        if name not in stand_ins:
            above = [stand_ins[v.name] for v in op.operands() if v.name in stand_ins]
            if above:
                stand_ins[name] = above[0]
    return stand_ins


def idle_ops(ops: Sequence[Op], makers: Mapping[str, Op]) -> frozenset[str]:
    """Ops of a network of which its compiled form has nothing, by their first results: what took these takes what they
    took.

    ``makers``: the ops of that form by the names of their results.
    """
    idle: set[str] = set()
    for op in ops:
        twin = makers.get(op.outputs[0].name)
        way: list[Op] = []
        while twin is not None and op.type != twin.type:  # an earlier op may have taken the name of an output
            before = _only_operand(op)
            if before is None or before.op is None or before.name in makers:
                break
            way.append(op)
            op = before.op
        if twin is not None and op.type == twin.type:
            idle.update(part.outputs[0].name for part in _without(op, twin, way, makers))
    return frozenset(idle)


def _only_operand(op: Op) -> Value | None:
    """The operand of an op whose others are constants."""
    computed = {value for value in op.operands() if not value.is_constant}
    return computed.pop() if len(computed) == 1 else None


def _without(op: Op, twin: Op, behind: list[Op], makers: Mapping[str, Op]) -> list[Op]:
    """Ops ``behind`` an op, and in front of it, that its twin does without; none where the two compute other things."""
    if op.blocks or op.inputs.keys() != twin.inputs.keys():
        return []
    pairs = [(values_of(op.inputs[name]), values_of(operand)) for name, operand in twin.inputs.items()]
    if any(len(a) != len(b) for a, b in pairs):
        return []
    idle, constants = [*behind], []
    for ours, theirs in ((a, b) for row in pairs for a, b in zip(*row)):
        here: Value | None = ours
        while here is not None and here.name != theirs.name and not theirs.is_constant:
            if theirs.op is not None and has(theirs.op, SAME_VALUES):
                theirs = theirs.op.inputs["x"]
            elif here.op is None or here.name in makers:
                return []
            else:
                idle.append(here.op)
                here = _only_operand(here.op)
        if here is None:
            return []
        if theirs.is_constant:
            constants.append((here, theirs))
    return idle if idle and all(_same_numbers(*pair) for pair in constants) else []


def _same_numbers(ours: Value, theirs: Value) -> bool:
    if ours.constant is None or theirs.constant is None:
        return False
    a, b = ours.constant.array, theirs.constant.array
    with np.errstate(all="ignore"):
        return np.array_equal(a.astype(b.dtype) if a.dtype.kind == "f" else a, b)


def _work_elsewhere(
    ops: Sequence[Op], ways: Ways, compiled: Mapping[str, OpPlace], stands_for: Mapping[str, str]
) -> dict[str, str]:
    """Ops whose work is not in what stands for them: the product of a sum, the op in front of a copy, by its new name.

    A pass that turns a result around gives its name to the copy behind it; the work is in front of the copy.
    """
    elsewhere = {}
    answers: dict[str, dict[Op, Op | None]] = {}
    types = {maker.type for maker in ways.makers.values()}

    def first(start: Op, wish: str) -> Op | None:
        """The first op of a type, with products ("sums") or with work of its own ("computes")."""

        def wanted(op: Op) -> bool:
            right = macs_of(op) > 0 if wish == "sums" else not _copies(op) if wish == "computes" else op.type == wish
            return right and op.outputs[0].name in compiled

        return ways.first(start, wanted, answers.setdefault(wish, {}))

    for op in ops:
        name = op.outputs[0].name
        maker = ways.makers.get(stands_for.get(name, ""))
        if maker is None or _copies(op):
            continue
        sums = bool(macs_of(op))
        if not _copies(maker) and (name in compiled or not sums):
            continue
        alike = first(maker, op.type) if op.type in types else None
        alike = alike or first(maker, "sums" if sums else "computes")
        if alike is not None:
            elsewhere[name] = alike.outputs[0].name
    return elsewhere


def _copies(op: Op) -> bool:
    """True where an op moves numbers and computes none."""
    return has(op, MOVES | PICKS | SAME_VALUES)
