"""Placement by Apple's compiler: one answer, whatever file the network comes from."""

from __future__ import annotations

from hexane import passes
from hexane.chips import Chip
from hexane.graph.ir import Graph
from hexane.lowering.compilation import Compilation
from hexane.program import ENGINE
from hexane.program.attribution import idle_ops, stand_ins, visible_ops
from hexane.restrictions.objections import OpPlacement, placed_by_apple

AS_GIVEN = (
    "fold_constants",
    "remove_identities",
    "recognise_activations",
    "recognise_norms",
    "fold_norms",
    "fold_scales",
    "fold_padding",
)
"""Passes whose results are networks as a converter would have written them: nothing in them is a choice of ours."""


def apple_places(graph: Graph, chip: Chip) -> dict[str, OpPlacement]:
    """Place of each op of a network by Apple's compiler, by the name of its first result; every command asks here.

    An op that converters fold into another one is where that one is.
    """
    form = passes.run(graph, Compilation(chip), AS_GIVEN)
    folded = {op.outputs[0].name: op for op in visible_ops(form)}
    ops = visible_ops(graph)
    stands_for, idle = stand_ins(ops, folded), idle_ops(ops, folded)
    places = {}
    for op in ops:
        name = op.outputs[0].name
        place, other = placed_by_apple(op, chip), folded.get(stands_for.get(name, ""))
        if other is not None and (other.type != op.type or other.outputs[0].name != name):
            joint = placed_by_apple(other, chip)
            if joint.where != place.where and not (name in idle and place.where == ENGINE):
                with_it = "computed as part of" if joint.where == "engine" else "joined to"
                place = OpPlacement(joint.where, f"{with_it} {other.describe()}: {joint.reason}", joint.evidence,
                                  joint.advice, joint.rules)  # fmt: skip
        places[name] = place
    return places
