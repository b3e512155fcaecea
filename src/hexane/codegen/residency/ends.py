"""The ends of a task: what it reads and writes, as stored extents, a walk through DRAM, or a region of L2.

A plan says what a task computes; the ends say which bytes it touches (docs/reference/engine-h13.md 7.1, 8.6).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from hexane.codegen.geometry import up
from hexane.codegen.operations import Axes, Element, PeKind, ResultType, SourceType
from hexane.codegen.plan import Dma, Plan, Region
from hexane.isa.tiles import source_rows

UNIT = 16
"""Bytes that L2 counts in."""

SOURCE, SECOND, RESULT = "source", "source2", "result"

TWO_OPERANDS = (PeKind.BINARY, PeKind.SCALE_SHIFT, PeKind.REDUCE_BINARY)


class Extents(NamedTuple):
    """Elements along each axis of an operand as it is stored."""

    g: int
    d: int
    c: int
    h: int
    w: int


class End(NamedTuple):
    """One operand or the result of one task.

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

    def at(self, index: int) -> End:
        """The same of another task."""
        return self if index == self.index else End(index, *self[1:])


def ends_of(plan: Plan, index: int) -> Iterator[End]:
    """Sources, then the result."""
    yield _source(plan, index)
    if plan.kind in TWO_OPERANDS:
        yield _second(plan, index)
    yield _result(plan, index)


def _width(element: Element) -> int:
    return 2 if element is Element.FP16 else 1


def _data(plan: Plan, broadcast: Axes) -> Extents:
    if broadcast is Axes.NONE:
        return Extents(plan.groups, plan.d, plan.c, plan.h, plan.w)
    return Extents(
        plan.groups,
        1 if broadcast & Axes.D else plan.d,
        1 if broadcast & Axes.C else plan.c,
        1 if broadcast & Axes.H else plan.h,
        1 if broadcast & Axes.W else plan.w,
    )


def _turned(extents: Extents, turned: bool) -> Extents:
    return Extents(extents.g, extents.d, extents.w, extents.h, extents.c) if turned else extents


def _source(plan: Plan, index: int) -> End:
    by_dma = plan.reads.type in (SourceType.DMA_KEEP, SourceType.DMA_STREAM) and not plan.src_staged
    return End(
        index,
        SOURCE,
        _turned(_data(plan, plan.broadcast1), plan.transpose1),
        _width(plan.in_format),
        plan.src if by_dma else None,
        plan.source,
        plan.reads.type is SourceType.DMA_STREAM,
    )


def _second(plan: Plan, index: int) -> End:
    extents = _data(plan, plan.broadcast2)
    if plan.kind is PeKind.SCALE_SHIFT:
        extents = extents._replace(d=1, h=2, w=1)
    return End(
        index, SECOND, _turned(extents, plan.transpose2), 2, plan.src2, plan.source2, passes=plan.src2 is not None
    )


def _result(plan: Plan, index: int) -> End:
    extents = Extents(plan.groups, plan.dout, plan.cout, plan.hout, plan.wout * plan.ox)
    if plan.kind.reduces:
        extents = extents._replace(d=1, h=1, w=1)
    return End(
        index,
        RESULT,
        _turned(extents, plan.out_trans or plan.transpose_out),
        _width(plan.out_format),
        None if plan.dst_staged else plan.dst,
        plan.result,
        plan.writes.type is ResultType.DMA_STREAM,
    )


def stays_in_l2(plan: Plan, end: End) -> bool:
    """Whether other tasks meet the end's region in L2; else it is a window, a ring or a buffer of the task alone."""
    if end.side == RESULT:
        return not plan.writes.automatic and plan.writes.type is not ResultType.DMA_STREAM
    if end.side == SECOND:
        return plan.src2 is None
    return plan.reads.type is not SourceType.DMA_STREAM


def span(end: End, extents: Extents | None = None) -> int:
    """Bytes of L2 from the region's base to its last element, whole units."""
    extents = extents or end.extents
    region = end.region
    g, d, c, h, w = extents
    last = (g - 1) * region.group + (d - 1) * region.depth + (c - 1) * region.channel + (h - 1) * region.row
    return last + up(w * end.element, UNIT)


def held(plan: Plan, end: End) -> int:
    """Bytes of L2 that an end takes while its task runs (docs/reference/engine-h13.md 7.4, 7.5)."""
    if end.side == RESULT and plan.writes.automatic:
        return result_buffer(plan, end)
    return span(end, at_once(plan, end))


def at_once(plan: Plan, end: End) -> Extents:
    """The part of an end with strides that is in L2 at one time."""
    extents = end.extents
    if end.passes or plan.reads.type is SourceType.STRIPS or plan.writes.type is ResultType.STRIPS:
        _, d, c, h, w = extents
        if end.region.channel and end.region.channel < w * end.element:
            w = max(1, end.region.channel // end.element)
        if plan.tile < plan.hout:
            h = min(h, tile_rows(plan, end))
        extents = Extents(1, d, c, h, w)
    return extents


def tile_rows(plan: Plan, end: End) -> int:
    """Rows of an end that one tile of its task needs room for."""
    if end.side == RESULT or plan.unit == "PE":
        return plan.tile
    return source_rows(plan.tile, plan.h, plan.hout, plan.kh, plan.sy, plan.py)[0]


def result_buffer(plan: Plan, end: End) -> int:
    """Bytes behind the base of an automatic buffer: two rows of patches, or the whole result if that is less.

    Source: docs/reference/engine-h13.md 7.5; of a planar task INFERRED.
    """
    extents = end.extents
    patch = 1 << (plan.patch[1] if plan.unit == "PE" else plan.shape[2])
    row = up(min(extents.w, 128) * end.element, UNIT) * extents.c * extents.d
    return min(extents.h, 2 * patch) * row


def elements(end: End) -> int:
    return prod(end.extents)
