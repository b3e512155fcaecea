"""Apple's own forms of ops whose numbers differ from hexane's: only where Apple's program is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hexane.passes.rewriting import sweep
from hexane.restrictions.lowerings import LOWERINGS, Lowering, lowered

if TYPE_CHECKING:
    from hexane.chips import Chip
    from hexane.graph.ir import Function, Graph
    from hexane.lowering.compilation import Compilation


def apple_forms(function: Function, compilation: Compilation) -> int:
    """Where Apple's program is asked for: softplus, log-sum-exp, slices ... in the forms of Apple's compiler."""
    return sweep(function, lowered(compilation.chip)) if compilation.as_apple else 0


def applied(graph: Graph, chip: Chip) -> tuple[Lowering, ...]:
    """The forms of Apple's compiler for the chip that the network meets."""
    function = graph.clone().main
    rows = [row for row in LOWERINGS if row.is_on(chip)]
    return tuple(row for row in rows if sweep(function, dict.fromkeys(row.ops, row.rewrite)))
