"""A program with an adapter's constants beside the base: compiled once, a swap writes the adapter's elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane import chips
from hexane.mil.update import Update, checked_weights, renewed

if TYPE_CHECKING:
    from hexane.chips import Chip
    from hexane.graph import Graph
    from hexane.program import Program


@dataclass
class PatchedBase:
    """A compiled network, and where the elements of its constants stand (found once; ``hexane.mil.update``).

    ``level``: "engine" patches the bytes of programs, "graph" the networks that they were compiled from.
    """

    graph: Graph
    chip: Chip
    level: str
    program: Program | None
    places: dict[tuple[str, ...], Any] = field(default_factory=dict)
    is_loaded = False

    @classmethod
    def of(cls, graph: Graph, chip: str, level: str) -> PatchedBase:
        from hexane.codegen import compile

        return cls(graph, chips.get(chip), level, compile(graph, chip=chip))

    def load(self) -> None:
        """Nothing: programs go to sessions of their own."""

    def close(self) -> None:
        """Nothing."""

    def patched(self, arrays: Mapping[str, np.ndarray]) -> tuple[Program, Update]:
        """Another program with these constants, and how they got there; this one stays, whoever runs it."""
        other = replace(self, graph=self.graph.clone())
        update = renewed(other, checked_weights(other.graph, arrays))
        assert other.program is not None
        return other.program, update
