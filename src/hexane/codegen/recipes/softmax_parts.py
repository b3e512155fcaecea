"""Parts that the forms of softmax share; its forms for matrices, for large maps and for maps beyond L2 (§12.1, §13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hexane.codegen import l2, tasks
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.geometry import is_small_source, joint_patch, joint_shape, largest_shape, pe_patch
from hexane.codegen.operations import (
    BINARY,
    MAC_SUM,
    MAXIMUM,
    RECIPROCAL_SUM,
    After,
    Axes,
    PeKind,
    Planar,
    Reduce,
    ResultType,
    SourceType,
)
from hexane.codegen.plan import Dma, Operand, Plan, Region
from hexane.codegen.recipes import unary
from hexane.codegen.recipes.elementwise import combine
from hexane.codegen.recipes.reduce import Reduction, fold_row, folds, reduce_axis
from hexane.codegen.recipes.shape import AxisWalk, permute
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.isa.numbers import fp16_value
from hexane.lowering import functions
from hexane.rounding import align

if TYPE_CHECKING:
    from hexane.codegen.targets import Target

LOG2_E = fp16_value(functions.LOG2_E)
BLOCK = 192  # rows that one reduction takes as channels


def difference(w: int, h: int, c: int, **settings: object) -> Plan:
    """(x - m) * log2 e."""
    return Plan(pe=replace(BINARY["sub"], scale=LOG2_E), w=w, h=h, c=c, **settings)  # type: ignore[arg-type]


def lock(planar: Plan, neural: Plan) -> tuple[Plan, Plan]:
    """A PE task and the NE task that follows it patch by patch, with the same patch (§4.3.1)."""
    s = joint_shape(neural.wout, neural.hout)
    return planar.but(patch=joint_patch(s)), neural.but(shape=(s, s, s))


def exponential(target: Target, c: int, h: int, w: int, *, out_trans: bool = False) -> Plan:
    plan = tasks.copy_plan(target, c, h, w, out_trans=out_trans)
    return unary.set_table(plan, "exp2")


def powers_and_reciprocals(
    fragment: Fragment, size: tuple[int, int, int], region: Region, small: Region, spare: Region
) -> None:
    """Over channels, with the maxima in ``small``: 2^((x - maximum) log2 e) to ``spare``, 1/sum to ``small``.

    ``size`` is (channels, rows, columns) of the map x in ``region``.
    """
    c, h, w = size
    minus = difference(w, h, c).against(broadcast=Axes.C)
    minus = tasks.resident(minus, region, After.NE, second=small)
    minus = tasks.stays(minus, spare)
    power = exponential(fragment.target, c, h, w)
    minus, power = lock(minus, power)
    power = tasks.resident(power, spare, After.FOLLOWS_PE)
    power = tasks.stays(power, spare)
    total = reciprocal_sum(fragment.target, c, h, w)
    total = tasks.resident(total, spare, After.FOLLOWS_NE)
    total = tasks.stays(total, small)
    fragment.add(minus, power, total)


def reciprocal_sum(target: Target, c: int, h: int, w: int) -> Plan:
    """1 / sum over channels."""
    total = Plan(ne=MAC_SUM, w=w, h=h, c=c, cout=1, power_category=1)
    total = unary.set_table(total, "reciprocal")
    s, small = largest_shape(w, h), is_small_source(target, w, h, 0)
    if small and not target.choices.small_patch:
        s = 4
    return total.but(small_source=small, shape=(s, s, s))


def row_values(x: Tensor, base: int) -> Region:
    """One value per channel and row."""
    step = x.c * 16
    return Region(base, 16, x.h * step, step, step)


def through_scratch(fragment: Fragment, x: Tensor, y: Tensor, axis: str) -> None:
    """Maximum, difference, exp2, 1 / sum, product: each step a program of its own, with the rounding of those in L2.

    Along W the planar engine sums, else the cores do, which look 1 / x up before the sum is rounded.
    """
    small = x.less(axis)
    start = len(fragment.plans)
    reduce_axis(fragment, x, top := fragment.tensor(*small), Reduction(Reduce.MAX), axis)
    before = len(fragment.plans)
    combine(fragment, "sub", x, top, difference := fragment.tensor(*x.shape))
    assert fragment.plans[-1].pe.kind is PeKind.BINARY and len(fragment.plans) > before
    fragment.plans[-1] = fragment.plans[-1].computing(scale=LOG2_E)
    power = unary.copy_of(fragment.target, x)
    power = unary.set_table(power, "exp2")
    fragment.add(unary.ne_stream(fragment.target, power, difference, powers := fragment.tensor(*x.shape)))
    if axis == "w":
        reduce_axis(fragment, powers, share := fragment.tensor(*small), Reduction(reciprocal=True), axis)
    else:
        rows, share = powers, fragment.tensor(*small)
        if axis == "h":  # rows as channels
            rows = fragment.tensor(1, x.h, x.c, x.w)
            permute(fragment, AxisWalk.of(powers), (0, 2, 1, 3), AxisWalk.of(rows))
        total = Plan(ne=MAC_SUM, w=rows.w, h=rows.h, c=rows.c, cout=1, power_category=1)
        total = unary.set_table(total, "reciprocal")
        fragment.add(unary.ne_stream(fragment.target, total, rows, Tensor(share.buffer, 1, 1, rows.h, rows.w)))
    combine(fragment, "mul", share, powers, y)
    for at in range(start, len(fragment.plans)):
        fragment.change(at, note="softmax through scratch")


@dataclass(frozen=True)
class _Block:
    first: int
    count: int


def _blocks(rows: int) -> list[_Block]:
    blocks = []
    at = 0
    while at < rows:
        count = min(BLOCK, rows - at)
        blocks.append(_Block(at, count))
        at += count
    return blocks


def rows_as_channels(fragment: Fragment, x: Tensor, y: Tensor) -> None:
    """One channel, many rows: rows become the channels of the two reductions (eight tasks at 256 x 256)."""
    channel = l2.channel_stride(x.w)
    size = x.h * channel
    padded = channel + l2.pe_pad(channel, 4 * l2.UNIT)
    values = x.h * 16
    fragment.need_room(
        2 * size + max(x.h * padded, size) + values + l2.RESULT_ROOM, f"softmax over {x.h} rows of {x.w}"
    )
    first = unary.copy_of(fragment.target, x).reading(dma=x.dma())
    first = tasks.choose_shape(fragment.target, first)
    region = Region(0, channel, channel, size)
    first, _ = tasks.ne_source(fragment.target, first, size)
    fragment.stay(first, region)
    top = 2 * size + x.h * padded
    _column_values(fragment, x, 0, top, MAXIMUM)
    target = Region(2 * size, channel, padded, channel)
    minus = difference(x.w, x.h, 1).against(broadcast=Axes.W)
    minus = tasks.resident(minus, region, After.PE_RESULT, second=Region(top, values, 16, values))
    minus = tasks.stays(minus, target, after=After.NOTHING)
    power = exponential(fragment.target, 1, x.h, x.w)
    minus, power = lock(minus, power)
    fragment.add(minus)
    power = tasks.resident(power, target, After.FOLLOWS_PE)
    fragment.stay(power, replace(region, base=size), after=After.NOTHING)
    _column_values(fragment, x, size, 0, RECIPROCAL_SUM)
    scale = Plan(pe=BINARY["mul"], w=x.w, h=x.h, c=1).reading(broadcast=Axes.W).writing(dma=y.dma())
    scale = tasks.resident(scale, Region(0, values, 16, values), After.PE_RESULT, second=replace(region, base=size))
    fragment.send(scale, 2 * size, after=After.NOTHING)


def _column_values(fragment: Fragment, x: Tensor, base: int, target: int, operation: Planar) -> None:
    """Maximum or 1 / sum of every row, rows as channels, in blocks."""
    channel = l2.channel_stride(x.w)
    values = x.h * 16
    for i, block in enumerate(_blocks(x.h)):
        plan = Plan(pe=operation, w=x.w, c=block.count)
        row = block.count * channel
        if folds(x.w):
            plan = fold_row(plan, x.w)
            row = x.w // 2
        plan = plan.but(patch=pe_patch(plan.w, plan.h, operands=1))
        region = Region(base + block.first * channel, channel, row, x.h * channel)
        plan = tasks.resident(plan, region, After.NE_RESULT if i == 0 else After.NOTHING)
        fragment.stay(plan, Region(target + block.first * 16, 16, values, values), after=After.NOTHING)


def streamed(fragment: Fragment, x: Tensor, y: Tensor) -> None:
    """Maps that do not fit L2: strips between difference and table, the powers through scratch (§12.1)."""
    lanes = next(i for i in (8, 4, 2, 1) if x.c % i == 0) if fragment.target.choices.alone_side_by_side else 1
    step = x.c * 16
    base = x.h * step
    row_dma = Dma(x.buffer, x.offset, x.batch, x.plane, x.batch, x.row)
    top = Plan(pe=MAXIMUM, w=x.w, c=x.c, groups=x.h).reading(dma=row_dma)
    top, _ = tasks.pe_source(top, base)
    if base + x.c * l2.channel_stride(x.w) > fragment.limits.l2_bytes or x.w <= 256:
        raise UnsupportedError(f"softmax over rows of {x.w} in a map of {x.c} x {x.h} x {x.w}", code=Reason.EXTENT)
    values = row_values(x, 0)
    fragment.stay(top, values)
    minus = difference(x.w, x.h, x.c).against(broadcast=Axes.W)
    power = exponential(fragment.target, x.c, x.h, x.w)
    minus, power = lock(minus, power)
    block = x.c * 2 * l2.UNIT
    pad = l2.ne_pad(block, x.h, (0, 0, 3), 16)
    strip = Region(base, 2 * l2.UNIT, block + pad, block, block)
    ring = base + x.h * strip.row
    window = x.c * 4 * l2.UNIT
    source = Region(ring, 4 * l2.UNIT, window + l2.pe_pad(window, 4 * l2.UNIT), window, window)
    minus = tasks.by_dma(minus.reading(dma=x.dma()), source, after=After.PE_RESULT)
    minus = minus.against(region=Region(0, 16, step, step)).writing(region=strip, type=ResultType.STRIPS)
    fragment.add(minus.but(holds=True, streams=True))
    line = align(2 * x.w * lanes, 64)
    plane = line * x.h
    total = plane * (x.c // lanes)
    buffer = fragment.workspace(total)
    power = power.writing(dma=Dma(buffer, 0, line, plane, total, total, interleave=lanes))
    power = power.reading(region=strip, type=SourceType.STRIPS)
    end = ring + x.h * source.row
    power = power.sending(end).but(streams_in=True, holds=True)
    fragment.add(power)
    fragment.need_room(end + l2.RESULT_ROOM, f"softmax over a map of {x.c} x {x.h} x {x.w}")
    sums = Plan(pe=RECIPROCAL_SUM, w=x.w, c=x.c, groups=x.h)
    sums = sums.reading(dma=Dma(buffer, 0, total, plane, total, line, interleave=lanes))
    sums, _ = tasks.pe_source(sums, base)
    sums = sums.reading(after=After.NE_SOURCE)
    fragment.stay(sums, values, after=After.NOTHING)
    scale = Plan(pe=BINARY["mul"], w=x.w, h=x.h, c=x.c, source=Operand(broadcast=Axes.W))
    scale = scale.against(dma=Dma(buffer, 0, line, plane, total, total, interleave=lanes)).writing(dma=y.dma())
    scale = scale.reading(region=Region(0, 16, step, step), after=After.PE_RESULT)
    scale = scale.but(patch=pe_patch(x.w, x.h, operands=2))
    narrow = l2.pe_window(x.w, scale.patch[0])
    block = x.c * narrow
    fragment.need_room(base + 2 * x.h * (block + 2 * l2.UNIT), f"softmax over a map of {x.c} x {x.h} x {x.w}")
    scale = scale.against(region=Region(base, narrow, block + l2.pe_pad(block, narrow), block, block))
    fragment.send(scale, base + x.h * scale.second.region.row, after=After.NE_RESULT)
