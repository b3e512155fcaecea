"""Convolutions: dense, depthwise, grouped, strided, with what follows them.

Source: docs/reference/engine-h13.md 7.6, 8.1, 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hexane.codegen import tasks
from hexane.codegen.context import Context
from hexane.codegen.forms import BY_BITS, by_form
from hexane.codegen.fragment import Fragment
from hexane.codegen.geometry import ceil_log2, is_small_source, output_group
from hexane.codegen.operations import PLAIN_KERNEL, SPARSE_KERNEL, KernelWindow
from hexane.codegen.plan import Plan
from hexane.codegen.recipes.blocks import (
    ChannelBlock,
    Convolution,
    StreamHeads,
    channel_blocks,
    packed,
    parted_bias,
    place_blocks,
)
from hexane.codegen.recipes.conv_groups import neighbours, parts_of, walk_of_part
from hexane.codegen.recipes.conv_special import is_tall, padded, pads_left_only, tall, widened
from hexane.codegen.recipes.registry import constant, fused, need_fp16, recipe
from hexane.codegen.weights import weights_from
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.lowering import windows
from hexane.lowering.fusion import Epilogue
from hexane.lowering.groups import is_loop
from hexane.lowering.weights import stream_of
from hexane.rounding import align, ceil_div

if TYPE_CHECKING:
    from hexane.codegen.targets import Target
    from hexane.graph.ir import Op

PAIR = 2  # outputs per core of a convolution whose cores work in pairs


@recipe("conv", match=fused, shrinks=True)
def convolution(ops: Sequence[Op], context: Context) -> Fragment:
    """conv: neural engine, one task or several blocks of output channels; bias, relu, table and factor in the task."""
    conv = convolution_of(ops, context)
    fragment = (_lower_once if conv.weights.nbytes <= BY_BITS else lower)(conv, context)
    if ops[-1].type == "quantize":
        fragment.inferred("results stored as bytes")
    return fragment


def convolution_of(ops: Sequence[Op], context: Context) -> Convolution:
    """A convolution and what its task does behind the sums; UnsupportedError for a form that no task has."""
    op = ops[0]
    need_fp16(op.inputs["x"])
    weight, bias = constant(op.inputs["weight"]), op.inputs.get("bias")
    if weight is None or (bias is not None and not bias.is_constant):
        raise UnsupportedError("a convolution whose weights are computed", code=Reason.COMPUTED)
    epilogue = Epilogue.of(ops)
    x, y = context.tensor(op.inputs["x"]), context.tensor(ops[-1].output)
    weights = weights_from(weight, stream_of(op, context.limits), epilogue.scale)
    start = epilogue.bias_behind_scale if weights.scaled else epilogue.bias
    window, groups, uniform = window_of(op), op.arg("groups"), 0.0
    if groups == window.taps == 1 and not window.strided:  # the task of a product
        start, uniform = parted_bias(start, weights)
    conv = Convolution(x, y, weights, start, window, epilogue, groups, uniform)
    return replace(conv, parts=parts_of(conv, context))


def window_of(op: Op) -> KernelWindow:
    """Strides and padding as the engine takes them; UnsupportedError for what needs another form."""
    window = windows.window_of(op)
    strides, dilations, (left, top, _, _) = window.strides, window.dilations, window.pads
    size = (1, 1, *op.inputs["weight"].shape[2:])[-2:]
    pads = (top, left)
    if any(d != 1 for d, k in zip(dilations, size) if k > 1):
        raise UnsupportedError("a dilated convolution", hint="legalise expands its kernel", code=Reason.DILATION)
    if not set(strides) <= {1, 2}:
        raise UnsupportedError(f"stride {strides}; the engine has 1 and 2", code=Reason.STRIDE)
    _refuse_wide_padding(op, size, strides, pads)
    if max(pads) > windows.LARGEST_PAD or max(size) > windows.TALLEST:
        raise UnsupportedError(
            f"a kernel of {size} with padding {pads} exceeds the fields of a task", code=Reason.PADDING
        )
    return KernelWindow(size[0], size[1], strides[0], strides[1], top, left)


def _refuse_wide_padding(op: Op, size: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, int]) -> None:
    """Padding as large as the kernel has no known effect (one pixel beside a 1x1 kernel has been seen)."""
    extents, results = (tuple(v.shape[2:]) for v in (op.inputs["x"], op.output))
    extents, results = ((1, *e) if len(e) == 1 else e for e in (extents, results))
    for extent, result, k, s, pad in zip(extents, results, size, strides, pads):
        behind = (result - 1) * s + k - pad - extent
        if pad >= max(k, 2) or not -s < behind < k:
            raise UnsupportedError(
                "padding as large as the kernel", hint="pad in an op of its own", code=Reason.PADDING
            )


def lower(conv: Convolution, context: Context) -> Fragment:
    """The convolution of a whole tensor; a batch runs image by image."""
    window, weights = conv.window, conv.weights
    conv = replace(conv, weights=weights.shaped(*weights.shape[:2], window.kh, window.kw))
    fragment = Fragment(context)
    if window.kw > windows.NATIVE_WIDTH:
        if conv.one_to_one and window.kw <= windows.WIDEST and not window.strided and window.kh == 1:
            return widened(fragment, conv)
        raise UnsupportedError(
            f"a kernel {window.kw} pixels wide",
            hint=f"at most {windows.NATIVE_WIDTH}, or {windows.WIDEST} in a depthwise 1 x k",
            code=Reason.WINDOW,
        )
    if pads_left_only(conv):
        return padded(fragment, conv)
    for n in range(conv.x.n):
        if conv.groups == 1:
            _dense(fragment, conv, n)
        elif conv.one_to_one:
            _unicast(fragment, conv, n)
        else:
            _grouped(fragment, conv, n)
    return fragment


_lower_once = by_form(lower)
"""Of weights that are told by their bits: the sums of norms are the same again and again."""


def _dense(fragment: Fragment, conv: Convolution, n: int) -> None:
    if is_tall(fragment.target, conv):
        tall(fragment, conv, n)
        return
    place_blocks(fragment, dense_plans(fragment, conv, n))


def dense_plans(fragment: Fragment, conv: Convolution, n: int, *, of: int = 0) -> list[Plan]:
    """The tasks of one image, each with a block of the outputs; their places in L2 are the caller's.

    ``of``: outputs of the convolution, where these are a part of them.
    """
    x, y, window, weights = conv.x, conv.y, conv.window, conv.weights
    taps = x.c * window.taps
    count = _sparse_taps(x.c, window) if conv.window.strided else weights.lane_halfwords(taps)
    heads = StreamHeads(conv.epilogue.table is not None, conv.bias is not None)
    plans = []
    for block in channel_blocks(fragment.target, y.c, count, heads, one_patch=conv.single_patch, transposed=False):
        channels = slice(block.first, block.first + block.count)
        plan = conv.plan(n)
        plan = plan.writing(dma=y.dma(n * y.batch + block.first * y.plane)).but(
            cout=block.count, cores_log2=block.cores_log2, macs=block.count * taps * y.h * y.w
        )
        part = replace(
            conv,
            weights=weights.rows(block.first, block.count),
            bias=None if conv.bias is None else conv.bias[channels],
        )
        plan = _pack_block(fragment.target, plan, part, block)
        if (
            fragment.target.choices.fat_tiles
            and block.lanes == PAIR
            and block.count == (of or y.c)
            and not conv.single_patch
        ):
            plan = plan.but(fat_tile=True, cores_log2=plan.cores_log2 - 1, ocg=plan.ocg + 1)
        plan = tasks.choose_shape(fragment.target, plan, weighted=True)
        plans.append(plan)
    return plans


def _pack_block(target: Target, plan: Plan, conv: Convolution, block: ChannelBlock) -> Plan:
    """The block's kernel, in the order that its size asks for: a small one lets more lanes share a pass (§4.3).

    A kernel whose size crosses that limit when its order changes takes the order of large ones, which is right for any.
    """
    weights, lanes = conv.weights, block.lanes
    layout = conv.layout(block.count, conv.x.c, block.cores_log2)
    small = is_small_source(target, plan.wout, plan.hout, align(lanes * weights.lane_halfwords(layout.taps) * 2, 64))
    for tried in (small, not small, False):
        group = output_group(lanes, small=tried, transposed=False)
        kernel = packed(target, replace(layout, ocg=group), weights, conv.bias, conv.epilogue)
        if is_small_source(target, plan.wout, plan.hout, max(kernel.sizes)) == tried:
            break
    return weights.mark(plan.but(ocg=group, kernel=kernel), sparse=layout.sparse)


def _sparse_taps(cin: int, window: KernelWindow) -> int:
    """Halfwords per lane of a sparse stream without zeros: its values and its share of the masks (§9.6)."""
    positions = align(window.kh, window.sy) * align(window.kw, window.sx)
    values = cin * window.taps
    return values + ceil_div(cin * positions, 16)


def _unicast(fragment: Fragment, conv: Convolution, n: int) -> None:
    """Depthwise: one input channel per output channel (§9.4)."""
    x, y, window = conv.x, conv.y, conv.window
    plan = conv.plan(n).but(unicast=1, cores_log2=min(4, ceil_log2(x.c)), macs=y.c * window.taps * y.h * y.w)
    layout = replace(conv.layout(y.c, 1, plan.cores_log2), unicast=True)
    kernel = packed(fragment.target, layout, conv.weights.values, conv.bias, conv.epilogue)
    plan = plan.but(kernel=kernel, kernel_format=SPARSE_KERNEL if conv.window.strided else PLAIN_KERNEL)
    if max(kernel.sizes) > fragment.limits.kernel_bytes_per_core:
        raise UnsupportedError("a depthwise kernel of more than 64 KiB per core", code=Reason.MEMORY)
    plan = tasks.choose_shape(fragment.target, plan, weighted=True)
    plan, end = tasks.ne_source(fragment.target, plan, 0)
    fragment.send(plan, end)


def _grouped(fragment: Fragment, conv: Convolution, n: int) -> None:
    """1 < G < C: the group loop of one task (§9.5); others run dense, with zeros between groups, in parts."""
    x, y, window, groups = conv.x, conv.y, conv.window, conv.groups
    cout, cin = y.c // groups, x.c // groups
    lanes = cout // fragment.limits.cores
    taps = cin * window.taps
    per_core = groups * align(2 * max(1, lanes) * (taps + (conv.bias is not None)), 64)
    if not is_loop(conv.weights.shape, groups, fragment.limits, bias=conv.bias is not None, width=y.w, height=y.h):
        for part in neighbours(conv, n):
            before = len(fragment.plans)
            _dense(fragment, part, 0)
            if conv.parts > 1:
                fragment.plans[before:] = [walk_of_part(plan, conv) for plan in fragment.plans[before:]]
        return
    plan = conv.plan(n)
    plan = plan.but(c=cin, cout=cout, groups=groups, cores_log2=4 if cout >= fragment.limits.cores else ceil_log2(cout))
    plan = plan.reading(dma=replace(x.dma(n * x.batch), group=cin * x.plane))
    plan = plan.writing(dma=replace(y.dma(n * y.batch), group=cout * y.plane)).but(macs=y.c * taps * y.h * y.w)
    group = output_group(plan.lanes, small=is_small_source(fragment.target, y.w, y.h, per_core), transposed=False)
    layout = replace(conv.layout(cout, cin, plan.cores_log2), groups=groups, ocg=group)
    kernel = packed(fragment.target, layout, conv.weights.values, conv.bias, conv.epilogue)
    plan = plan.but(ocg=group, kernel=kernel, kernel_format=SPARSE_KERNEL if conv.window.strided else PLAIN_KERNEL)
    plan = tasks.choose_shape(fragment.target, plan, weighted=True)
    plan, end = tasks.ne_source(fragment.target, plan, 0)
    fragment.send(plan, end)
