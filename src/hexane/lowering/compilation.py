"""Purpose of a compilation, as one record: every pass, rule and recipe gets it as an argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hexane.chips import Chip, Generation
from hexane.lowering.transformations import Transformations


@dataclass(frozen=True)
class Compilation:
    """The chip whose prices and limits decide, and the transformations that are on.

    ``as_apple``: ops are taken apart as Apple's compiler does, wrong numbers and all (``restrictions.lowerings``).
    ``nodes``: of a network that coremltools has still to convert, the nodes of its file by result (name, type).
    ``hexane.codegen.context.Context`` is a compilation that knows its target too.
    """

    chip: Chip
    on: Transformations = field(default_factory=Transformations)
    as_apple: bool = False
    nodes: Mapping[str, tuple[str, str]] | None = field(default=None, compare=False)

    @property
    def limits(self) -> Generation:
        """Limits of the chip's engine."""
        return self.chip.generation
