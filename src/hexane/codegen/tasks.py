"""Building blocks of recipes: NE and PE tasks with their cores, work units, and places in L2.

Every function takes a plan whose dimensions and DRAM walks are set and gives the plan with what follows from them
(docs/reference/engine-h13.md 4.3, 4.6, 7). What a task collides with depends on what ran before: ``STARTS`` is settled
by ``link``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hexane.codegen import l2
from hexane.codegen.geometry import (
    PATCH_BYTES,
    PATCH_PIXELS,
    ceil_log2,
    cores_log2,
    floor_log2,
    inputs_per_core,
    is_small_source,
    largest_shape,
    patch_count,
    pe_patch,
    transposing_cores_log2,
    transposing_shape,
    work_shape,
)
from hexane.codegen.operands import Extents, bursts, result_of, source_rows
from hexane.codegen.operations import MAC_COPY, MAC_COPY_BYTES, NO_KERNEL, After, Element, NeOp, SourceType
from hexane.codegen.plan import Plan, Region
from hexane.errors import Reason, UnsupportedError
from hexane.rounding import align

if TYPE_CHECKING:
    from hexane.codegen.targets import Target

STARTS = After.ANYTHING

Placed = tuple[Plan, int]
"""A plan whose source has its place, and the end of that."""

MOST_CORES_LOG2 = 4
PLANAR_TILE = 32
"""Rows of a planar task that does not fit L2 whole (programs for M4 and an early compiler's for M1)."""
MOST_STACK_LOG2 = 3
"""Work units that a core takes one above the other, at most eight."""


def copy_plan(
    target: Target, c: int, h: int, w: int, *, out_trans: bool = False, element: Element = Element.FP16, **settings: Any
) -> Plan:
    """An NE bypass copy, with other fields of the plan; eight-bit sources have BinaryPoint 0 and no kernel format.

    Source: docs/reference/engine-h13.md 8.2.
    """
    cores, inputs, group = transposing_cores_log2(w) if out_trans else cores_log2(c), 1, 0
    if out_trans and inputs_per_core(target, c) > 1:
        cores, inputs = MOST_CORES_LOG2, inputs_per_core(target, c)
        group = ceil_log2(inputs)
    plan = Plan(ne=MAC_COPY, w=w, h=h, c=c, unicast=inputs, out_trans=out_trans, cores_log2=cores, **settings)
    if element is not Element.FP16:
        plan = plan.reading(element=element).but(ne=MAC_COPY_BYTES, kernel_format=NO_KERNEL)
    return plan.but(ocg=group) if group else plan


def burst_bytes(plan: Plan, *, alone: bool = False) -> int:
    """Bytes of the task's bursts, for the work-unit rule (§4.3.1): surfaces and, unless ``alone``, their kernel.

    A kernel taller than its step reads rows of the border too.
    """
    total = 0
    if plan.source.transfer is not None:
        rows = plan.h if alone else max(plan.h, (plan.hout - 1) * plan.window.sy + plan.window.kh)
        total += bursts(plan.source.transfer, Extents(plan.groups, 1, plan.c, rows, plan.w))
    if plan.result.transfer is not None:
        total += bursts(plan.result.transfer, result_of(plan, 0).extents)
    if total and not alone and plan.kernel is not None:
        total += plan.kernel.bytes_read
    return total


def choose_shape(target: Target, plan: Plan, *, weighted: bool = False) -> Plan:
    """Work-unit shape of an NE task that is not locked to a neighbour (§4.3.1)."""
    kernel_bytes = max(plan.kernel.sizes) if plan.kernel is not None else 0
    if weighted and plan.result.dma is not None and plan.result.dma.interleave > 1:
        s = largest_shape(plan.wout, plan.hout)
        return plan.but(shape=(s, s, s))  # pixels side by side: whole patches (M4, 32x32)
    if weighted and is_small_source(target, plan.wout, plan.hout, kernel_bytes):
        one_by_one = plan.window.taps == 1
        choices = target.choices
        by_map = one_by_one and choices.small_patch and kernel_bytes <= choices.small_patch_bytes
        s = largest_shape(plan.wout, plan.hout) if by_map else 4
        return plan.but(small_source=True, shape=(s, s, s))
    if plan.kernel_format.binary:
        return plan.but(shape=(0, 0, 0))  # a one-hot kernel of masks: patches of one row (one program, 375 x 750)
    by_dma = plan.source.transfer is not None
    if (
        plan.out_trans
        and plan.unicast
        and by_dma
        and not (target.choices.shared_inputs and plan.source.element is Element.UINT8)
    ):
        interleaved = plan.result.transfer is not None and plan.result.transfer.interleave > 1
        return plan.but(shape=transposing_shape(target, plan.c, plan.w, plan.h, interleaved=interleaved))
    per_output = (plan.unicast or plan.c) * plan.window.taps
    coefficients = max(2, plan.lanes) * per_output * plan.groups
    narrow = plan.source.element is Element.UINT8 and plan.result.element is Element.UINT8
    pixels = PATCH_BYTES if narrow else PATCH_PIXELS
    fat_tile, stack = plan.fat_tile, plan.stack_log2
    if fat_tile:
        pixels *= 2
    alone = plan.unicast_pixel
    stacks = alone and _stacks(target, plan)
    if stacks and MOST_CORES_LOG2 - plan.cores_log2 > MOST_STACK_LOG2 and plan.wout * plan.hout > pixels:
        fat_tile, pixels = True, 2 * pixels
    size, traffic = (plan.wout, plan.hout), burst_bytes(plan, alone=alone)
    shape = work_shape(target, size, coefficients, traffic, pixels, alone=alone)
    if stacks:
        idle = MOST_CORES_LOG2 - plan.cores_log2 - fat_tile
        patches = patch_count(plan.wout, plan.hout, shape[2], pixels)
        stack = min(idle, MOST_STACK_LOG2, floor_log2(patches))
    return plan.but(shape=shape, fat_tile=fat_tile, stack_log2=stack)


def _stacks(target: Target, plan: Plan) -> bool:
    """True where few cores get several work units each: copies, tables and maxima to DRAM, tables of several cores."""
    if not target.choices.stacks_units or plan.out_trans or plan.ne.op not in (NeOp.BYPASS, NeOp.MAXIMUM):
        return False
    if plan.cores_log2 == MOST_CORES_LOG2 or plan.source.element is not Element.FP16 or plan.groups > 1:
        return False
    leaves = plan.result.transfer is not None
    return leaves or (plan.cores_log2 > 0 and bool(plan.table))


def by_dma(plan: Plan, region: Region, *, keep: bool = False, after: After = STARTS) -> Plan:
    """The task with a first operand that comes by DMA, into a ring or kept whole."""
    return plan.reading(region=region, type=SourceType.DMA_KEEP if keep else SourceType.DMA_STREAM, after=after)


def result_after(plan: Plan) -> After:
    """A result collides with everything where the task's source does."""
    return STARTS if STARTS in plan.source.after else After.NOTHING


def strip_bytes(plan: Plan) -> int:
    """Bytes of the whole result in L2 when it is not cut: one strip for streamed widths."""
    if plan.out_trans:
        return plan.hout * plan.wout * l2.channel_stride(plan.cout)
    width = min(plan.columns, 128)
    return plan.hout * plan.cout * l2.channel_stride(width)


def result_rows_bytes(target: Target, plan: Plan) -> int:
    """Bytes of the result that L2 must hold while an untiled source runs: of a sum over channels only two patches."""
    whole = strip_bytes(plan)
    if not target.choices.holds_two_patches or plan.out_trans or plan.unicast or plan.ne.op is NeOp.BYPASS:
        return whole
    return min(whole, (2 << plan.shape[2]) * whole // plan.hout)


def ne_source(target: Target, plan: Plan, base: int, *, keep: bool = False, after: After = STARTS) -> Placed:
    """Source of an NE task by DMA at ``base``: tile height, window, pad, with the end of its region (§7)."""
    assert plan.source.dma is not None
    element = plan.source.dma.element
    wide = plan.fat_tile and plan.unicast > 0
    if keep:
        channel = l2.channel_stride(plan.w, element)
    else:
        stride = plan.window.sx << wide
        narrow = plan.out_trans and plan.unicast and plan.shape[0] == 3
        pixels = max(32, 128 >> plan.shape[1]) if narrow else 128 * stride
        channel = l2.ne_window(plan.w, element, pixels=pixels + align(plan.window.kw - 1, 8) * stride * plan.window.ox)
    row = plan.c * channel
    rows, tile, again = plan.h, plan.tile, plan.read_rows
    streams = plan.result.dma is not None
    result = result_rows_bytes(target, plan) if streams else 0
    transposed = plan.out_trans and plan.unicast > 1 and plan.shape[0] == plan.shape[1] == plan.shape[2]
    shape = (3, 3, 3) if keep and plan.shape[2] == 2 else plan.shape  # seen: kept maps are padded for 16-px patches
    pad = l2.ne_pad(
        row,
        plan.h,
        shape,
        plan.w * element // 2,
        small=plan.small_source,
        stride=plan.window.sy,
        transposed=transposed,
        narrow=plan.unicast_pixel and target.choices.narrow_copies,
        pixels=PATCH_PIXELS << wide,
    )
    if plan.out_trans and plan.unicast and plan.shape[1] < plan.shape[0]:
        pad = 0
    if plan.h * (row + pad) + result + base > target.limits.l2_bytes and not keep and plan.hout > 1:
        tile = _tile(target, plan, row, base)
        bypass = bool(plan.unicast) and plan.ne.op is NeOp.BYPASS
        rows, read = source_rows(plan, tile)
        if not bypass or tile != plan.patch_rows or base + rows * (row + pad) > target.limits.l2_bytes:
            pad = 0
        again = max(0, read - plan.h)
    elif plan.fat_tile or plan.stack_log2:
        tile = min(plan.hout, 1 << plan.shape[2] + plan.stack_log2)
        rows, read = source_rows(plan, tile)
        again = max(0, read - plan.h)
    elif base + plan.h * (row + pad) + streams * l2.RESULT_ROOM > target.limits.l2_bytes:
        raise UnsupportedError(
            f"one row of {plan.c} channels x {plan.w} pixels does not fit the engine's L2 buffer"
            if plan.h == 1
            else f"a map of {plan.c} x {plan.h} x {plan.w} has to stay in the engine's L2 buffer"
        )
    plan = by_dma(plan, l2.dma_region(base, plan.c, channel, pad), keep=keep, after=after)
    return plan.but(tile=tile, read_rows=again), base + rows * (row + pad)


def _tile(target: Target, plan: Plan, row: int, base: int) -> int:
    bypass = bool(plan.unicast) and plan.ne.op is NeOp.BYPASS
    patch = plan.patch_rows
    if plan.out_trans:
        result_row = plan.wout * l2.channel_stride(plan.cout)
    else:
        result_row = plan.cout * l2.channel_stride(min(plan.columns, 128))
    buffer_rows = 1 if bypass else patch if plan.unicast else 2 * patch
    if plan.result.dma is None:
        buffer_rows = 0
    tile = _tile_height(plan, row, buffer_rows * result_row, 1 if bypass else patch, target.limits.l2_bytes - base)
    if tile <= 0:
        raise UnsupportedError(
            f"a tile of {plan.c} channels x {plan.w} pixels does not fit the engine's L2 buffer",
            hint="the channels of this layer must be split",
            code=Reason.MEMORY,
        )
    return tile


def _tile_height(plan: Plan, row: int, buffer: int, step: int, room: int) -> int:
    """Output rows per tile when source and result together exceed L2 (§7.5); 0 when not even one step fits.

    ``row`` bytes of a source row, ``buffer`` of the result while a tile runs; tiles are multiples of ``step`` rows.
    """
    patch, kh, sy = plan.patch_rows, plan.window.kh, plan.window.sy
    if kh <= sy and plan.hout % patch == 0 and patch * sy * row + buffer <= room:
        return patch
    if buffer >= room:
        return 0
    rows = (room - buffer) // row
    # 3x3 at stride 2 keeps 2T + 2 rows, stride 1 T + Kh - 1
    tile = rows - kh + 1 if sy == 1 else (rows - max(0, kh - 1)) // sy
    return min(tile, plan.h, plan.hout) // step * step


def pe_source(
    plan: Plan, base: int, *, keep: bool = False, after: After = STARTS, operands: int | None = None
) -> Placed:
    """First operand of a PE task by DMA at ``base``, with the task's patch, and the end of its region."""
    assert plan.source.dma is not None
    reduction = plan.pe.reduces
    patch = pe_patch(plan.w, plan.h, operands=operands or plan.pe.operands)
    element = plan.source.dma.element
    channel = l2.channel_stride(plan.w, element) if keep else l2.pe_window(plan.w, patch[0], element)
    block = plan.c * channel
    row = plan.d * block
    pad = l2.pe_pad(row, channel, reduction=reduction, height=plan.h, resident=keep)
    group = plan.d * block
    source = Region(base, channel, row + pad, block if plan.d == 1 else channel, block if plan.d == 1 else group)
    return by_dma(plan, source, keep=keep, after=after).but(patch=patch), base + plan.h * (row + pad)


def streams_out(
    target: Target, plan: Plan, base: int, *, explicit: bool | None = None, after: After | None = None
) -> Plan:
    """Result by DMA: the automatic buffer, or explicit strides of one strip for streamed widths (§7.4)."""
    after = result_after(plan) if after is None else after
    assert plan.result.dma is not None
    if explicit is None:
        explicit = plan.columns > 128 and (
            plan.shape[2] > 0 if plan.unit == "NE" and not plan.out_trans else plan.unit == "PE" and plan.patch[0] == 5
        )
        explicit = explicit and plan.result.dma.interleave == 1
        if plan.unit == "PE" and plan.wout <= 256:
            explicit = False
    result = Region(base)
    if explicit and plan.unit == "NE":
        block = plan.cout * 0x100
        row = block + {4: 0xA0}.get(plan.shape[2], 0x80)
        if plan.tile < plan.hout or base + plan.hout * row > target.limits.l2_bytes:
            explicit = False  # only the rows of a patch are held
        else:
            result = Region(base, 0x100, row, block, block)
    elif explicit:
        block = plan.cout * 0x40
        result = Region(base, 0x40, block + l2.pe_pad(block, 0x40), block, block)
    return plan.streaming(result, automatic=not explicit, after=after)


def stays(plan: Plan, region: Region, *, after: After | None = None) -> Plan:
    """Result that stays in L2, which the next task needs unless it is staged."""
    plan = plan.leaving(region, after=result_after(plan) if after is None else after)
    return plan.but(holds=not plan.result.staged)


def resident(plan: Plan, region: Region, after: After = After.NOTHING, *, second: Region | None = None) -> Plan:
    """Operands that earlier tasks left in L2. A planar task gets the patch of its map unless it has one."""
    patch = plan.patch
    if plan.unit == "PE" and patch == (0, 0):
        patch = pe_patch(plan.w, plan.h, operands=plan.pe.operands)
    source = plan.source._replace(region=region, type=SourceType.RESIDENT, after=after)
    against = plan.second._replace(region=second or plan.second.region)
    return plan.but(source=source, second=against, patch=patch)


def planar(target: Target, plan: Plan) -> Plan:
    """A PE task of one operand from DRAM to DRAM, cut in height where L2 does not hold it."""
    plan, end = pe_source(plan, 0)
    return fit_pe(target, streams_out(target, plan, end, explicit=False))


def fit_pe(target: Target, plan: Plan) -> Plan:
    """Cut a PE task in height when its regions exceed L2: 32 rows, fewer where they do not fit (INFERRED)."""
    patch = plan.patch_rows
    result_row = plan.result.region.row or plan.cout * l2.channel_stride(min(plan.wout, 1 << plan.patch[0]))
    first = plan.source.type is not SourceType.RESIDENT
    second = plan.second.dma is not None
    rows = [plan.source.region.row] * first + [plan.second.region.row] * second
    if not rows:
        return plan
    low = plan.source.region.base if first else plan.second.region.base
    reduction = plan.pe.reduces
    result = plan.cout * l2.UNIT if reduction else plan.h * result_row  # a reduction leaves one value per channel
    if low + plan.h * sum(rows) + result + 0x40 <= target.limits.l2_bytes:
        return plan
    if reduction:
        raise UnsupportedError(
            f"a reduction over {plan.c} x {plan.h} x {plan.w} does not fit the engine's L2 buffer", code=Reason.MEMORY
        )
    room = target.limits.l2_bytes - low - 0x40 - 2 * patch * result_row
    tile = room // sum(rows) // patch * patch
    if tile <= 0:
        raise UnsupportedError(
            f"a row of {plan.c} channels x {plan.w} pixels does not fit the engine's L2 buffer", code=Reason.MEMORY
        )
    tile, operand = min(tile, plan.h, PLANAR_TILE), plan.second.region
    end = low + tile * rows[0]
    if first and second:
        operand = operand.at(l2.second_operand_base(end))
        end = operand.base + tile * operand.row
    plan = plan.against(region=operand).writing(region=plan.result.region.at(end)).but(tile=tile)
    return plan.inferred("tile height of a planar task") if tile < PLANAR_TILE else plan


def patch_row(plan: Plan) -> int:
    """Tile height of a resident copy of one-pixel columns: one patch row (§13, reductions over H)."""
    return plan.patch_rows if plan.hout % plan.patch_rows == 0 else plan.hout
