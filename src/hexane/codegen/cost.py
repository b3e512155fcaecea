"""The duration word of a task (docs/reference/engine-h13.md 16): the longer of its DMA time and its engine time.

The word is an estimate for the scheduler; execution does not need it.
"""

from __future__ import annotations

from hexane.codegen.operands import Extents, bursts, read_extents, result_of
from hexane.codegen.operations import NeOp, PeKind
from hexane.codegen.plan import Dma, Plan
from hexane.rounding import align, ceil_div

DMA_BYTES_PER_US = 34130.0
COEFFICIENTS_PER_US = 2855.0  # dense convolution: 2 coefficients per cycle at 1.43 GHz
PE_PIXEL_TWO_NS = 8.87  # one-pixel channels, two operands
PE_PIXEL_ONE_NS = 4.4  # the same with one operand, or with a two-row constant
PE_GROUP_RESIDENT_NS = 2.7  # grouped reduction, per channel, group and 32 columns, or a folded row
NE_PIXEL_NS = 4.4  # copies and tables on one-pixel channels
NE_ROW_NS = 3.7  # table on a patch of one row: 512 channels of four take 7 us, so 3.42 to 3.90
NE_TURNED_NS = 2.2  # turned copy of one row, per channel: 2048 of 16 pixels take 4 us, so 1.96 to 2.44
PE_ROW_NS = 16.2 / 256  # reduction of one long row, per column
PE_FOLDED_ROW_NS = 5.4 / 256
PE_VALUE_NS = 0.0219  # two operands, per value: 32 values per cycle
NE_TABLE_PATCH_NS = 14.4  # table, per patch and lane: one resident 256x256 map on one core


def dma_bytes(plan: Plan) -> int:
    """Bytes that the task moves between DRAM and the engine, kernel streams included."""
    reduced = plan.pe.reduces
    total = 0
    if plan.source.transfer is not None:
        read = read_extents(plan, plan.source.broadcast)
        total += _source_bytes(plan, plan.source.transfer, read)
        if reduced and plan.groups > 1:  # nothing is read while the last group is reduced
            total += _source_bytes(plan, plan.source.transfer, read._replace(g=1))
    if plan.second.dma is not None:
        second = read_extents(plan, plan.second.broadcast)
        total += _constant_rows(plan) if plan.second.transposed else _source_bytes(plan, plan.second.dma, second)
    if plan.result.transfer is not None:
        extents = result_of(plan, 0).extents
        if plan.result.transposed:
            g, d, c, h, w = extents
            extents = Extents(1, 1, c, h, g * d * w)
        total += bursts(plan.result.transfer, extents)
    if plan.kernel is not None:
        total += plan.kernel.bytes_read
    return total


def _constant_rows(plan: Plan) -> int:
    """A second operand that lies with channels along W: a row of scales below the row of shifts, or one row."""
    return (2 if plan.pe.kind is PeKind.SCALE_SHIFT else 1) * align(plan.c * 2, 64)


def _source_bytes(plan: Plan, dma: Dma, extents: Extents) -> int:
    return bursts(dma, extents) + plan.read_rows * bursts(dma, extents._replace(h=1))


def engine_ns(plan: Plan) -> float:
    """Engine time where a fit is known, else 0 (§16)."""
    pixel = plan.w == plan.h == plan.d == 1
    channels = plan.c * plan.groups
    if plan.unit == "PE":
        if plan.pe.kind is PeKind.REDUCE and plan.groups > 1:
            chunks = 1 if plan.h > 1 or plan.source.dma is not None else ceil_div(plan.w, 32)
            return channels * PE_GROUP_RESIDENT_NS * chunks
        if plan.pe.reduces and plan.w >= 128:
            return channels * plan.w * PE_ROW_NS
        if plan.pe.reduces and plan.h == 4 and plan.w * 4 >= 128 and plan.source.dma is None:
            return channels * plan.w * 4 * PE_FOLDED_ROW_NS
        if pixel:
            second = plan.second.dma is not None and not plan.second.transposed
            of_dma = (0.0, PE_PIXEL_ONE_NS, PE_PIXEL_TWO_NS)[(plan.source.dma is not None) + second]
            return channels * of_dma / (2 if plan.source.transposed else 1)
        if plan.pe.kind in (PeKind.BINARY, PeKind.SCALE_SHIFT):
            return channels * plan.w * plan.h * PE_VALUE_NS
        return 0.0
    if plan.unicast:
        time = channels * NE_PIXEL_NS if pixel and (plan.ne.op is NeOp.BYPASS or plan.ne.ones) else 0.0
        if plan.out_trans and plan.unicast == plan.hout == 1 and not plan.shape[2]:
            time = max(time, channels * NE_TURNED_NS)
        if plan.table and plan.source.dma is None:
            each = NE_PIXEL_NS if plan.shape[2] else NE_ROW_NS
            time = max(time, plan.lanes * plan.patches * NE_TABLE_PATCH_NS, channels * plan.patches * each)
        return time
    if plan.kernel is not None and (plan.kernel.data or plan.kernel.source is not None):
        return 1000 * plan.patches * plan.lanes * plan.c * plan.window.taps * plan.groups / COEFFICIENTS_PER_US
    return 0.0


def duration_us(plan: Plan) -> int:
    """ExeCycles of the header: whole microseconds, truncated."""
    if plan.streams_in:
        return 0
    return int(max(dma_bytes(plan) / DMA_BYTES_PER_US, engine_ns(plan) / 1000))
