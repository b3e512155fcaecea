"""Convolutions in another form: one tall column turned to a row (4.3), kernels wider than 7.

Source: docs/reference/engine-h13.md 9.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hexane.codegen import l2, tasks
from hexane.codegen.epilogue import apply
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.geometry import ceil_log2, floor_log2, pe_patch
from hexane.codegen.operations import COPY, ONE_HOT_KERNEL, PIXEL, After, KernelWindow, Mac
from hexane.codegen.plan import Destination, Dma, Plan, Region
from hexane.codegen.recipes.blocks import Convolution, Product, dense_block, packed
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.kernels import KernelLayout
from hexane.lowering.fusion import Epilogue
from hexane.lowering.windows import shifts_first
from hexane.rounding import align, ceil_div

if TYPE_CHECKING:
    from hexane.codegen.targets import Target


def is_tall(target: Target, conv: Convolution) -> bool:
    """A pointwise convolution over one column that does not fit L2 is turned so that its rows run along W."""
    x, y = conv.x, conv.y
    if conv.window != PIXEL or x.w != 1:
        return False
    column = l2.channel_stride(1)
    return x.h > 8 and x.h * (x.c + y.c) * column > target.limits.l2_bytes >= x.c * l2.odd_channel_stride(x.h) * 3 // 2


def tall(fragment: Fragment, conv: Convolution, n: int) -> None:
    """Turned copy into L2, the convolution along W into scratch, turned copy back."""
    x, y = conv.x, conv.y
    turn = tasks.copy_plan(fragment.target, x.h, x.c, 1, out_trans=True)
    turn = turn.reading(dma=replace(x.dma(n * x.batch), row=x.plane, plane=x.row))
    turn = tasks.choose_shape(fragment.target, turn)
    channel = l2.odd_channel_stride(x.h)
    region = Region(0, channel, channel, channel)
    turn, _ = tasks.ne_source(fragment.target, turn, x.c * channel)
    fragment.stay(turn, region)
    flat = fragment.tensor(1, y.c, 1, y.h)
    one_patch = y.h <= 128
    product = Product(conv.weights.shaped(y.c, x.c), conv.bias, conv.uniform, conv.epilogue)
    blocks = product.blocks(fragment.target, one_patch=one_patch, transposed=False)
    for i, block in enumerate(blocks):
        plan = dense_block(fragment.target, product, block, y.h, out_trans=False)
        plan = plan.writing(dma=flat.dma(block.first * flat.plane))
        plan = tasks.choose_shape(fragment.target, plan, weighted=True)
        plan = tasks.resident(plan, region, After.NE_RESULT if i == 0 else After.NOTHING)
        plan = plan.sending(x.c * channel).but(holds=i < len(blocks) - 1)
        fragment.add(plan)
    back = tasks.copy_plan(fragment.target, 1, y.c, y.h, out_trans=True)
    source = replace(flat.dma(), row=flat.plane, plane=flat.row)
    back = back.reading(dma=source).writing(dma=replace(y.dma(n * y.batch), row=y.plane, plane=y.row))
    back, end = fragment.bring(back, 0)
    fragment.send(back, end)


def widened(fragment: Fragment, conv: Convolution) -> Fragment:
    """A depthwise 1 x k wider than 7: two columns per step into L2, then a planar copy of the real width (§9.8)."""
    x, y, window = conv.x, conv.y, conv.window
    if x.n > 1 or (conv.bias is None and window.kw != 9):
        raise UnsupportedError(f"a kernel {window.kw} pixels wide in a batch or without bias", code=Reason.WINDOW)
    if conv.bias is None:
        conv = replace(conv, bias=np.zeros(y.c, np.float16))
    plan = conv.plan(0).writing(dma=None).but(window=replace(window, sx=2, ox=2), wout=ceil_div(y.w, 2))
    plan = plan.but(unicast=1, cores_log2=min(4, ceil_log2(x.c)), macs=y.c * window.kw * y.h * y.w)
    layout = replace(conv.layout(y.c, 1, plan.cores_log2), unicast=True, stride=(1, 2), widened=True)
    plan = plan.but(kernel=packed(fragment.target, layout, conv.weights.values, conv.bias, conv.epilogue))
    plan = tasks.choose_shape(fragment.target, plan, weighted=True)
    channel = l2.channel_stride(2 * plan.wout)
    region = Region(0, channel, y.c * channel, y.c * channel)
    plan, end = tasks.ne_source(fragment.target, plan, y.h * region.row)
    plan = fragment.stay(plan, region)
    crop = Plan(pe=COPY, w=y.w, h=y.h, c=y.c, result=Destination(dma=y.dma()))
    crop = crop.but(patch=pe_patch(y.w, y.h, operands=1) if y.w <= 256 else (8, plan.shape[2]))
    crop = tasks.resident(crop, region, After.FOLLOWS_NE).sending(end)
    fragment.add(crop)
    return fragment


def pads_left_only(conv: Convolution) -> bool:
    """A pointwise depthwise convolution with padding on the left, which is as large as its kernel."""
    x, y, window = conv.x, conv.y, conv.window
    return (
        conv.one_to_one
        and window == KernelWindow(left=window.left)
        and shifts_first((x.n, x.c, x.h, x.w), (y.h, y.w), window.left)
    )


def padded(fragment: Fragment, conv: Convolution) -> Fragment:
    """T0 shifts the map by a one-hot palettized kernel, T1 is the convolution itself (§9.10, appendix A)."""
    x, y, window = conv.x, conv.y, conv.window
    shift = Plan(w=x.w, h=x.h, c=x.c, wout=y.w, unicast=1)
    shift = shift.but(window=KernelWindow(kw=window.left + 1, left=window.left), cores_log2=floor_log2(x.c))
    one_hot = np.zeros((x.c, 1, 1, window.left + 1), np.float16)
    one_hot[..., 0] = 1.0
    layout = KernelLayout(
        x.c, 1, 1, window.left + 1, unicast=True, cores=1 << shift.cores_log2, sparse=True, binary=True
    )
    shift = shift.but(kernel=packed(fragment.target, layout, one_hot, None, Epilogue()), kernel_format=ONE_HOT_KERNEL)
    shift = shift.reading(dma=x.dma())
    shift = tasks.choose_shape(fragment.target, shift, weighted=True)
    plan = Plan(ne=Mac(bias=conv.bias is not None), w=y.w, h=y.h, c=x.c, unicast=1).but(cores_log2=shift.cores_log2)
    plan = apply(conv.epilogue, plan)
    layout = replace(conv.layout(x.c, 1, plan.cores_log2), unicast=True)
    plan = plan.writing(dma=y.dma()).but(
        kernel=packed(fragment.target, layout, conv.weights.values, conv.bias, conv.epilogue)
    )
    channel = l2.channel_stride(y.w)
    size = y.h * x.c * channel
    if y.w <= 128 and 2 * size + l2.RESULT_ROOM <= fragment.limits.l2_bytes:
        _shift_in_l2(fragment, shift, plan, y, channel, size)
    else:
        _shift_through_scratch(fragment, shift, plan, y)
    return fragment


def _shift_in_l2(fragment: Fragment, shift: Plan, plan: Plan, y: Tensor, channel: int, size: int) -> None:
    region = Region(0, channel, y.c * channel, y.c * channel)
    shift, _ = tasks.ne_source(fragment.target, shift, size)
    walk = Dma(fragment.workspace(y.bytes), 0, y.row, y.plane, y.batch, y.batch)
    shift = shift.writing(dma=walk, staged=True)
    fragment.stay(shift, region)
    plan = plan.reading(dma=walk, staged=True)
    plan = tasks.choose_shape(fragment.target, plan, weighted=True)
    plan = tasks.resident(plan, region, After.NE_RESULT | After.STAGED).sending(size)
    fragment.add(plan)


def _shift_through_scratch(fragment: Fragment, shift: Plan, plan: Plan, y: Tensor) -> None:
    lanes = next(i for i in (8, 4, 2, 1) if y.c % i == 0)
    row = align(2 * y.w * lanes, 64)
    plane = row * y.h
    total = plane * (y.c // lanes)
    walk = Dma(fragment.workspace(total), 0, row, plane, total, total, interleave=lanes)
    shift = shift.writing(dma=walk)
    shift, end = tasks.ne_source(fragment.target, shift, 0)
    fragment.send(shift, end, explicit=False)
    plan = plan.reading(dma=walk)
    plan = tasks.choose_shape(fragment.target, plan, weighted=True)
    plan, end = tasks.ne_source(fragment.target, plan, 0)
    fragment.send(plan, end)
