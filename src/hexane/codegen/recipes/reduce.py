"""Reductions: planes and rows in the planar engine, channels in the neural engine.

Source: docs/reference/engine-h13.md 8.5, 13.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.geometry import pe_patch
from hexane.codegen.operations import (
    ABSOLUTE,
    MAC_MAXIMUM,
    NEGATION,
    PIXEL,
    SQUARE,
    After,
    PeKind,
    PeNonlinear,
    PeOp,
    Planar,
    Reduce,
    ResultType,
)
from hexane.codegen.plan import Destination, Dma, Plan, Region
from hexane.codegen.recipes import unary
from hexane.codegen.recipes.blocks import Convolution
from hexane.codegen.recipes.conv import lower as convolve
from hexane.codegen.recipes.registry import need_fp16, recipe
from hexane.codegen.recipes.shape import relayout, same_bytes
from hexane.codegen.weights import Weights
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.graph.ir import Op
from hexane.lowering.fusion import Epilogue
from hexane.lowering.limits import plane_by_rows
from hexane.rounding import align

FOLD_WIDTH = 128
FOLDED_PATCH_LOG2 = 6
"""Columns of the widest patch of a row that is folded, as a logarithm."""


@dataclass(frozen=True)
class Reduction:
    """Reduction along the axes: the way values combine, the factor behind the sum, whether they are squared first.

    ``reciprocal``: 1 / the sum, of a reduction by one planar task (rows, planes).
    """

    mode: Reduce = Reduce.SUM
    mean: bool = False
    square: bool = False
    reciprocal: bool = False

    def over(self, count: int) -> Planar:
        """Of so many values."""
        last = PeNonlinear.RECIPROCAL if self.reciprocal else PeNonlinear.NONE
        op, final = PeOp.SQUARE if self.square else PeOp.ADD, self.factor(count)
        return Planar(op, reduce=self.mode, nonlinear=last, kind=PeKind.REDUCE, final=final)

    def factor(self, count: int) -> float:
        return 1.0 / count if self.mean else 1.0


REDUCTIONS = {
    "reduce_sum": Reduction(),
    "reduce_mean": Reduction(mean=True),
    "reduce_max": Reduction(Reduce.MAX),
    "reduce_sum_square": Reduction(square=True),
}


def reduced_axes(op: Op) -> frozenset[str]:
    """The axes of the 4-D view that an op reduces."""
    shape = op.arg("x").shape
    axes = op.arg("axes")
    numbers = range(len(shape)) if axes is None else axes
    shift = 4 - len(shape)
    if shift < 0:
        raise UnsupportedError(f"a reduction of rank {len(shape)}", code=Reason.RANK)
    return frozenset("nchw"[(a % len(shape)) + shift] for a in numbers)


def fold_row(plan: Plan, count: int) -> Plan:
    """A row of 128 or more values runs as 4 x W/4 (§13, folding of long reductions)."""
    plan = plan.but(w=count // 4, h=4)
    return plan.but(wout=plan.w, hout=plan.h, tile=4)


def folds(width: int, *, by_dma: bool = False) -> bool:
    """True where a row runs as four: a quarter of it has to start where a stride can reach it."""
    return width >= FOLD_WIDTH and width % (128 if by_dma else 32) == 0


@recipe(*REDUCTIONS)
def reduction(ops: Sequence[Op], context: Context) -> Fragment:
    """reduce_sum, mean, max, sum_square: planar engine; a maximum over channels in the neural engine."""
    (op,) = ops
    fragment = Fragment(context)
    reduce_to(fragment, op, context, REDUCTIONS[op.type], context.tensor(op.arg("x")))
    return fragment


def reduce_to(
    fragment: Fragment, op: Op, context: Context, kind: Reduction, x: Tensor, out: Tensor | None = None
) -> None:
    """The op's reduction of ``x`` to its result (or to ``out``, with the axes kept)."""
    need_fp16(op.arg("x"))
    axes = reduced_axes(op)
    result = context.tensor(op.output)
    shape = x.less(axes)
    view = Tensor(result.buffer, *shape) if out is None else out
    if out is None and not op.arg("keep_dims") and not same_bytes(shape, result.shape):
        view = Tensor(fragment.workspace(view.bytes), *shape)
    axes &= x.axes
    if "n" in axes:
        raise UnsupportedError("a reduction over the batch", code=Reason.BATCH)
    if view.buffer != result.buffer and out is None and _flat(fragment, x, result, kind, axes):
        return
    if axes:
        _LOWER[axes](fragment, x, view, kind) if axes in _LOWER else _in_steps(fragment, x, view, kind, axes)
    elif kind.square:
        fragment.add(unary.pe_stream(context.target, Plan(pe=SQUARE, w=x.w, h=x.h, c=x.c, groups=x.n), x, view))
    else:
        fragment.add(unary.ne_stream(context.target, unary.copy_of(context.target, x), x, view))
    if view.buffer != result.buffer and out is None:
        relayout(fragment, view, result)


