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
    owner = np.full(L2_BYTES // UNIT, -1, np.int32)
    found: list[Stay] = []
    last: list[int] = []
    for index, words in enumerate(tasks):
        task = understand(Registers(index, words))
        for place in _read(task):
            for number in np.unique(_units(owner, place)):
                if number >= 0:
                    last[number] = index
        for place, kept in _written(task):
            _units(owner, place)[...] = len(found) if kept else -1
            box = place.region
            span = _span(place)
            used = int((owner == len(found)).sum()) * UNIT if kept else span
            found.append(Stay(box.base, box.base + span, used, index, index, kept))
            last.append(index)
    stays = tuple(Stay(s.start, s.stop, s.used, s.first, end, s.kept) for s, end in zip(found, last))
    change = np.zeros(len(tasks) + 1, np.int64)
    for stay in stays:
        change[stay.first] += stay.used
        change[stay.last + 1] -= stay.used
    return L2Map(stays, tuple(int(n) for n in np.cumsum(change)[:-1]))


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
    rows = task.tile_height
    if isinstance(end, Operand):
        r = task.registers
        rows = (rows - 1) * r["Common.ConvCfg.Sy"] + r["Common.ConvCfg.Kh"]
    return extent._replace(h=min(extent.h, rows))


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
