"""Layout of a buffer's rows in L2, and a walk through DRAM as a region of it.

In DRAM a tensor is a grid of rows: [image][channel][row]; in L2 it is [image][row][channel] with its own strides
(docs/reference/engine-h13.md 6, 7.1). A walk that steps through the grid by a constant step in each axis is a region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hexane.cached import cached_property
from hexane.codegen.operands import Extents, TaskOperand
from hexane.codegen.plan import Dma, Region
from hexane.isa.granules import UNIT
from hexane.rounding import align, ceil_div


@dataclass(frozen=True)
class Grid:
    """A buffer in DRAM: images of ``c`` planes of ``h`` rows; ``row_bytes`` from row to row, ``used`` of them data."""

    n: int
    c: int
    h: int
    row_bytes: int
    used: int

    @cached_property
    def plane(self) -> int:
        return self.h * self.row_bytes

    @cached_property
    def image(self) -> int:
        return self.c * self.plane

    @cached_property
    def flat(self) -> Grid:
        """The same rows, each a channel of its own: a reshape joins channels that tasks read one by one."""
        return Grid(self.n, self.c * self.h, 1, self.row_bytes, self.used)

    def steps(self, distance: int) -> tuple[int, int, int, int]:
        """A distance in bytes as images, channels, rows, bytes."""
        n, rest = divmod(distance, self.image)
        c, rest = divmod(rest, self.plane)
        h, x = divmod(rest, self.row_bytes)
        return n, c, h, x


@dataclass(eq=False)
class RowLayout:
    """The same buffer in L2; ``pad`` bytes behind the channels of each row.

    ``channel``, ``row`` and ``image`` are the bytes from one to the next, ``size`` those of all.
    """

    grid: Grid
    pad: int = 0

    channel: int = field(init=False)
    row: int = field(init=False)
    image: int = field(init=False)
    size: int = field(init=False)
    _regions: dict[tuple[object, ...], Region | None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        grid = self.grid
        self.channel = align(grid.used, UNIT)
        self.row = grid.c * self.channel + self.pad
        self.image = grid.h * self.row
        self.size = grid.n * self.image
        self._regions = {}

    def distance(self, steps: Sequence[int]) -> int:
        n, c, h, x = steps
        return n * self.image + c * self.channel + h * self.row + x

    def region(self, dma: Dma, extents: Extents, element: int) -> Region | None:
        """The region, counted from the buffer's own base, that a walk covers; None where its steps vary."""
        if dma.interleave != 1 or dma.element != element:
            return None
        walk = dma.offset, dma.row, dma.plane, dma.depth, dma.group, element, extents
        if walk not in self._regions:
            self._regions[walk] = self._region(dma, extents, element)
        return self._regions[walk]

    def _region(self, dma: Dma, extents: Extents, element: int) -> Region | None:
        grid = self.grid
        start = n, c, h, x = grid.steps(dma.offset)
        if x % UNIT:
            return None
        strides = [0, 0, 0, 0]
        for axis, distance in enumerate((dma.group, dma.depth, dma.plane, dma.row)):
            more = extents[axis] - 1
            if more == 0:
                continue
            steps = along_n, along_c, along_h, along_x = grid.steps(distance)
            stride = strides[axis] = self.distance(steps)
            if stride == 0 or stride % UNIT:
                return None
            n, c, h, x = n + more * along_n, c + more * along_c, h + more * along_h, x + more * along_x
        if n >= grid.n or c >= grid.c or h >= grid.h or x + extents.w * element > grid.used:
            return None
        group, depth, channel, row = strides
        channel = channel or self.channel
        row = row or extents.c * channel
        return Region(self.distance(start), channel, row, depth or extents.c * channel, group)


def grid_of(ends: Sequence[TaskOperand], shape: tuple[int, int, int, int, int] | None, size: int) -> Grid | None:
    """The grid behind all walks through a buffer.

    Parameters
    ----------
    ends : the ends that read or write it.
    shape : n, c, h, bytes from row to row, bytes of a row that are data, where the buffer is a value of the graph.
    size : its bytes.
    """
    if shape is not None:
        n, c, h, row, used = shape
        return Grid(n, c, h, row, used)
    steps: set[int] = set()
    used = 0
    for end in ends:
        assert end.dma is not None
        dma = end.dma
        for count, distance in zip(end.extents, (dma.group, dma.depth, dma.plane, dma.row)):
            if count > 1 and distance:  # none: one line that is read again and again
                steps.add(distance)
    if not steps:
        row = plane = align(size, 64)
    else:
        row = min(steps)
        planes = sorted(s for s in steps if s > row and s % row == 0) or [align(size, row)]
        plane = min(planes, key=lambda p: (_turns(ends, row, p), p))
    for end in ends:
        assert end.dma is not None
        used = max(used, end.dma.offset % row + end.extents.w * end.element)
    if row % 64 or used > row or plane % row:
        return None
    return Grid(1, ceil_div(size, plane), plane // row, row, used)


def _turns(ends: Sequence[TaskOperand], row: int, plane: int) -> int:
    """Number of walks that do not step from row to row by rows and from channel to channel by planes of these bytes."""
    return sum(
        (end.extents.h > 1 and not (end.dma.row % row == 0 and 0 < end.dma.row < plane))
        or (end.extents.c > 1 and (end.dma.plane < plane or end.dma.plane % plane != 0))
        for end in ends
        if end.dma is not None
    )
