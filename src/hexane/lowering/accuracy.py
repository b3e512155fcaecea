"""Effect of the transformations that changed a network on its numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hexane.counts import counted
from hexane.kernels import fitted_table
from hexane.lowering.transformations import TAKEN, TRANSFORMATIONS

if TYPE_CHECKING:
    from hexane.graph.ir import Graph

TABLES_OF = {"single-tables": ("hard_swish", "mish")}
"""The fitted tables that a transformation puts in place of an exact form."""


@dataclass(frozen=True)
class AccuracyCost:
    """A transformation by name, how many ops its passes changed, and the largest absolute error that it adds to a
    result beyond fp16 rounding (0 where there is none)."""

    name: str
    ops: int
    error: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def __str__(self) -> str:
        what = f"results off by up to {self.error:.1e} more" if self.error else "within fp16 rounding"
        return f"{self.name} ({counted(self.ops, 'op')}, {what})"


def costs(graph: Graph) -> tuple[AccuracyCost, ...]:
    """Changes to a graph in canonical form, the dearest first; what keeps tensors in L2 changes no number."""
    changes: dict[str, int] = graph.metadata.get(TAKEN, {})
    rows = [AccuracyCost(name, ops, _error(graph, name)) for name, ops in changes.items()]
    return tuple(sorted(rows, key=lambda row: (-row.error, row.name)))


def _error(graph: Graph, name: str) -> float:
    """The largest error of a transformation in this graph: that of the tables that are there."""
    if not TRANSFORMATIONS[name].error:
        return 0.0
    tables = [op for op in graph.main.ops if op.type == "engine.table"]
    return max(
        (
            abs(op.arg("scale")) * fitted_table(op.arg("function")).max_error
            for op in tables
            if op.arg("function") in TABLES_OF[name]
        ),
        default=TRANSFORMATIONS[name].error,
    )
