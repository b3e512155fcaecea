"""The 2 MiB buffer between the DMA engines and the two compute units (docs/reference/engine-h13.md 7), as real bytes.

A shadow map with one entry per 16 bytes says who wrote there: 0 nobody, ``t + 1`` task t left data that later tasks may
read, ``-(t + 1)`` task t streamed through (a window, ring or automatic buffer whose content is undefined afterwards,
docs/reference/engine-h13.md 12.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import as_strided

from hexane.chips import L2_BYTES
from hexane.emulator.strides import Extent, last_byte, overlaps_itself, strided
from hexane.errors import EmulationError

UNIT = 16  # bytes; every L2 address and stride is a multiple


@dataclass(frozen=True)
class Region:
    """Where a tensor stands in L2: base and strides in bytes, and the size of an element."""

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
        """Whether a whole row of ``width`` pixels fits between two channels (or the region is no window at all)."""
        return self.channel >= width * self.element

    def window(self, extent: Extent) -> Extent:
        """The part of a streamed tensor that is in L2 at one time: one group, and the columns that fit a channel."""
        columns = extent.w if self.holds(extent.w) else max(1, self.channel // self.element)
        return extent._replace(g=1, w=columns)


@dataclass
class L2:
    """Bytes, shadow, and the sanitizer's three questions: inside, no overlap, written before."""

    data: np.ndarray = field(default_factory=lambda: np.zeros(L2_BYTES, np.uint8))
    shadow: np.ndarray = field(default_factory=lambda: np.zeros(L2_BYTES // UNIT, np.int32))
    sanitize: bool = True
    high: int = 0
    """Bytes from the start that some region has reached."""

    def clear(self) -> None:
        """All bytes zero, as at the start; who may read what stays as it is."""
        self.data[: self.high] = 0

    def view(self, region: Region, extent: Extent, *, task: int, register: str) -> np.ndarray:
        """The elements of a region as unsigned integers, axes (g, d, c, h, w); a view, not a copy."""
        self.require_inside(region, extent, task=task, register=register)
        return strided(self.data, region.base, extent, region.strides(), region.element)

    def read(self, region: Region, extent: Extent, *, task: int, register: str) -> np.ndarray:
        """A resident operand: the same view, after asking that some task left these bytes for others."""
        view = self.view(region, extent, task=task, register=register)
        if self.sanitize:
            units = self._units(region, extent)
            lowest = int(units.min())
            if lowest <= 0:
                where = np.unravel_index(int(np.argmin(units)), units.shape)
                address = region.base + sum(int(i) * s for i, s in zip(where, (*region.strides()[:4], UNIT)))
                why = (
                    "no task wrote" if lowest == 0 else f"task[{-lowest - 1}] streamed through and left nothing defined"
                )
                raise EmulationError(f"reads L2 where {why}", task=task, register=register, address=address)
        return view

    def write(self, region: Region, extent: Extent, *, task: int, register: str) -> np.ndarray:
        """A view to store a tensor into, which later tasks may read."""
        view = self.view(region, extent, task=task, register=register)
        self.require_distinct(region, extent, task=task, register=register)
        self._units(region, extent)[...] = task + 1
        return view

    def stream(self, region: Region, extent: Extent, *, task: int, register: str) -> None:
        """Note that a window, a ring or a buffer passes through these bytes: their content is undefined afterwards."""
        self.require_inside(region, extent, task=task, register=register)
        self.require_distinct(region, extent, task=task, register=register)
        self._units(region, extent)[...] = -(task + 1)

    def require_inside(self, region: Region, extent: Extent, *, task: int, register: str) -> None:
        """Refuse a region that ends beyond the buffer; without this the model could not go on, so it is always on."""
        end = last_byte(region.base, extent, region.strides(), region.element)
        if end > L2_BYTES:
            raise EmulationError(
                f"region of {extent} elements ends at {end:#x} of L2, which has {L2_BYTES:#x} bytes",
                task=task,
                register=register,
                address=region.base,
            )
        self.high = max(self.high, end)

    def require_distinct(self, region: Region, extent: Extent, *, task: int, register: str) -> None:
        """Refuse strides with which a tensor that is written would overwrite itself."""
        if self.sanitize and overlaps_itself(extent, region.strides(), region.element):
            raise EmulationError(
                f"the strides of the region make its {extent} elements overlap",
                task=task,
                register=register,
                address=region.base,
            )

    def _units(self, region: Region, extent: Extent) -> np.ndarray:
        """The shadow entries under a region (bases and strides are multiples of 16)."""
        shape = (*extent[:4], -(-extent.w * region.element // UNIT))
        steps = [s // UNIT * self.shadow.itemsize for s in region.strides()[:4]]
        return as_strided(self.shadow[region.base // UNIT :], shape, (*steps, self.shadow.itemsize))
