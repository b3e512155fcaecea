"""The tile DMA engines: surfaces in DRAM, five axes, any strides, interleave.

Source: docs/reference/engine-h13.md 4.4, 4.5, 8.6.

A surface with interleave I stores channels in blocks of I: element (c, x) of a row stands at
``(c div I) * plane + (x * I + c mod I) * element``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hexane.arithmetic.copying import copy
from hexane.emulator.ends import OperandSurface
from hexane.emulator.memory import DramBuffer, Memory
from hexane.emulator.registers import Registers
from hexane.emulator.strides import Extent, last_byte, overlaps_itself, strided
from hexane.isa.channels import CONST, TEXT
from hexane.isa.granules import GRANULE
from hexane.rounding import ceil_div

Views = list[np.ndarray]
"""The places of a tensor in a buffer, axes (g, d, block, lane, h, w): whole blocks of channels, then the rest."""


def source(memory: Memory, surface: OperandSurface, extent: Extent, r: Registers, *, sanitize: bool = True) -> Views:
    """A tensor's place for reading, checked."""
    buffer = _buffer(memory, surface, r, "read")
    views = []
    for block in _blocks(surface, extent):
        base, shape, strides = block
        _require_inside(buffer, surface, block, r, f"reads {extent}")
        if sanitize and buffer.written is not None:
            _require_written(buffer, surface, base, shape, strides, r)
        views.append(strided(buffer.data, base, shape, strides, surface.element))
    return views


def gather(views: Views) -> np.ndarray:
    """The elements at these places, axes (g, d, c, h, w), as unsigned integers; a view where the layout allows one."""
    return _planar(views[0]) if len(views) == 1 else np.concatenate([_planar(view) for view in views], axis=2)


def parts(views: Views) -> list[tuple[slice, np.ndarray]]:
    """The same as channels and where they stand, axes (g, d, c, h, w): one part for each lane of the blocks."""
    slices: list[tuple[slice, np.ndarray]] = []
    first = 0
    for view in views:
        lanes, count = view.shape[3], view.shape[2] * view.shape[3]
        slices += [(slice(first + lane, first + count, lanes), view[:, :, :, lane]) for lane in range(lanes)]
        first += count
    return slices


def destination(
    memory: Memory, surface: OperandSurface, extent: Extent, r: Registers, *, sanitize: bool = True
) -> Views:
    """A tensor's place for writing, checked, and from now on taken for written."""
    buffer = _buffer(memory, surface, r, "write")
    views = []
    for block in _blocks(surface, extent):
        base, shape, strides = block
        _require_inside(buffer, surface, block, r, f"writes {extent}")
        if sanitize and overlaps_itself(shape, strides, surface.element):
            raise r.error(
                f"the strides of the destination make its {extent} elements overlap",
                f"{surface.registers}.PlaneStride.PlaneStride",
                address=surface.base,
            )
        views.append(strided(buffer.data, base, shape, strides, surface.element))
        if buffer.written is not None:
            _granules(buffer, base, shape, strides, surface.element)[...] = True
    return views


def scatter(views: Views, values: np.ndarray) -> None:
    """Store values, axes (g, d, c, h, w), unsigned integers of the surface's element size."""
    first = 0
    for view in views:
        count = view.shape[2] * view.shape[3]
        part = values[:, :, first : first + count] if len(views) > 1 else values
        if view.shape[3] == 1:
            copy(view[:, :, :, 0], part)
        else:
            view[...] = part.reshape(view.shape)
        first += count


def _buffer(memory: Memory, surface: OperandSurface, r: Registers, verb: str) -> DramBuffer:
    side = "result" if verb == "write" else "source2" if surface.registers == "TileDMASrc.Src2" else "source1"
    register = r.channel_register(side)
    if verb == "write" and surface.channel in (TEXT, CONST):
        raise r.error(f"DMA writes to channel {surface.channel}, which holds the program itself", register)
    return memory.buffer(surface.channel, task=r.index, register=register)


def _blocks(surface: OperandSurface, extent: Extent) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Base, shape and strides with axes (g, d, block, lane, h, w): whole blocks of I channels, then the rest."""
    lanes = surface.interleave
    whole, rest = divmod(extent.c, lanes)
    strides = (surface.group, surface.depth, surface.plane, surface.element, surface.row, surface.element * lanes)
    if whole:
        yield surface.base, (extent.g, extent.d, whole, lanes, extent.h, extent.w), strides
    if rest:
        yield surface.base + whole * surface.plane, (extent.g, extent.d, 1, rest, extent.h, extent.w), strides


def _planar(view: np.ndarray) -> np.ndarray:
    """(g, d, block, lane, h, w) to (g, d, c, h, w); without interleave this is still a view."""
    g, d, blocks, lanes, h, w = view.shape
    return view[:, :, :, 0] if lanes == 1 else view.reshape(g, d, blocks * lanes, h, w)


def _require_inside(
    buffer: DramBuffer,
    surface: OperandSurface,
    block: tuple[int, tuple[int, ...], tuple[int, ...]],
    r: Registers,
    does: str,
) -> None:
    """Refuse a block (base, shape, strides) that leaves its buffer."""
    end = last_byte(*block, surface.element)
    if end <= len(buffer):
        return
    raise r.error(
        f"DMA {does} elements that end at {end:#x} of {buffer.name}, which has {len(buffer):#x} bytes",
        f"{surface.registers}{'' if surface.registers.endswith('Src2') else '.'}BaseAddr.Addr",
        address=end - 1,
    )


def _granules(
    buffer: DramBuffer, base: int, shape: tuple[int, ...], strides: tuple[int, ...], element: int
) -> np.ndarray:
    """A view of the buffer's 64-byte flags under a tensor, axes (g, d, block, h, granule of the row).

    Base and all strides but those along a row are multiples of 64.
    """
    assert buffer.written is not None
    g, d, blocks, lanes, h, w = shape
    row_bytes = (w - 1) * strides[5] + lanes * element
    steps = tuple(strides[axis] // GRANULE for axis in (0, 1, 2, 4))
    granules = ceil_div(row_bytes, GRANULE)
    return np.ndarray((g, d, blocks, h, granules), bool, buffer.written, base // GRANULE, (*steps, 1))


def _require_written(
    buffer: DramBuffer,
    surface: OperandSurface,
    base: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    r: Registers,
) -> None:
    flags = _granules(buffer, base, shape, strides, surface.element)
    if flags.all():
        return
    where = np.unravel_index(int(np.argmin(flags)), flags.shape)
    steps = (strides[0], strides[1], strides[2], strides[4], GRANULE)
    raise r.error(
        f"DMA reads {buffer.name} where no task has written",
        f"{surface.registers}{'' if surface.registers.endswith('Src2') else '.'}BaseAddr.Addr",
        address=base + sum(int(i) * step for i, step in zip(where, steps)),
    )
