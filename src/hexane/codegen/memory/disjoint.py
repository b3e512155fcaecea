"""Disjoint walks: whether two walks through a buffer touch no byte in common: as rows of a grid, axis by axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hexane.codegen.memory.layout import Grid
from hexane.codegen.operands import Extents
from hexane.codegen.plan import Dma


class EvenSteps(NamedTuple):
    """Places ``start``, ``start + step``, ..., ``many`` of them."""

    start: int
    step: int = 1
    many: int = 1

    @property
    def last(self) -> int:
        return self.start + (self.many - 1) * self.step

    def misses(self, other: EvenSteps) -> bool:
        """True where no place is in both."""
        if self.last < other.start or other.last < self.start:
            return True
        return self.step == other.step > 1 and (self.start - other.start) % self.step != 0


ROW = 2

Places = tuple[EvenSteps, ...]
"""Images, channels, rows and bytes of a grid that a walk touches."""


def places_of(dma: Dma | None, extents: Extents, element: int, grid: Grid) -> Places | None:
    """Bytes that a walk touches; None where an axis of it is no step along one axis of the grid."""
    if dma is None or dma.interleave != 1:
        return None
    start = grid.steps(dma.offset)
    even = [EvenSteps(at) for at in start]
    even[3] = EvenSteps(start[3], 1, extents.w * element)
    for count, distance in zip(extents, (dma.group, dma.depth, dma.plane, dma.row)):
        if count == 1:
            continue
        steps = grid.steps(distance)
        along = [axis for axis in range(3) if steps[axis]]
        if len(along) != 1 or steps[3] or even[along[0]].many > 1:
            return None
        even[along[0]] = EvenSteps(start[along[0]], steps[along[0]], count)
    return tuple(even)


def are_disjoint(ours: Places | None, theirs: Places | None) -> bool:
    """True where two walks touch different bytes for certain."""
    return ours is not None and theirs is not None and any(x.misses(y) for x, y in zip(ours, theirs))


def covers(ours: Sequence[Places | None], theirs: Places | None) -> bool:
    """True where some walks together for certain cover another one: rows after rows of the same channels."""
    if theirs is None:
        return False
    upto = theirs[ROW].start
    for mine in sorted((places for places in ours if places is not None), key=lambda places: places[ROW].start):
        others = (axis for axis in range(4) if axis != ROW)
        if all(_holds(mine[axis], theirs[axis]) for axis in others) and _holds(mine[ROW], EvenSteps(upto)):
            upto = mine[ROW].last + 1
    return upto > theirs[ROW].last


def _holds(ours: EvenSteps, theirs: EvenSteps) -> bool:
    if ours == theirs:
        return True
    return (ours.step == 1 or ours.many == 1) and ours.start <= theirs.start and theirs.last <= ours.last
