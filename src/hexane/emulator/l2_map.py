"""Contents of L2 while a program runs, read from its registers: which bytes, from which task to which.

A *stay* begins with the task that leaves data in L2, or keeps a source there, and ends with the last task that reads
them. A *passage* is what a task streams through: a window, a ring, a buffer (docs/reference/engine-h13.md 7, 12.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexane import chips
from hexane.emulator.ends import OperandSource
from hexane.emulator.l2 import UNIT, Place
from hexane.emulator.regions import operands, result, stays
from hexane.emulator.registers import Registers
from hexane.emulator.task import EngineTask, understand
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
    """All stays and passages of an engine program, by first task, the bytes in use at each task, and the size of L2."""

    stays: tuple[Stay, ...]
    in_use: tuple[int, ...]
    room: int

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
        stays = [dict(vars(stay)) for stay in self.stays]
        return {"peak": self.peak, "end": self.end, "room": self.room, "in_use": list(self.in_use), "stays": stays}


def l2_map(tasks: Sequence[Words]) -> L2Map:
    """The map of one engine program. EmulationError for a task that the emulator does not know."""
    cells = _Cells(len(tasks), chips.generation(tasks[0].generation).l2_bytes if tasks else 0)
    stay_list: list[Stay] = []
    last: list[int] = []
    for index, words in enumerate(tasks):
        task = understand(Registers(index, words))
        for place in (place for operand, place in operands(task) if operand.kind is OperandSource.RESIDENT):
            for number in cells.read(place, index):
                last[number] = index
        for place, is_resident in _written(task):
            owners = cells.write(place, index, len(stay_list) if is_resident else NOBODY)
            start = place.region.base
            stay_list.append(Stay(start, start + place.span, owners * UNIT, index, index, is_resident))
            last.append(index)
    stays = tuple(Stay(s.start, s.stop, s.used, s.first, end, s.kept) for s, end in zip(stay_list, last))
    return L2Map(stays, cells.in_use(), cells.room)


NOBODY = -1


class _Cells:
    """Every 16 bytes of L2: whose they are, since when, and when they were read last."""

    def __init__(self, tasks: int, room: int) -> None:
        self.room = room
        self.owner = np.full(room // UNIT, NOBODY, np.int32)
        self.since = np.zeros_like(self.owner)
        self.seen = np.zeros_like(self.owner)
        self.change = np.zeros(tasks + 1, np.int64)

    def read(self, place: Place, index: int) -> list[int]:
        """Note that a task reads a region; the numbers of the stays that it finds there."""
        place.units(self.seen)[...] = index
        return [int(number) for number in np.unique(place.units(self.owner)) if number >= 0]

    def write(self, place: Place, index: int, number: int) -> int:
        """Give a region to a stay, or for one task to nobody; how many cells that are."""
        (cells,) = np.nonzero(place.marked(self.room))
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


def _written(task: EngineTask) -> Iterator[tuple[Place, bool]]:
    for operand, place in operands(task):
        if operand.kind not in (OperandSource.RESIDENT, OperandSource.STRIPS):
            yield place, operand.kind is OperandSource.KEEP
    yield result(task), stays(task)
