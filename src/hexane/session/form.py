"""Options under which a run compiles a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hexane.chips import Chip
from hexane.codegen import compile
from hexane.codegen.driver import canonical, context_of, parts_of
from hexane.graph import Graph
from hexane.lowering.compilation import Compilation
from hexane.lowering.transformations import active
from hexane.program import Program


@dataclass(frozen=True)
class Form:
    """Options of a compilation: the dialect, the transformations that are left out, and the accuracy."""

    dialect: str = "default"
    without: tuple[str, ...] = ()
    accuracy: str = "exact"

    @property
    def as_(self) -> str:
        """Whose program it is: "apple" (as far as its numbers are known) or "hexane"."""
        return "apple" if self.dialect == "apple" else "hexane"

    def __str__(self) -> str:
        """Words on a form that is not the usual one; empty for that."""
        dialect = f", dialect {self.dialect}" if self.dialect != "default" else ""
        accuracy = f", accuracy {self.accuracy}" if self.accuracy != "exact" else ""
        return dialect + accuracy + (f", without {', '.join(self.without)}" if self.without else "")

    def compiled(self, graph: Graph, chip: Chip, scaling: Mapping[str, int] | None = None) -> Program:
        return compile(
            graph, chip=chip, dialect=self.dialect, without=self.without, scaling=scaling, accuracy=self.accuracy
        )

    def parts(self, graph: Graph, chip: Chip, scaling: Mapping[str, int] | None = None) -> list[tuple[str, Graph]]:
        """The parts of the program, as ``NetworkRun.parts`` gives them, without tasks."""
        context = context_of(chip, self.dialect, self.without, accuracy=self.accuracy)
        return parts_of(graph, context, scaling)

    def canonical(self, graph: Graph, chip: Chip, scaling: Mapping[str, int] | None = None) -> Graph:
        """The graph in canonical form, for a chip that no program is written for."""
        on = active(self.dialect, self.without, generation=chip.generation_name, accuracy=self.accuracy)
        return canonical(graph, Compilation(chip, on, self.as_ == "apple"), scaling=scaling)


DEFAULT = Form()
