"""The L2 buffer between the DMA engines and the two compute units (docs/reference/engine-h13.md 7), as real bytes.

A shadow map with one entry per 16 bytes says who wrote there: 0 nobody, ``t + 1`` task t left data that later tasks may
read, ``-(t + 1)`` task t streamed through (a window, ring or automatic buffer whose content is undefined afterwards,
docs/reference/engine-h13.md 12.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hexane.emulator.strides import Extent, last_byte, overlaps_itself, strided
from hexane.errors import EmulationError
from hexane.frozen import slot_init
from hexane.isa.granules import UNIT
from hexane.rounding import align, ceil_div


@slot_init
@dataclass(frozen=True, slots=True)
class L2Region:
    """Place of a tensor in L2: base and strides in bytes, and the size of an element."""

    base: int
    group: int
    depth: int
    channel: int
    row: int
    element: int

    def strides(self) -> tuple[int, int, int, int, int]:
        """Byte strides in the order of an Extent."""
        return (self.group, self.depth, self.channel, self.row, self.element)

    def holds(self, width: int) -> bool:
        """True where a whole row of ``width`` pixels fits between two channels (or the region is no window at all)."""
        return self.channel >= width * self.element

    def window(self, extent: Extent) -> Extent:
        """The part of a streamed tensor that is in L2 at one time: one group, and the columns that fit a channel."""
        columns = extent.w if self.holds(extent.w) else max(1, self.channel // self.element)
        return extent._replace(g=1, w=columns)


class Place:
    """A region and the part of it that is in L2 at one time: bytes ``start`` to ``stop``, all of them if ``dense``."""

    __slots__ = ("_distinct", "dense", "end", "extent", "region", "row", "start", "stop")

    def __init__(self, region: L2Region, extent: Extent) -> None:
        self.region, self.extent = region, extent
        g, d, c, h, w = extent
        self.row = ceil_div(w * region.element, UNIT)
        row = UNIT * self.row
        span = (g - 1) * region.group + (d - 1) * region.depth + (c - 1) * region.channel + (h - 1) * region.row + row
        self.start, self.stop = region.base, region.base + span
        self.dense = span == row * h * c * d * g and (h == 1 or region.row == row)
        self.end = last_byte(region.base, extent, region.strides(), region.element)
        self._distinct: bool | None = None

    @property
    def span(self) -> int:
        """Bytes from the region's base to its last unit."""
        return self.stop - self.start

    @property
    def is_distinct(self) -> bool:
        """True where no two elements share a byte."""
        if self._distinct is None:
            self._distinct = not overlaps_itself(self.extent, self.region.strides(), self.region.element)
        return self._distinct

    def units(self, cells: np.ndarray) -> np.ndarray:
        """The entries of an array with one per 16 bytes of L2 that lie under the region; a view."""
        region, size, room = self.region, cells.itemsize, UNIT * len(cells)
        if self.stop > room:
            raise EmulationError(
                f"a region of {self.extent} elements ends beyond L2's {room:#x} bytes", address=region.base
            )
        steps = [s // UNIT * size for s in (region.group, region.depth, region.channel, region.row)]
        return np.ndarray((*self.extent[:4], self.row), cells.dtype, cells, region.base // UNIT * size, (*steps, size))

    def marked(self, room: int) -> np.ndarray:
        """Blocks of 16 bytes under the region, of an L2 of ``room`` bytes."""
        marks = np.zeros(room // UNIT, np.bool_)
        self.units(marks)[...] = True
        return marks

    def near(self, other: Place) -> bool:
        """True where they share a byte, gaps counted."""
        return self.start < other.stop and other.start < self.stop

    def meets(self, other: Place, room: int) -> bool:
        """True where they share 16 bytes of an L2 of ``room`` bytes."""
        return self.near(other) and ((self.dense and other.dense) or bool(self.units(other.marked(room)).any()))

    def covers(self, other: Place) -> bool:
        """True where the other one surely lies in this one."""
        if self.dense:
            return self.start <= other.start and other.stop <= self.stop
        return self.region == other.region and self.extent == other.extent


class L2Marks:
    """Last task on every 16 bytes of an L2 of ``room`` bytes: the latest by their places, the others in a map."""

    def __init__(self, nobody: int, room: int) -> None:
        self.nobody, self.room = nobody, room
        self._recent: list[tuple[int, Place]] = []
        self._map: np.ndarray | None = None

    def add(self, who: int, place: Place) -> None:
        """Note that somebody touched a place."""
        self._recent.append((who, place))
        if len(self._recent) > MOST_RECENT:
            self.map()

    def forget(self, settled: int) -> None:
        """Leave out who is not later: nobody asks for them any more."""
        recent = self._recent
        if recent and recent[0][0] <= settled:
            self._recent = [(who, place) for who, place in recent if who > settled]

    def map(self) -> np.ndarray:
        """One number for each 16 bytes."""
        if self._map is None:
            self._map = np.full(self.room // UNIT, self.nobody, np.int32)
        for who, place in self._recent:
            place.units(self._map)[...] = who
        self._recent.clear()
        return self._map

    def all_from(self, place: Place) -> int | None:
        """Last task on all of a place; None where that takes a look at the map."""
        for who, other in reversed(self._recent):
            if other.near(place):
                return who if other.covers(place) else None
        return None

    def last(self, place: Place, settled: int) -> int:
        """The latest who touched some of a place, if that is later than ``settled``; else nobody."""
        for who, other in reversed(self._recent):
            if who <= settled:
                return self.nobody
            if other.meets(place, self.room):
                return who
        latest = self.nobody if self._map is None else int(place.units(self._map).max())
        return latest if latest > settled else self.nobody


SMALLEST_WINDOW = 16
"""Columns that any window of Apple's programs holds: 16 of strips, else 32 (docs/reference/engine-h13.md 7.1)."""
WIDEST_ROW = 128
"""Columns of a row that stands in L2 whole; wider ones pass through a window (docs/reference/engine-h13.md 7.1)."""
MOST_RECENT = 32
"""Places that are compared one by one."""


@dataclass
class L2:
    """``room`` bytes, their shadow, and the sanitizer's three questions: inside, no overlap, written before."""

    room: int
    sanitize: bool = True
    high: int = 0
    """Bytes from the start that some region has reached."""

    def __post_init__(self) -> None:
        self.data = np.zeros(self.room, np.uint8)
        self.shadow = L2Marks(0, self.room)

    def clear(self) -> None:
        """All bytes zero, as at the start; who may read what stays as it is."""
        self.data[: self.high] = 0

    def view(self, place: Place, *, task: int, register: str) -> np.ndarray:
        """The elements of a place as unsigned integers, axes (g, d, c, h, w); a view, not a copy."""
        self.require_inside(place, task=task, register=register)
        region = place.region
        return strided(self.data, region.base, place.extent, region.strides(), region.element)

    def read(self, place: Place, *, task: int, register: str) -> np.ndarray:
        """A resident operand: the same view, after asking that some task left these bytes for others."""
        view = self.view(place, task=task, register=register)
        if self.sanitize and (self.shadow.all_from(place) or 0) <= 0:
            units = place.units(self.shadow.map())
            lowest = int(units.min())
            if lowest <= 0:
                where = np.unravel_index(int(np.argmin(units)), units.shape)
                steps = (*place.region.strides()[:4], UNIT)
                address = place.region.base + sum(int(i) * s for i, s in zip(where, steps))
                why = (
                    "no task wrote" if lowest == 0 else f"task[{-lowest - 1}] streamed through and left nothing defined"
                )
                raise EmulationError(f"reads L2 where {why}", task=task, register=register, address=address)
        return view

    def write(self, place: Place, *, task: int, register: str) -> np.ndarray:
        """A view to store a tensor into, which later tasks may read."""
        view = self.view(place, task=task, register=register)
        self.require_distinct(place, task=task, register=register)
        self.shadow.add(task + 1, place)
        return view

    def stream(self, place: Place, *, task: int, register: str) -> None:
        """Note that a window, a ring or a buffer passes through these bytes: their content is undefined afterwards."""
        self.require_inside(place, task=task, register=register)
        self.require_distinct(place, task=task, register=register)
        self.shadow.add(-(task + 1), place)

    def require_rows(self, region: L2Region, extent: Extent, *, strict: bool, task: int, register: str) -> None:
        """Refuse a channel stride that holds no whole row of a tensor passing through although L2 has room for it.

        An M1 hangs on a wrong one (docs/reference/engine-h13.md 4.10, SILICON). Apple's programs keep whole rows of up
        to 128 columns wherever these fit behind the base (``strict``; not single channels of the planar engine and of
        several groups), and 16 columns and more of others: 1,414 tasks, no exception (APPLE).
        """
        if region.holds(extent.w):
            return
        row = align(extent.w * region.element, UNIT)
        whole = region.base + row * extent.c * extent.d * extent.h
        if region.channel < SMALLEST_WINDOW * region.element or (
            strict and extent.w <= WIDEST_ROW and whole < self.room
        ):
            raise EmulationError(
                f"{region.channel} bytes from channel to channel hold no row of {extent.w} columns ({row} bytes)",
                task=task,
                register=register,
                address=region.base,
            )

    def require_inside(self, place: Place, *, task: int, register: str) -> None:
        """Refuse a place that ends beyond the buffer; without this the model could not go on, so it is always on."""
        if place.end > self.room:
            raise EmulationError(
                f"region of {place.extent} elements ends at {place.end:#x} of L2, which has {self.room:#x} bytes",
                task=task,
                register=register,
                address=place.region.base,
            )
        self.high = max(self.high, place.end)

    def require_distinct(self, place: Place, *, task: int, register: str) -> None:
        """Refuse strides with which a tensor that is written would overwrite itself."""
        if self.sanitize and not place.is_distinct:
            raise EmulationError(
                f"the strides of the region make its {place.extent} elements overlap",
                task=task,
                register=register,
                address=place.region.base,
            )
