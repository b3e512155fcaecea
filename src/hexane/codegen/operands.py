"""The operands of a task: what it reads and writes, as stored extents, a walk through DRAM, or a region of L2.

A plan says what a task computes; its operands say which bytes it touches (docs/reference/engine-h13.md 7.1, 8.6).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from hexane.codegen.operations import Axes, PeKind, ResultType, SourceType
from hexane.codegen.plan import RESULT, SECOND, SOURCE, Dma, Plan, Region
from hexane.isa import tiles
from hexane.isa.granules import UNIT
from hexane.rounding import align, ceil_div


class Extents(NamedTuple):
    """Elements along each axis of an operand as it is stored."""

    g: int
    d: int
    c: int
    h: int
    w: int


class TaskOperand(NamedTuple):
    """The place of one operand or the result of one task, worked out from the plan, for what places tasks in L2.

    A plan holds an ``Operand`` or a ``Destination``; this adds what only the whole plan says: stored extents and way.
    ``dma`` is None where the data are in L2 alone (also those of a staging pair). ``passes``: a window, a ring or an
    automatic buffer, which no later task reads.
    """

    index: int  # type: ignore[assignment]  # of its task, not of a field
    side: str
    extents: Extents
    element: int
    dma: Dma | None
    region: Region
    passes: bool

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Of the region: group, depth, channel, row."""
        region = self.region
        return (region.group, region.depth, region.channel, region.row)

    def at(self, index: int) -> TaskOperand:
        """The same of another task."""
        return self if index == self.index else TaskOperand(index, *self[1:])


def operand_of(plan: Plan, side: str) -> TaskOperand:
    """One of them, as of task 0."""
    return (_source if side == SOURCE else _second if side == SECOND else result_of)(plan, 0)


def operands_of(plan: Plan, index: int) -> Iterator[TaskOperand]:
    """Sources, then the result."""
    yield _source(plan, index)
    if plan.pe.operands == 2:
        yield _second(plan, index)
    yield result_of(plan, index)


def read_extents(plan: Plan, broadcast: Axes) -> Extents:
    """Elements of a source that is repeated along some axes, before it is transposed."""
    if broadcast is Axes.NONE:
        return Extents(plan.groups, plan.d, plan.c, plan.h, plan.w)
    return Extents(
        plan.groups,
        1 if Axes.D in broadcast else plan.d,
        1 if Axes.C in broadcast else plan.c,
        1 if Axes.H in broadcast else plan.h,
        1 if Axes.W in broadcast else plan.w,
    )


def _turned(extents: Extents, transposed: bool) -> Extents:
    return Extents(extents.g, extents.d, extents.w, extents.h, extents.c) if transposed else extents


def _source(plan: Plan, index: int) -> TaskOperand:
    by_dma = plan.source.type in (SourceType.DMA_KEEP, SourceType.DMA_STREAM)
    return TaskOperand(
        index,
        SOURCE,
        _turned(read_extents(plan, plan.source.broadcast), plan.source.transposed),
        plan.source.element.bytes,
        plan.source.transfer if by_dma else None,
        plan.source.region,
        plan.source.type is SourceType.DMA_STREAM,
    )


def _second(plan: Plan, index: int) -> TaskOperand:
    extents = read_extents(plan, plan.second.broadcast)
    if plan.pe.kind is PeKind.SCALE_SHIFT:
        extents = extents._replace(d=1, h=2, w=1)
    return TaskOperand(
        index,
        SECOND,
        _turned(extents, plan.second.transposed),
        2,
        plan.second.dma,
        plan.second.region,
        passes=plan.second.dma is not None,
    )


def result_of(plan: Plan, index: int) -> TaskOperand:
    extents = Extents(plan.groups, plan.dout, plan.cout, plan.hout, plan.columns)
    if plan.pe.reduces:
        extents = extents._replace(d=1, h=1, w=1)
    return TaskOperand(
        index,
        RESULT,
        _turned(extents, plan.out_trans or plan.result.transposed),
        plan.result.element.bytes,
        plan.result.transfer,
        plan.result.region,
        plan.result.type is ResultType.DMA_STREAM,
    )


def stays_in_l2(plan: Plan, end: TaskOperand) -> bool:
    """True where other tasks meet the end's region in L2; else it is a window, a ring or a buffer of the task alone."""
    if end.side == RESULT:
        return not plan.result.automatic and plan.result.type is not ResultType.DMA_STREAM
    if end.side == SECOND:
        return plan.second.dma is None
    return plan.source.type is not SourceType.DMA_STREAM


def span(end: TaskOperand, extents: Extents | None = None) -> int:
    """Bytes of L2 from the region's base to its last element, whole units."""
    extents = extents or end.extents
    region = end.region
    g, d, c, h, w = extents
    last = (g - 1) * region.group + (d - 1) * region.depth + (c - 1) * region.channel + (h - 1) * region.row
    return last + align(w * end.element, UNIT)


def held(plan: Plan, end: TaskOperand) -> int:
    """Bytes of L2 that an end takes while its task runs (docs/reference/engine-h13.md 7.4, 7.5)."""
    if end.side == RESULT and plan.result.automatic:
        return result_buffer(plan, end)
    return span(end, at_once(plan, end))


def at_once(plan: Plan, end: TaskOperand) -> Extents:
    """The part of an end with strides that is in L2 at one time."""
    extents = end.extents
    if end.passes or plan.source.type is SourceType.STRIPS or plan.result.type is ResultType.STRIPS:
        _, d, c, h, w = extents
        if end.region.channel and end.region.channel < w * end.element:
            w = max(1, end.region.channel // end.element)
        if plan.tile < plan.hout:
            h = min(h, tile_rows(plan, end))
        extents = Extents(1, d, c, h, w)
    return extents


def source_rows(plan: Plan, tile: int) -> tuple[int, int]:
    """Rows of the source that a tile of so many rows needs room for, and rows that all tiles read."""
    window = plan.window
    return tiles.source_rows(tile, plan.h, plan.hout, window.kh, window.sy, window.top)


def tile_rows(plan: Plan, end: TaskOperand) -> int:
    """Rows of an end that one tile of its task needs room for."""
    if end.side == RESULT or plan.unit == "PE":
        return plan.tile
    return source_rows(plan, plan.tile)[0]


def result_buffer(plan: Plan, end: TaskOperand) -> int:
    """Bytes behind the base of an automatic buffer: two rows of patches, or the whole result if that is less.

    Source: docs/reference/engine-h13.md 7.5; of a planar task INFERRED.
    """
    extents = end.extents
    row = align(min(extents.w, 128) * end.element, UNIT) * extents.c * extents.d
    return min(extents.h, 2 * plan.patch_rows) * row


def elements(end: TaskOperand) -> int:
    return prod(end.extents)


def read_again(plan: Plan, end: TaskOperand) -> int:
    """Bytes of the rows of a source that two tiles of a task read."""
    if end.side != SOURCE or plan.unit != "NE" or plan.tile >= plan.hout:
        return 0
    rows = (ceil_div(plan.hout, plan.tile) - 1) * max(0, plan.window.kh - plan.window.sy)
    return rows * elements(end) // end.extents.h * end.element


def bursts(dma: Dma, extents: Extents) -> int:
    """Bytes that a walk through DRAM moves: whole rows of 64-byte bursts, never more than the row stride."""
    g, d, c, h, w = extents
    row = align(w * dma.element * dma.interleave, 64)
    if h > 1 and dma.row:
        row = min(row, dma.row)
    return ceil_div(g * d * c, dma.interleave) * h * row
