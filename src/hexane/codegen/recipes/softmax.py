"""softmax: maximum, difference times log2 e, exp2 table, reciprocal of the sum, product.

Source: docs/reference/engine-h13.md 7.3, 13.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.geometry import largest_shape, pe_patch
from hexane.codegen.operations import BINARY, MAC_MAXIMUM, MAXIMUM, RECIPROCAL_SUM, After, Axes, Planar
from hexane.codegen.plan import Destination, Dma, Operand, Plan, Region
from hexane.codegen.recipes import unary
from hexane.codegen.recipes.reduce import fold_row, folds
from hexane.codegen.recipes.registry import recipe, x_and_result
from hexane.codegen.recipes.softmax_parts import (
    BLOCK,
    difference,
    exponential,
    lock,
    powers_and_reciprocals,
    reciprocal_sum,
    row_values,
    rows_as_channels,
    streamed,
    through_scratch,
)
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.rounding import align

if TYPE_CHECKING:
    from hexane.codegen.targets import Target
    from hexane.graph.ir import Op


@recipe("softmax")
def softmax(ops: Sequence[Op], context: Context) -> Fragment:
    """softmax along one axis, in L2; large maps through scratch."""
    (op,) = ops
    x, y = x_and_result(op, context)
    rank = len(op.arg("x").shape)
    index = op.arg("axis") % rank + 4 - rank
    if index < 0:  # a leading axis of one element, which the surface does not have
        raise UnsupportedError("softmax along an axis of length 1", code=Reason.EXTENT)
    axis = "nchw"[index]
    fragment = Fragment(context)
    for n in range(x.n):
        one = lambda t: Tensor(t.buffer, 1, t.c, t.h, t.w, offset=t.offset + n * t.batch)  # noqa: B023, E731
        along(fragment, one(x), one(y), axis)
    return fragment


def along(fragment: Fragment, x: Tensor, y: Tensor, axis: str) -> None:
    """softmax of one image along one axis: in L2 where the map fits, else every step through scratch."""
    if axis == "n":
        raise UnsupportedError("softmax over the batch", code=Reason.BATCH)
    start = len(fragment.plans)
    try:
        _in_l2(fragment, x, y, axis)
    except UnsupportedError:
        del fragment.plans[start:]
        if axis not in x.axes:
            raise
        through_scratch(fragment, x, y, axis)


def _in_l2(fragment: Fragment, x: Tensor, y: Tensor, axis: str) -> None:
    if axis == "c":
        over_channels(fragment, x, y, along_h=False)
    elif axis == "h" and x.h > 1:
        over_channels(fragment, x, y, along_h=True)
    elif axis == "h" or (x.h == 1 and x.w == 1):
        if x.w > 1:
            raise UnsupportedError("softmax along an axis of length 1", code=Reason.EXTENT)
        _pixels(fragment, x, y)
    elif x.h == 1:
        _one_row(fragment, x, y)
    elif x.c == 1:
        rows_as_channels(fragment, x, y)
    elif _fits(fragment.target, x):
        _rows(fragment, x, y)
    else:
        streamed(fragment, x, y)


def loading(target: Target, x: Tensor) -> tuple[Plan, int]:
    """The copy that brings the map in, and the bytes from row to row of what it leaves."""
    plan = unary.copy_of(target, x).reading(dma=x.dma())
    plan = tasks.choose_shape(target, plan)
    channel = l2.channel_stride(x.w)
    block = x.c * channel
    return plan, block + l2.kept_pad(block, channel, x.w, x.h, plan.shape)


def _with_pad(block: int) -> int:
    return block + l2.pe_pad(block, 4 * l2.UNIT)


def _fits(target: Target, x: Tensor) -> bool:
    _, row = loading(target, x)
    pitch = _with_pad(x.c * l2.channel_stride(x.w))
    maps = row + pitch + (row if pitch > row else 0)
    return x.h * maps + max(x.h * row, x.h * x.c * 16 + l2.RESULT_ROOM) <= target.limits.l2_bytes


def row_reduction(
    fragment: Fragment, x: Tensor, source: Region, result: Region, operation: Planar, after: After
) -> Plan:
    """Maximum or sum over W with rows as groups."""
    plan = Plan(pe=operation, w=x.w, c=x.c, groups=x.h)
    block = x.c * source.channel
    plan = tasks.resident(plan, Region(source.base, source.channel, block, block, source.row), after)
    plan = plan.but(patch=pe_patch(plan.w, 1, operands=1))
    if folds(x.w) and after == After.NE_RESULT:
        plan = fold_row(plan, x.w)
        plan = plan.reading(region=replace(plan.source.region, row=x.w // 2)).but(
            patch=pe_patch(plan.w, plan.h, operands=1)
        )
    return fragment.stay(plan, result, after=After.NOTHING)


def load(fragment: Fragment, x: Tensor) -> Region:
    """T0: the map into L2 at 0 by an NE copy; its source stands behind it."""
    plan, row = loading(fragment.target, x)
    channel = l2.channel_stride(x.w)
    region = Region(0, channel, row, x.c * channel)
    plan, _ = tasks.ne_source(fragment.target, plan, x.h * row)
    fragment.stay(plan, region)
    return region


def _rows(fragment: Fragment, x: Tensor, y: Tensor) -> None:
    """Last axis, several rows: six tasks; map, difference (and powers), row values behind them and at 0 (§7.3)."""
    region = load(fragment, x)
    block, step = x.c * region.channel, x.c * 16
    size = x.h * region.row
    target = powers = replace(region, base=size, row=_with_pad(block))
    if target.row > region.row:  # rows that are folded have no pad: the powers stand apart, before the difference
        powers, target = replace(region, base=size), replace(target, base=2 * size)
    maximum = row_values(x, target.base + x.h * target.row)
    row_reduction(fragment, x, region, maximum, MAXIMUM, After.NE_RESULT)
    minus = difference(x.w, x.h, x.c).against(broadcast=Axes.W)
    minus = tasks.resident(minus, region, After.PE_RESULT, second=Region(maximum.base, 16, step, step))
    minus = tasks.stays(minus, target, after=After.NOTHING)
    power = exponential(fragment.target, x.c, x.h, x.w)
    minus, power = lock(minus, power)
    fragment.add(minus)
    power = tasks.resident(power, target, After.FOLLOWS_PE)
    fragment.stay(power, powers, after=After.NOTHING)
    row_reduction(fragment, x, powers, row_values(x, 0), RECIPROCAL_SUM, After.NE_RESULT)
    scale = Plan(pe=BINARY["mul"], w=x.w, h=x.h, c=x.c).reading(broadcast=Axes.W).writing(dma=y.dma())
    scale = tasks.resident(scale, Region(0, 16, step, step), After.PE_RESULT, second=powers)
    fragment.send(scale, powers.base + x.h * powers.row, after=After.NOTHING)


def over_channels(fragment: Fragment, x: Tensor, y: Tensor, *, along_h: bool) -> None:
    """Along C, or along H with rows as channels: maximum and sum in the neural engine, five tasks."""
    if x.h == x.w == 1 and fragment.context.policy.between:  # the model prefers the general form
        _one_pixel(fragment, x, y)
        return
    c, h, w, source = x.c, x.h, x.w, x.dma()
    if along_h:
        c, h, source = h, c, replace(source, row=source.plane, plane=source.row)
    channel = l2.channel_stride(w)
    block = c * channel
    row = block + (l2.pe_pad(block, channel) if h > 1 else 0)
    step = channel + (l2.pe_pad(channel, channel) if h > 1 else 0)
    base = h * step
    size = h * row
    fragment.need_room(base + 2 * size, f"softmax over {c} channels of {h} x {w}")
    small = Region(0, channel, step, channel)
    first = Plan(ne=MAC_MAXIMUM, w=w, h=h, c=c, cout=1, unicast=c, source=Operand(dma=source))
    s = largest_shape(w, h)
    edge = min(4, s + (w < 16))  # seen: 4x4 has 3, 8x8 has 4, 16x16 has 3 (§4.3.1 lists the first two as misfits)
    first = tasks.by_dma(first, Region(base + size, channel, row, block, block), keep=True)
    first = first.but(shape=(edge, edge, edge))
    fragment.stay(first, small)
    region = Region(base, channel, row, block)
    powers_and_reciprocals(fragment, (c, h, w), replace(region, base=base + size), small, region)
    # The product works in the orientation of the output.
    scale = Plan(pe=BINARY["mul"], w=x.w, h=x.h, c=x.c)
    scale = scale.reading(broadcast=Axes.H if along_h else Axes.C).writing(dma=y.dma())
    follows_sum = fragment.target.choices.follows_closely and not along_h
    scale = tasks.resident(
        scale, small, After.NE_RESULT | After.FOLLOWS_NE if follows_sum else After.NE_RESULT, second=region
    )
    if along_h:
        scale = scale.reading(region=Region(small.base, small.row, small.channel, small.depth))
        scale = scale.against(region=Region(region.base, region.row, region.channel, region.depth))
    fragment.send(scale, base + size, after=After.NOTHING)


def _one_pixel(fragment: Fragment, x: Tensor, y: Tensor) -> None:
    """Over the channels of one pixel: the differences stand along W, their powers as channels again (§13)."""
    c, single, line = x.c, x.c * 16, l2.channel_stride(x.c)
    small = Region(0, 16, 16, 16)
    powers = Region(16, 16, single, single)
    row = Region(16 + single, line, line, line)
    top = Plan(ne=MAC_MAXIMUM, c=c, cout=1, unicast=c, source=Operand(dma=x.dma()))
    top = tasks.by_dma(top, Region(row.base + line, 16, single, single, single), keep=True)
    top = fragment.stay(top, small)
    minus = difference(1, 1, c).against(broadcast=Axes.C).writing(transposed=True)
    minus = tasks.resident(minus, replace(top.source.region, group=0), After.NE, second=small)
    _row_power(fragment, minus, row, powers, as_channels=True)
    total = reciprocal_sum(fragment.target, c, 1, 1)
    total = tasks.resident(total, powers, After.NE_RESULT)
    fragment.stay(total, small)
    scale = Plan(pe=BINARY["mul"], c=c).reading(broadcast=Axes.C).writing(dma=y.dma())
    scale = tasks.resident(scale, small, After.NE_RESULT, second=powers)
    fragment.send(scale, row.base, after=After.NOTHING)


def _row_power(fragment: Fragment, minus: Plan, row: Region, powers: Region, *, as_channels: bool = False) -> None:
    """The differences as one row, a staging pair with their table; ``as_channels``: which writes channels."""
    line = align(row.channel, 64)
    walk = Dma(fragment.workspace(line), 0, line, line, line, line)
    minus = minus.writing(dma=walk, staged=True)
    minus = fragment.stay(minus, row, after=After.NOTHING)
    power = exponential(fragment.target, 1, 1, minus.c, out_trans=as_channels).reading(dma=walk, staged=True)
    power = tasks.choose_shape(fragment.target, power)
    power = tasks.resident(power, row, After.PE_RESULT | After.STAGED)
    fragment.stay(power, powers, after=After.NOTHING)


def _pixels(fragment: Fragment, x: Tensor, y: Tensor) -> None:
    """Along an axis of length 1 of single pixels: the same chain on channels turned into a row."""
    line = l2.channel_stride(x.c)
    vector = Region(0, line, line, line)
    single = x.c * 16
    top = Plan(pe=MAXIMUM, c=x.c).writing(transposed=True).reading(dma=x.dma()).but(patch=pe_patch(1, 1, operands=1))
    top = tasks.by_dma(top, Region(2 * line, 16, single, single, single), keep=True)
    top = fragment.stay(top, vector)
    minus = difference(1, 1, x.c).against(broadcast=Axes.W, transposed=True).writing(transposed=True)
    minus = tasks.resident(minus, replace(top.source.region, group=0), After.PE_RESULT, second=vector)
    _row_power(fragment, minus, replace(vector, base=line), vector)
    total = Plan(pe=RECIPROCAL_SUM, c=x.c).reading(transposed=True).writing(transposed=True)
    total = tasks.resident(total, vector, After.NE_RESULT)
    fragment.stay(total, replace(vector, base=line), after=After.NOTHING)
    scale = Plan(pe=BINARY["mul"], c=x.c)
    scale = scale.reading(broadcast=Axes.W, transposed=True).against(transposed=True).writing(dma=y.dma())
    scale = tasks.resident(scale, replace(vector, base=line), After.FOLLOWS_PE, second=vector)
    fragment.send(scale, 2 * line, after=After.NOTHING)


def _one_row(fragment: Fragment, x: Tensor, y: Tensor) -> None:
    """Last axis, one row per channel: maximum and sum as turned vectors, as in attention (§13.4)."""
    channel = l2.channel_stride(x.w)
    size = x.c * channel
    line = l2.channel_stride(x.c)
    vector = Region(0, line, line, line)
    fragment.need_room(line + 2 * size + l2.RESULT_ROOM, f"softmax over {x.c} rows of {x.w}")
    top = Plan(pe=MAXIMUM, w=x.w, c=x.c)
    top = top.writing(transposed=True).reading(dma=x.dma()).but(patch=pe_patch(x.w, 1, operands=1))
    top = tasks.by_dma(top, Region(line + size, channel, size, size, size), keep=True)
    fragment.stay(top, vector)
    region = Region(line, channel, size, size)
    row_chain(fragment, (x.c, x.w), replace(region, base=line + size), region, vector, After.PE_RESULT)
    scale = Plan(pe=BINARY["mul"], w=x.w, c=x.c).reading(broadcast=Axes.W, transposed=True).writing(dma=y.dma())
    scale = tasks.resident(scale, vector, After.FOLLOWS_PE, second=region)
    fragment.send(scale, line + size, explicit=False, after=After.NOTHING)
    fragment.inferred("attention's softmax on a map that comes by DMA")


def row_vector(rows: int) -> tuple[Region, bool]:
    """Place of a value of each row at 0, and whether transposed: side by side for as many rows as a block has."""
    line = l2.channel_stride(rows)
    if rows <= BLOCK:
        return Region(0, line, line, line), True
    return Region(0, l2.UNIT, rows * l2.UNIT, rows * l2.UNIT), False


def row_chain(
    fragment: Fragment, size: tuple[int, int], x: Region, region: Region, vector: Region, after: After
) -> None:
    """Difference, table, sum of ``size`` (rows, columns), rows as channels: ``x`` to ``region``, values: ``vector``."""
    c, w = size
    transposed = vector.row == l2.channel_stride(c)
    minus = difference(w, 1, c).against(broadcast=Axes.W, transposed=transposed)
    minus = tasks.resident(minus, x, after, second=vector)
    minus = tasks.stays(minus, region, after=After.NOTHING)
    power = exponential(fragment.target, c, 1, w)
    minus, power = lock(minus, power)
    fragment.add(minus)
    power = tasks.resident(power, region, After.FOLLOWS_PE)
    fragment.stay(power, region, after=After.NOTHING)
    total = Plan(pe=RECIPROCAL_SUM, w=w, c=c, result=Destination(transposed=transposed))
    total = tasks.resident(total, region, After.FOLLOWS_NE | After.PE_RESULT)
    fragment.stay(total, vector, after=After.NOTHING)
