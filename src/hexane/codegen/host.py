"""Host segments: a part of a graph as a graph of its own, for the float32 reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hexane.graph.ir import Function, Graph, Op, Value
from hexane.graph.rewrite import function_from
from hexane.graph.whole import HOST_OP, written_out
from hexane.passes.rewriting import sweep


def part_of(function: Function, ops: Sequence[Op], inputs: tuple[Value, ...], outputs: tuple[Value, ...]) -> Graph:
    """Ops for the engine as a graph; where they are all of a function ``main``, the function itself, not a copy."""
    whole = len(ops) == len(function.ops) and inputs == function.inputs and outputs == function.outputs
    if whole and function.name == "main" and not function.attributes:
        return Graph([function])
    return subgraph(ops, inputs, outputs, function.opset)


def subgraph(ops: Sequence[Op], inputs: Iterable[Value], outputs: Iterable[Value], opset: str) -> Graph:
    """The ops as function ``main`` with these inputs and outputs; constant data are shared."""
    function = function_from(ops, inputs, outputs, "main", opset)
    sweep(function, {HOST_OP: written_out})
    return Graph([function])
