"""Apple's program where it is asked for: what its limits leave to the host, and its own forms of ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hexane.graph.whole import can_wrap, wrapped
from hexane.passes.rewriting import sweep
from hexane.restrictions.lowerings import LOWERINGS, Lowering, lowered
from hexane.restrictions.objections import placed_by_apple
from hexane.restrictions.subject import unconverted

if TYPE_CHECKING:
    from hexane.chips import Chip
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Graph, Op, Value
    from hexane.lowering.compilation import Compilation


def leave_to_host(function: Function, compilation: Compilation) -> int:
    """Leave to the host, as given, what Apple's limits leave there, where Apple's program is asked for."""

    def rule(op: Op, b: GraphBuilder) -> Value | tuple[Value, ...] | None:
        if op.block is not function or not can_wrap(op):
            return None
        place = placed_by_apple(op, compilation.chip)
        return wrapped(op, b, place.reason) if place.where == "host" else None

    rules = dict.fromkeys({op.type for op in function.ops}, rule)
    return sweep(function, rules) if compilation.as_apple else 0


def apple_forms(function: Function, compilation: Compilation) -> int:
    """Write softplus, log-sum-exp, slices ... in the forms of Apple's compiler, where its program is asked for."""
    return sweep(function, lowered(compilation.chip, compilation.nodes)) if compilation.as_apple else 0


def applied(graph: Graph, chip: Chip) -> tuple[Lowering, ...]:
    """The forms of Apple's compiler for the chip that the network meets."""
    function, nodes = graph.clone().main, unconverted(graph)
    rows = [(row, rewrite) for row in LOWERINGS if (rewrite := row.rewrites(chip, nodes)) is not None]
    return tuple(row for row, rewrite in rows if sweep(function, dict.fromkeys(row.ops, rewrite)))
