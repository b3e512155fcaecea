"""Broadcast and constant operands by a DMA of their own: one planar task (H15 and later; docs/parity.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hexane.codegen import l2, tasks
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.geometry import pe_patch
from hexane.codegen.operations import SCALE_SHIFT, Axes, PeKind, Planar
from hexane.codegen.plan import Dma, Operand, Plan, Region
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.rounding import align

if TYPE_CHECKING:
    from hexane.codegen.targets import Target


def broadcast(fragment: Fragment, operation: Planar, a: Tensor, b: Tensor, out: Tensor) -> Plan:
    """a op b, either with size 1 along any axis: source 1 at 0, source 2 behind it, the result behind both."""
    plan = Plan(pe=operation, w=out.w, h=out.h, c=out.c, groups=out.n)
    plan = plan.reading(dma=_walk(a, out), broadcast=axes_of_one(a, out))
    plan = plan.against(dma=_walk(b, out), broadcast=axes_of_one(b, out)).writing(dma=out.dma())
    plan = plan.but(patch=pe_patch(out.w, out.h, operands=2))
    source, end = _region(a, 0, plan)
    if plan.second.broadcast is Axes.W and fragment.target.choices.plain_columns:
        channel = l2.channel_stride(1)
        second = Region(end, channel, b.c * channel, b.c * channel, b.c * channel)
        end += b.h * b.c * channel
    else:
        second, end = _region(b, l2.second_operand_base(end), plan)
    plan = tasks.by_dma(plan, source).against(region=second)
    plan = tasks.streams_out(fragment.target, plan, end)
    plan = _fit(fragment.target, plan, [(x.h > 1, 1) for x in (a, b)])
    if a.shape != out.shape:
        plan = plan.inferred("a first operand that is broadcast")
    return fragment.add(plan)


def axes_of_one(small: Tensor, big: Tensor) -> Axes:
    """The axes along which ``small`` has size 1 and ``big`` has not."""
    axes = Axes.NONE
    for axis, extent, whole in ((Axes.W, small.w, big.w), (Axes.H, small.h, big.h), (Axes.C, small.c, big.c)):
        if extent == 1 and whole > 1:
            axes |= axis
    return axes


def _walk(x: Tensor, out: Tensor) -> Dma:
    """The operand's walk; one sample under a batch is read again for every image."""
    walk = x.dma()
    return walk if x.n == out.n else replace(walk, group=0)


def _region(x: Tensor, base: int, plan: Plan) -> tuple[Region, int]:
    """Region of an operand in L2 and its end."""
    channel = l2.pe_window(x.w, plan.patch[0], x.element)
    block = x.c * channel
    row = block + l2.pe_pad(block, channel, height=x.h)
    return Region(base, channel, row, block, block), base + x.h * row


def _fit(target: Target, plan: Plan, operands: Sequence[tuple[bool, int]]) -> Plan:
    """Tiles of whole patches where regions and result exceed L2; an operand that no row of tiles moves is kept whole.

    ``operands`` says of each whether its rows go with the tile, and how many rows it has when they do not. Apple's
    choice for such maps is not known; only speed depends on it.
    """
    result_row = plan.result.region.row or plan.cout * l2.channel_stride(min(plan.wout, 1 << plan.patch[0]))
    if plan.result.region.base + plan.h * result_row <= target.limits.l2_bytes:
        return plan
    regions = (plan.source.region, plan.second.region)
    fixed = sum(rows * region.row for region, (moves, rows) in zip(regions, operands) if not moves)
    moving = sum(region.row for region, (moves, _) in zip(regions, operands) if moves)
    room = target.limits.l2_bytes - fixed - 2 * plan.patch_rows * result_row - l2.BANKS * l2.UNIT
    tile = room // moving // plan.patch_rows * plan.patch_rows if moving and room > 0 else plan.h if room > 0 else 0
    if tile <= 0:
        raise UnsupportedError(
            f"a row of {plan.c} channels x {plan.w} pixels does not fit the engine's L2 buffer", code=Reason.MEMORY
        )
    plan = plan.but(tile=min(tile, plan.h))
    sizes = [(plan.tile if moves else rows) * region.row for region, (moves, rows) in zip(regions, operands)]
    base = l2.second_operand_base(sizes[0])
    plan = plan.against(region=plan.second.region.at(base)).writing(region=plan.result.region.at(base + sizes[1]))
    return plan.inferred("tile height of a planar task")


def scale_and_shift(
    fragment: Fragment, x: Tensor, out: Tensor, shift: np.ndarray, scale: np.ndarray, axis: str
) -> Plan:
    """x times a scale and plus a shift per channel (or row): two rows of constants as the turned second operand."""
    return _constant_rows(fragment, x, out, np.stack([shift, scale]), axis, SCALE_SHIFT["add"])


def per_channel(fragment: Fragment, x: Tensor, out: Tensor, values: np.ndarray, axis: str, operation: Planar) -> Plan:
    """x op one value per channel (or row): one row of constants as the turned second operand."""
    return _constant_rows(fragment, x, out, values.reshape(1, -1), axis, operation)


def _constant_rows(fragment: Fragment, x: Tensor, out: Tensor, rows: np.ndarray, axis: str, operation: Planar) -> Plan:
    c, h, walk_in, walk_out = x.c, x.h, x.dma(), out.dma()
    if axis == "h":
        c, h = x.h, x.c
        walk_in, walk_out = (replace(walk, row=walk.plane, plane=walk.row) for walk in (walk_in, walk_out))
    count = rows.shape[1]
    stride = align(2 * count, 64)
    data = np.zeros((rows.shape[0], stride // 2), "<f2")
    data[:, :count] = rows
    plan = Plan(pe=operation, w=x.w, h=h, c=c, groups=x.n, second=Operand(transposed=True))
    if operation.kind is PeKind.BINARY:
        plan = plan.against(broadcast=(Axes.W if x.w > 1 else Axes.NONE) | (Axes.H if h > 1 else Axes.NONE))
    whole = rows.shape[0] * stride
    plan = (
        plan.reading(dma=walk_in)
        .writing(dma=walk_out)
        .against(dma=Dma(fragment.constant(data.tobytes()), 0, stride, whole, whole, 0))
    )
    plan, end = tasks.pe_source(plan, 0, operands=2)
    channel = l2.channel_stride(count)
    row = channel + l2.pe_pad(channel, 4 * l2.UNIT)
    plan = plan.against(region=Region(end, channel, row, channel, channel))
    end += rows.shape[0] * row
    plan = tasks.streams_out(fragment.target, plan, end)
    plan = _fit(fragment.target, plan, [(True, 1), (False, rows.shape[0])])
    if operation.kind is PeKind.BINARY and (x.w > 1 or h > 1):  # a bias row and a scale row are for all pixels anyway
        plan = plan.inferred("one constant per channel of a map")
    if axis == "h":
        plan = plan.inferred("a constant per row")
    return fragment.add(plan)
