"""Which segment computes each op of the network as it was given: passes rename, join, take apart and fold ops.

Verdicts by op and the shares of multiply-accumulates come from here, so that they count the same network.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hexane.graph.macs import macs_of
from hexane.graph.registry import has
from hexane.graph.traits import MOVES, PICKS, SAME_VALUES

if TYPE_CHECKING:
    from hexane.graph.ir import Graph, Op
    from hexane.program.segment import Segment


@dataclass(frozen=True)
class OpPlace:
    """An op of the compiled program: the number of its segment, its value's name, and how errors call it.

    ``way``: as errors call them, all ops of the program between the operands of the network's op and its result.
    """

    segment: int
    name: str
    label: str
    way: tuple[str, ...] = ()


def visible_ops(graph: Graph) -> list[Op]:
    """Ops of the function that runs that have a result; those inside blocks belong to the op that holds them."""
    return [op for op in graph.main.ops if op.outputs]


def places_of(graph: Graph, segments: Sequence[Segment]) -> dict[str, OpPlace]:
    """First result's name -> where the op is computed; ops that are computed while compiling are left out."""
    compiled = {
        value_name(described): OpPlace(number, value_name(described), described)
        for number, segment in enumerate(segments)
        for described in segment.ops
    }
    stands_for = stand_ins(graph, compiled)
    makers = {
        value.name: op
        for segment in segments
        for part in (segment.source or segment.graph,)
        if part is not None
        for op in part.main.ops
        for value in op.outputs
    }
    names = {value.name for op in visible_ops(graph) for value in op.outputs} | set(graph.inputs)
    stands_for.update(_work_elsewhere(graph, makers, names, compiled, stands_for))
    places = {}
    for name, other in stands_for.items():
        way = [maker.outputs[0].name for maker in _way(name if name in makers else other, makers, names)]
        places[name] = replace(compiled[other], way=tuple(compiled[part].label for part in way if part in compiled))
    return places


def _way(name: str, makers: Mapping[str, Op], names: Set[str]) -> Iterator[Op]:
    """The ops of the compiled program that make a value of that name from values that the network has itself."""
    waiting: list[Op | None] = [makers.get(name)]
    visited: set[Op] = set()
    while waiting:
        maker = waiting.pop()
        if maker is None or maker in visited:
            continue
        visited.add(maker)
        yield maker
        waiting += [makers.get(v.name) for v in maker.operands() if not v.is_constant and v.name not in names]


def with_macs(graph: Graph, segments: Sequence[Segment]) -> list[Segment]:
    """The segments with the multiply-accumulates of the network's ops that each computes."""
    counts = [0] * len(segments)
    places = places_of(graph, segments)
    for op in visible_ops(graph):
        place = places.get(op.outputs[0].name)
        if place is not None:
            counts[place.segment] += macs_of(op)
    return [replace(segment, macs=count) for segment, count in zip(segments, counts)]


def share_on_engine(engine_macs: int, macs: int, host_ops: int) -> float:
    """Share of the multiply-accumulates on the engine, 0 to 1; of none at all, 1 where no op is left to the host."""
    return engine_macs / macs if macs else float(not host_ops)


def share_text(counts: Mapping[str, Any], whole: str = "the") -> str:
    """That share in words, of `Program.stats()` or the totals of `hexane.check`."""
    return (
        f"{counts['macs_on_engine']:.1%} of {whole} multiply-accumulates" if counts["macs"] else "nothing to multiply"
    )


def value_name(described: str) -> str:
    """The name in what ``Op.describe`` gives."""
    _, _, quoted = described.partition(" ")
    if quoted[:1] == quoted[-1:] == "'" and "\\" not in quoted:
        return quoted[1:-1]  # plain, as nearly all are
    try:
        return str(ast.literal_eval(quoted)) if quoted else described
    except (ValueError, SyntaxError):
        return quoted


def stand_ins(graph: Graph, compiled: Mapping[str, Any]) -> dict[str, str]:
    """For an op that the passes took apart or folded away: the value in the compiled program that stands for it."""
    stand_ins: dict[str, str] = {}
    ops = visible_ops(graph)
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


def _work_elsewhere(
    graph: Graph,
    makers: Mapping[str, Op],
    names: Set[str],
    compiled: dict[str, OpPlace],
    stands_for: dict[str, str],
) -> dict[str, str]:
    """Ops whose work is not in what stands for them: the product of a sum, the op in front of a copy, by its new name.

    A pass that turns a result around gives its name to the copy behind it; the work is in front of the copy.
    """
    elsewhere = {}
    for op in visible_ops(graph):
        name = op.outputs[0].name
        maker = makers.get(stands_for.get(name, ""))
        if maker is None or _copies(op):
            continue
        sums = bool(macs_of(op))
        if not _copies(maker) and (name in compiled or not sums):
            continue
        way = [part for part in _way(maker.outputs[0].name, makers, names) if part.outputs[0].name in compiled]
        alike = [part for part in way if part.type == op.type] or [
            part for part in way if (macs_of(part) if sums else not _copies(part))
        ]
        if alike:
            elsewhere[name] = alike[0].outputs[0].name
    return elsewhere


def _copies(op: Op) -> bool:
    """True where an op moves numbers and computes none."""
    return has(op, MOVES | PICKS | SAME_VALUES)
