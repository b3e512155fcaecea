"""Whether two walks through a buffer touch no byte in common: as rows of a grid, axis by axis."""

from __future__ import annotations

from typing import NamedTuple

from hexane.codegen.residency.ends import End
from hexane.codegen.residency.layout import Grid


class Steps(NamedTuple):
    """Places ``start``, ``start + step``, ..., ``many`` of them."""

    start: int
    step: int = 1
    many: int = 1

    @property
    def last(self) -> int:
        return self.start + (self.many - 1) * self.step

    def misses(self, other: Steps) -> bool:
        """Whether no place is in both."""
        if self.last < other.start or other.last < self.start:
            return True
        return self.step == other.step > 1 and (self.start - other.start) % self.step != 0


def apart(a: End, b: End, grid: Grid) -> bool:
    """Whether two ends touch different bytes for certain."""
    ours, theirs = _axes(a, grid), _axes(b, grid)
    return ours is not None and theirs is not None and any(x.misses(y) for x, y in zip(ours, theirs))


def _axes(end: End, grid: Grid) -> tuple[Steps, ...] | None:
    """Images, channels, rows and bytes that a walk touches; None where an axis is no step along one of them."""
    dma = end.dma
    if dma is None or dma.interleave != 1:
        return None
    start = grid.steps(dma.offset)
    found = [Steps(at) for at in start]
    found[3] = Steps(start[3], 1, end.extents.w * end.element)
    for count, distance in zip(end.extents, (dma.group, dma.depth, dma.plane, dma.row)):
        if count == 1:
            continue
        steps = grid.steps(distance)
        along = [axis for axis in range(3) if steps[axis]]
        if len(along) != 1 or steps[3] or found[along[0]].many > 1:
            return None
        found[along[0]] = Steps(start[along[0]], steps[along[0]], count)
    return tuple(found)
