"""A task over some of its rows: what it then reads, and the plan that computes just those (depth-first execution).

Rows of a result need the rows of a source that their windows touch; a stripe in the middle of a map has no padding
above or below. Every row comes out with the bits that it has in the whole task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hexane.codegen import tasks
from hexane.codegen.geometry import largest_shape, pe_patch
from hexane.codegen.operations import Axes, PeKind, ResultType, SourceType
from hexane.codegen.plan import Dma, Plan
from hexane.frozen import replace

if TYPE_CHECKING:
    from hexane.codegen.targets import Target


class Rows(NamedTuple):
    """Rows ``first`` up to, not with, ``end``."""

    first: int
    end: int

    @property
    def height(self) -> int:
        return self.end - self.first

    def with_(self, other: Rows | None) -> Rows:
        """The least run with both."""
        return self if other is None else Rows(min(self.first, other.first), max(self.end, other.end))


def by_rows(plan: Plan) -> bool:
    """True where rows of the result follow from rows of the sources, all by DMA, and nothing else ties the task."""
    if (
        plan.holds
        or plan.source.staged
        or plan.result.staged
        or plan.streams
        or plan.streams_in
        or plan.dtid is not None
    ):
        return False
    if plan.source.dma is None or plan.result.dma is None or plan.source.type is not SourceType.DMA_STREAM:
        return False
    if plan.result.type is not ResultType.DMA_STREAM or plan.groups > 1 or plan.d > 1 or plan.fat_tile:
        return False
    if plan.source.transposed or plan.result.transposed or plan.small_source or plan.source.broadcast:
        return False
    if plan.out_trans and not (plan.unicast and plan.ne.plain_copy):
        return False
    if plan.kernel_buffer is not None:
        return False
    if plan.unit == "NE":
        return not plan.ne.pairs and not plan.kernel_format.binary
    return plan.pe.kind is PeKind.SCALE_SHIFT or (plan.pe.elementwise and not plan.second.transposed)


def source_of(plan: Plan, rows: Rows) -> Rows:
    """Rows of source 1 behind rows of the result."""
    if plan.unit == "PE":
        return rows
    first = max(0, rows.first * plan.window.sy - plan.window.top)
    return Rows(first, min(plan.h, (rows.end - 1) * plan.window.sy - plan.window.top + plan.window.kh))


def second_moves(plan: Plan) -> bool:
    """True where source 2 has rows of its own for every row of the result."""
    return plan.pe.kind is PeKind.BINARY and not plan.second.broadcast & Axes.H


def cut(target: Target, plan: Plan, rows: Rows, src: Dma, src2: Dma | None, dst: Dma) -> Plan:
    """The task of these rows, whose walks are given."""
    source = source_of(plan, rows)
    macs = plan.macs * rows.height // plan.hout
    piece = plan.reading(dma=src).against(dma=src2).writing(dma=dst)
    piece = piece.but(macs=macs, read_rows=0, h=source.height, hout=rows.height, tile=rows.height)
    if plan.unit == "PE":
        return piece.but(patch=pe_patch(piece.w, piece.h, operands=plan.pe.operands))
    piece = piece.but(window=replace(plan.window, top=max(0, plan.window.top - rows.first * plan.window.sy)))
    if plan.out_trans:
        piece, end = tasks.ne_source(target, tasks.choose_shape(target, piece), 0, after=plan.source.after)
        return tasks.streams_out(target, piece, end, explicit=False, after=plan.result.after)
    pref, low, s = plan.shape
    if s:
        s = min(s, largest_shape(plan.wout, rows.height))
        piece = piece.but(shape=(s, s, s) if pref == low == plan.shape[2] else (pref, low, s))
    return piece
