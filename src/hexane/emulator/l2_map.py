"""What stands in L2 while a program runs, read from its registers: which bytes, from which task to which.

A *stay* begins with the task that leaves data in L2, or keeps a source there, and ends with the last task that reads
them. A *passage* is what a task streams through: a window, a ring, a buffer (docs/reference/engine-h13.md 7, 12.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from hexane.chips import L2_BYTES
from hexane.emulator.ends import Operand, Result, SourceType
from hexane.emulator.l2 import UNIT, Region
from hexane.emulator.registers import Registers
from hexane.emulator.strides import Extent
from hexane.emulator.task import Task, understand
from hexane.errors import EmulationError
from hexane.isa import Task as Words
from hexane.isa.tiles import source_rows


@dataclass(frozen=True)
class Stay:
    """Bytes ``start`` to ``stop`` of L2 from task ``first`` to task ``last``; ``used``: how many of them hold data.

    ``kept`` is False for a passage, which lasts one task. Of an automatic buffer only the base is known: its row of a
    patch is counted, as in the emulator's sanitizer.
    """

    start: int
    stop: int
    used: int
    first: int
    last: int
    kept: bool


@dataclass(frozen=True)
class L2Map:
    """All stays and passages of one engine program, by first task, and the bytes in use while each task runs."""

    stays: tuple[Stay, ...]
    in_use: tuple[int, ...]

    @property
    def peak(self) -> int:
        """Most bytes in use at one task."""
        return max(self.in_use, default=0)

    @property
    def end(self) -> int:
        """The highest address that is in use."""
        return max((stay.stop for stay in self.stays), default=0)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for reports."""
        stays = [asdict(stay) for stay in self.stays]
        return {"peak": self.peak, "end": self.end, "in_use": list(self.in_use), "stays": stays}


def l2_map(tasks: Sequence[Words]) -> L2Map:
    """The map of one engine program. EmulationError for a task that the emulator does not know."""
    cells = _Cells(len(tasks))
    found: list[Stay] = []
    last: list[int] = []
    for index, words in enumerate(tasks):
        task = understand(Registers(index, words))
        for place in _read(task):
            for number in cells.read(place, index):
                last[number] = index
        for place, kept in _written(task):
            used = cells.write(place, index, len(found) if kept else NOBODY)
            start = place.region.base
            found.append(Stay(start, start + _span(place), used * UNIT, index, index, kept))
            last.append(index)
    stays = tuple(Stay(s.start, s.stop, s.used, s.first, end, s.kept) for s, end in zip(found, last))
    return L2Map(stays, cells.in_use())


NOBODY = -1


class _Cells:
    """Every 16 bytes of L2: whose they are, since when, and when they were read last."""

    def __init__(self, tasks: int) -> None:
        self.owner = np.full(L2_BYTES // UNIT, NOBODY, np.int32)
        self.since = np.zeros_like(self.owner)
        self.seen = np.zeros_like(self.owner)
        self.change = np.zeros(tasks + 1, np.int64)

    def read(self, place: _Place, index: int) -> list[int]:
        """Note that a task reads a region; the numbers of the stays that it finds there."""
        _units(self.seen, place)[...] = index
        return [int(number) for number in np.unique(_units(self.owner, place)) if number >= 0]

    def write(self, place: _Place, index: int, number: int) -> int:
        """Give a region to a stay, or for one task to nobody; how many cells that are."""
        mark = np.zeros(len(self.owner), np.bool_)
        _units(mark, place)[...] = True
        (cells,) = np.nonzero(mark)
        self._end(cells, index - 1)  # a result over its own operand counts once
        self.change[index] += len(cells)
        if number == NOBODY:
            self.change[index + 1] -= len(cells)
        self.owner[cells], self.since[cells], self.seen[cells] = number, index, index
        return len(cells)

    def _end(self, cells: np.ndarray, index: int) -> None:
        cells = cells[self.owner[cells] != NOBODY]
        until = np.maximum(np.minimum(self.seen[cells], index), self.since[cells] - 1)
        np.subtract.at(self.change, until + 1, 1)

    def in_use(self) -> tuple[int, ...]:
        """Bytes in use at every task, when all have been seen."""
        self._end(np.arange(len(self.owner)), len(self.change))
        return tuple(int(n) * UNIT for n in np.cumsum(self.change)[:-1])


class _Place(NamedTuple):
    """A region and the part of it that is in L2 at one time."""

    region: Region
    extent: Extent


def _read(task: Task) -> Iterator[_Place]:
    for operand in (task.source1, task.source2):
        if operand is not None and operand.kind is SourceType.RESIDENT:
            yield _Place(operand.region, operand.stored)


def _written(task: Task) -> Iterator[tuple[_Place, bool]]:
    for operand in (task.source1, task.source2):
        if operand is None or operand.kind in (SourceType.RESIDENT, SourceType.STRIPS):
            continue
        if operand.kind is SourceType.KEEP:
            yield _Place(operand.region, operand.stored), True
        else:
            yield _Place(operand.region, operand.region.window(_rows(task, operand))), False
    result = task.result
    if result.automatic:
        width = min(result.stored.w, 128)
        yield _Place(result.region, result.stored._replace(g=1, d=1, c=1, h=1, w=width)), False
    elif result.kind in (SourceType.STREAM, SourceType.STRIPS):
        yield _Place(result.region, result.region.window(_rows(task, result))), False
    else:
        yield _Place(result.region, result.stored), True


def _rows(task: Task, end: Operand | Result) -> Extent:
    """The extent of one tile."""
    extent = end.stored
    if task.tile_height >= task.hout:
        return extent
    if not isinstance(end, Operand):
        return extent._replace(h=min(extent.h, task.tile_height))
    r = task.registers
    return extent._replace(h=source_rows(task.tile_height, extent.h, r["Common.ConvCfg.Kh"], r["Common.ConvCfg.Sy"]))


def _span(place: _Place) -> int:
    """Bytes from the region's base to its last unit."""
    region, extent = place.region, place.extent
    last = sum((n - 1) * s for n, s in zip(extent[:4], region.strides()[:4]))
    return last + -(-extent.w * region.element // UNIT) * UNIT


def _units(owner: np.ndarray, place: _Place) -> np.ndarray:
    region, extent = place.region, place.extent
    if region.base + _span(place) > L2_BYTES:
        raise EmulationError(f"a region of {extent} elements ends beyond L2's {L2_BYTES:#x} bytes", address=region.base)
    shape = (*extent[:4], -(-extent.w * region.element // UNIT))
    steps = [s // UNIT * owner.itemsize for s in region.strides()[:4]]
    return as_strided(owner[region.base // UNIT :], shape, (*steps, owner.itemsize))