def _flat(fragment: Fragment, x: Tensor, result: Tensor, kind: Reduction, axes: frozenset[str]) -> bool:
    """Over H and W with a flat result [1, C]: one PE task with turned output (§13). False where that does not fit."""
    if axes != frozenset("hw") or x.n > 1 or result.shape != (1, 1, 1, x.c):
        return False
    if plane_by_rows(x.c, x.h, x.w, fragment.limits.l2_bytes):
        return False
    plan = Plan(pe=kind.over(x.h * x.w), w=x.w, h=x.h, c=x.c).writing(transposed=True)
    line = result.row
    plan = plan.reading(dma=x.dma()).writing(dma=Dma(result.buffer, result.offset, line, line, line, line))
    plan, end = tasks.pe_source(plan, 0)
    vector = align(2 * x.c, 16)
    region = Region(end, vector, vector, vector, vector)
    plan = plan.writing(region=region, type=ResultType.DMA_KEEP, after=tasks.result_after(plan))
    fragment.add(plan)
    return True


def reduce_axis(fragment: Fragment, x: Tensor, out: Tensor, kind: Reduction, axis: str) -> None:
    """One axis of ``x``, the others kept."""
    _LOWER[frozenset(axis)](fragment, x, out, kind)


def _in_steps(fragment: Fragment, x: Tensor, out: Tensor, kind: Reduction, axes: frozenset[str]) -> None:
    """Two axes that no single task takes: one after the other through scratch."""
    first = "c" if "c" in axes else "w"
    rest = axes - {first}
    middle = fragment.tensor(*x.less(first))
    _LOWER[frozenset(first)](fragment, x, middle, kind)
    _LOWER[rest](fragment, middle, out, replace(kind, square=False))


@recipe("reduce_min", "reduce_l1_norm", "reduce_l2_norm")
def composed_reduction(ops: Sequence[Op], context: Context) -> Fragment:
    """reduce_min, l1_norm, l2_norm: a planar or table task before or behind a reduction, through scratch."""
    (op,) = ops
    need_fp16(op.arg("x"))
    fragment, x = Fragment(context), context.tensor(op.arg("x"))
    result = context.tensor(op.output)
    axes = reduced_axes(op)
    shape = x.less(axes)
    source = x
    if op.type in ("reduce_min", "reduce_l1_norm"):
        source = fragment.tensor(*x.shape)
        first = NEGATION if op.type == "reduce_min" else ABSOLUTE
        before = Plan(pe=first, w=x.w, h=x.h, c=x.c, groups=x.n)
        fragment.add(unary.pe_stream(context.target, before, x, source))
    kind = {"reduce_min": Reduction(Reduce.MAX), "reduce_l2_norm": Reduction(square=True)}.get(op.type, Reduction())
    middle = fragment.tensor(*shape)
    reduce_to(fragment, op, context, kind, source, middle)
    last = middle
    if op.type in ("reduce_min", "reduce_l2_norm"):
        last = Tensor(fragment.workspace(middle.bytes), *shape)
        if op.type == "reduce_min":
            after = Plan(pe=NEGATION, w=last.w, h=last.h, c=last.c, groups=last.n)
            fragment.add(unary.pe_stream(context.target, after, middle, last))
        else:
            root = unary.copy_of(context.target, middle)
            root = unary.set_table(root, "sqrt")
            fragment.add(unary.ne_stream(context.target, root, middle, last))
    relayout(fragment, last, result)
    return fragment


def plane(fragment: Fragment, x: Tensor, out: Tensor, kind: Reduction) -> None:
    """Over H and W (or one of them, where the other has size 1): one PE task, or rows first where L2 is too small."""
    if plane_by_rows(x.c, x.h, x.w, fragment.limits.l2_bytes):
        middle = fragment.tensor(x.n, x.c, x.h, 1)
        rows(fragment, x, middle, replace(kind, reciprocal=False))
        plane(fragment, middle, out, replace(kind, square=False))
        return
    plan = Plan(pe=kind.over(x.h * x.w), w=x.w, h=x.h, c=x.c, groups=x.n).reading(dma=x.dma()).writing(dma=out.dma())
    if x.h == 1 and folds(x.w, by_dma=True):
        plan = fold_row(plan, x.w).reading(dma=replace(x.dma(), row=x.w // 2))
        plan, end = tasks.pe_source(plan, 0)
        if plan.patch[0] > FOLDED_PATCH_LOG2:
            plan = plan.but(patch=(FOLDED_PATCH_LOG2, plan.patch[1]))
            channel = l2.channel_stride(1 << FOLDED_PATCH_LOG2 if x.c == 1 else plan.w)  # a window, of one channel
            block = x.c * channel
            row = block + l2.pe_pad(block, channel, reduction=True)
            end = plan.h * row
            plan = plan.reading(region=Region(0, channel, row, block, block))
        plan = tasks.streams_out(fragment.target, plan, end, explicit=False)
    else:
        plan = tasks.planar(fragment.target, plan)
    fragment.add(plan)


def rows(fragment: Fragment, x: Tensor, out: Tensor, kind: Reduction) -> None:
    """Over W with H > 1: rows are groups."""
    if x.h == 1:
        plane(fragment, x, out, kind)
        return
    if x.c == 1 and fragment.target.choices.rows_as_channels:
        _rows_of_one_channel(fragment, x, out, kind)
        return
    for n in range(x.n):
        plan = Plan(pe=kind.over(x.w), w=x.w, c=x.c, groups=x.h)
        plan = plan.reading(dma=Dma(x.buffer, x.offset + n * x.batch, x.batch, x.plane, x.batch, x.row))
        plan = plan.writing(dma=Dma(out.buffer, out.offset + n * out.batch, out.batch, out.plane, out.batch, out.row))
        fragment.add(tasks.planar(fragment.target, plan))


def _rows_of_one_channel(fragment: Fragment, x: Tensor, out: Tensor, kind: Reduction) -> None:
    for n in range(x.n):
        plan = Plan(pe=kind.over(x.w), w=x.w, c=x.h)
        plan = plan.reading(dma=Dma(x.buffer, x.offset + n * x.batch, x.batch, x.row, x.batch, x.batch))
        plan = plan.writing(dma=Dma(out.buffer, out.offset + n * out.batch, out.batch, out.row, out.batch, out.batch))
        plan, _ = tasks.pe_source(plan, 0)
        region = plan.source.region
        end = x.h * region.channel
        end += l2.pe_pad(end, l2.channel_stride(64), reduction=True)
        plan = plan.reading(region=replace(region, row=end))
        plan = tasks.streams_out(fragment.target, plan, end, explicit=False)
        plan = tasks.fit_pe(fragment.target, plan)
        fragment.add(plan)


def channels(fragment: Fragment, x: Tensor, out: Tensor, kind: Reduction) -> None:
    """Over C: a maximum in the neural engine; a sum over turned rows in the planar engine."""
    if kind.mode is Reduce.MAX:
        channel_maximum(fragment, x, out)
    elif x.h == x.w == 1:
        _pixel(fragment, x, out, kind)
    else:
        _channel_sum(fragment, x, out, kind)


def channel_maximum(fragment: Fragment, x: Tensor, out: Tensor) -> None:
    """One NE task: U = C inputs of one output combine by maximum (OpMode 3)."""
    for n in range(x.n):
        plan = Plan(ne=MAC_MAXIMUM, w=x.w, h=x.h, c=x.c, cout=1, unicast=x.c)
        plan = plan.reading(dma=x.dma(n * x.batch)).writing(dma=out.dma(n * out.batch))
        plan = tasks.choose_shape(fragment.target, plan)
        plan = plan.but(shape=(0, 0, plan.shape[2]))
        plan, end = tasks.ne_source(fragment.target, plan, 0)
        plan = tasks.streams_out(fragment.target, plan, end)
        if plan.fat_tile:
            line = l2.channel_stride(x.w)
            plan = plan.streaming(Region(end, line, line, line, line), after=tasks.result_after(plan))
        fragment.add(plan)


def _pixel(fragment: Fragment, x: Tensor, out: Tensor, kind: Reduction) -> None:
    """Over C of one pixel: channels run along H."""
    plan = Plan(pe=kind.over(x.c), h=x.c, groups=x.n)
    plan = plan.reading(dma=Dma(x.buffer, x.offset, x.plane, x.plane, x.batch, x.batch)).writing(dma=out.dma())
    plan, end = tasks.pe_source(plan, 0)
    fragment.send(plan, end, explicit=False)


def _turning(fragment: Fragment, x: Tensor, n: int = 0) -> Plan:
    """The copy of an image whose channels become columns."""
    turn = tasks.copy_plan(fragment.target, x.c, x.h, x.w, out_trans=True).reading(dma=x.dma(n * x.batch))
    return tasks.choose_shape(fragment.target, turn)


def _channel_sum(fragment: Fragment, x: Tensor, out: Tensor, kind: Reduction) -> None:
    """Turned copy into L2 ([H][W][C]), then a PE reduction over its rows with turned result (§13)."""
    staged = x.h == 1
    channel = l2.odd_channel_stride(x.c) if staged else l2.channel_stride(x.c)
    block = x.w * channel
    row = block if staged else block + l2.kept_pad(block, channel, x.w, x.h, _turning(fragment, x).shape)
    size = x.h * max(0 if staged else row, x.w * l2.channel_stride(x.c) + 2 * l2.UNIT)
    if size + x.c * l2.ne_window(x.w) + l2.RING_ROOM > fragment.limits.l2_bytes:
        _channel_sum_as_convolution(fragment, x, out, kind)
        return
    for n in range(x.n):
        turn = _turning(fragment, x, n)
        size = x.h * row
        region = Region(0, channel, row, block)
        turn, _ = tasks.ne_source(fragment.target, turn, size)
        if staged:
            line = align(2 * x.c, 64)
            walk = Dma(fragment.workspace(x.w * line), 0, line, line, x.w * line, x.w * line)
            turn = turn.writing(dma=walk, staged=True)
        turn = fragment.stay(turn, region)
        plan = Plan(pe=kind.over(x.c), w=x.c, c=x.w, groups=x.h, result=Destination(transposed=True))
        if staged:
            plan = plan.reading(dma=turn.result.dma, staged=True)
        walk = out.dma(n * out.batch)
        plan = plan.writing(dma=Dma(walk.buffer, walk.offset, out.plane, out.plane, out.plane, out.row))
        plan = tasks.resident(plan, Region(0, channel, block, block, row if x.h > 1 else 0), After.NE_RESULT)
        if staged:
            plan = plan.waiting(After.STAGED)
        if folds(x.c):
            plan = fold_row(plan, x.c)
            plan = plan.reading(region=Region(0, channel, x.c // 2, block, plan.source.region.group)).but(tile=4)
        plan = plan.but(patch=pe_patch(plan.w, plan.h, operands=1))
        narrow = l2.channel_stride(x.w)
        total = x.h * narrow
        plan = plan.writing(region=Region(size, narrow, narrow, narrow, narrow), type=ResultType.DMA_KEEP)
        if x.h > 1 and fragment.target.choices.ring_of_sums:
            plan = plan.writing(type=ResultType.DMA_STREAM)
        elif x.h > 1:
            plan = plan.writing(region=Region(size, narrow, total, narrow, 0))
        fragment.add(plan)


def _channel_sum_as_convolution(fragment: Fragment, x: Tensor, out: Tensor, kind: Reduction) -> None:
    """Maps that do not fit L2 turned: a 1x1 convolution with unit weights, the factor behind the sum."""
    source = x
    if kind.square:
        source = fragment.tensor(*x.shape)
        squares = Plan(pe=SQUARE, w=x.w, h=x.h, c=x.c, groups=x.n)
        fragment.add(unary.pe_stream(fragment.target, squares, x, source))
    ones = np.ones((1, x.c, 1, 1), np.float16)
    scale = Epilogue(scale=kind.factor(x.c))
    one = Convolution(source, out, Weights(ones), None, PIXEL, scale)
    fragment.plans.extend(convolve(one, fragment.context).plans)


def everything(fragment: Fragment, x: Tensor, out: Tensor, kind: Reduction) -> None:
    """Over C, H and W: the map seen as C = 1, H = C, D = H."""
    plan = (
        Plan(pe=kind.over(x.c * x.h * x.w), w=x.w, h=x.c, d=x.h, groups=x.n).reading(dma=cube(x)).writing(dma=out.dma())
    )
    fragment.add(tasks.planar(fragment.target, plan))


def cube(x: Tensor) -> Dma:
    """A whole map as C = 1, H = C, D = H (§13, reduce over C, H, W)."""
    return Dma(x.buffer, x.offset, x.plane, x.batch, x.row, x.batch)


def columns(fragment: Fragment, x: Tensor, out: Tensor, kind: Reduction) -> None:
    """Over H with W > 1: turned copy, PE reduction with columns as groups, turned copy back (§13)."""
    if x.w == 1:
        plane(fragment, x, out, kind)
        return
    for n in range(x.n):
        turn = tasks.copy_plan(fragment.target, x.h, x.c, x.w, out_trans=True)
        turn = turn.reading(dma=replace(x.dma(n * x.batch), row=x.plane, plane=x.row))
        turn = tasks.choose_shape(fragment.target, turn)
        channel = l2.channel_stride(x.h)
        block = x.w * channel
        pitch = block + l2.column_pad(block, x.h)
        size = x.c * pitch
        turn, _ = tasks.ne_source(fragment.target, turn, size)
        fragment.stay(turn, Region(0, channel, pitch, block))
        plan = Plan(pe=kind.over(x.h), w=x.h, c=x.c, groups=x.w)
        plan = tasks.resident(plan, Region(0, pitch, block, block, channel), After.NE_RESULT)
        plan = plan.but(patch=pe_patch(plan.w, plan.h, operands=1))
        if folds(x.h):
            plan = fold_row(plan, x.h).reading(region=Region(0, pitch, x.h // 2, block, channel))
            plan = plan.but(patch=pe_patch(plan.w, plan.h, operands=1))
        group = x.c * 16
        fragment.stay(plan, Region(size, 16, x.w * group, group, group), after=After.NOTHING)
        back = tasks.copy_plan(fragment.target, x.w, x.c, 1, out_trans=True)
        back = back.writing(dma=replace(out.dma(n * out.batch), row=out.plane, plane=out.plane))
        back = back.but(
            shape=tasks.transposing_shape(fragment.target, back.c, back.w, back.h, interleaved=False, few=8)
        )
        back = back.but(tile=tasks.patch_row(back))
        back = tasks.resident(back, Region(size, group, 16, group), After.PE_RESULT).sending(size + x.w * group)
        line = l2.channel_stride(x.w)
        if line > l2.UNIT:
            back = back.streaming(Region(back.result.region.base, line, line, line, line))
        fragment.add(back)


_LOWER = {
    frozenset("hw"): plane,
    frozenset("h"): columns,
    frozenset("w"): rows,
    frozenset("c"): channels,
    frozenset("chw"): everything,
}
