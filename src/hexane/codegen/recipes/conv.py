"""Convolutions: dense, depthwise, grouped, strided, with what follows them (spec/engine-h13 §7.6, §8.1, §9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hexane.codegen import l2, tasks
from hexane.codegen.epilogue import Epilogue, match_epilogue
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.geometry import (
    KERNEL_BYTES,
    L2_BYTES,
    ceil_div,
    ceil_log2,
    is_small_source,
    largest_shape,
    output_group,
    patch_count,
    pe_patch,
    up,
)
from hexane.codegen.plan import Buffer, Kernel, Plan, Region, Space
from hexane.codegen.recipes.registry import Context, constant, need_fp16, recipe
from hexane.codegen.tasks import BIAS, MAC_CONV
from hexane.errors import UnsupportedError
from hexane.kernels import KernelLayout, pack

if TYPE_CHECKING:
    from hexane.graph.ir import Op

CORES = 16
NATIVE_KERNEL = 7  # widest kernel without the two-column rewrite (limits 3)


@dataclass(frozen=True)
class Window:
    """Kernel size, stride and left/top padding of a convolution."""

    kh: int
    kw: int
    sy: int
    sx: int
    top: int
    left: int


@dataclass(frozen=True)
class Block:
    """Output channels of one task: ``first`` and how many, on ``cores`` cores with ``lanes`` each."""

    first: int
    count: int
    cores_log2: int
    lanes: int


def lanes_per_task(lanes: int, taps: int, *, table: bool, bias: bool, one_patch: bool) -> list[int]:
    """Lanes of each task, in ascending order of their channels; a remainder is last (§7.6)."""
    head = 128 * table
    per_lane = taps * 2 + 2 * bias
    if one_patch or head + lanes * per_lane <= KERNEL_BYTES:
        return [lanes]
    most = (KERNEL_BYTES - head) // per_lane
    most = most // 16 * 16 if most >= 16 else most // 2 * 2 or most
    if most < 1:
        raise UnsupportedError(
            f"one output channel needs {per_lane} bytes of kernel; a core holds {KERNEL_BYTES}",
            hint="split the input channels",
        )
    count = ceil_div(lanes, most)
    return [most] * (count - 1) + [lanes - (count - 1) * most]


def channel_blocks(cout: int, taps: int, *, table: bool, bias: bool, one_patch: bool, transposed: bool) -> list[Block]:
    """Output channels cut into tasks, in task order (§7.6).

    Normal output: the remainder first, with the highest channels, then full blocks downwards. Transposed output:
    ascending. Channels beyond a multiple of sixteen make a block of one lane, as the early compiler does for three.
    """
    if cout < CORES:
        log2 = ceil_log2(cout)
        return [Block(0, cout, log2, 1)]
    whole, rest = divmod(cout, CORES)
    blocks = []
    if transposed and rest and whole % 2:
        # a block of columns starts at a multiple of 64 bytes: 17 to 31 channels share one task
        whole, rest = whole - 1, rest + CORES
    first = 0
    for lanes in lanes_per_task(whole, taps, table=table, bias=bias, one_patch=one_patch) if whole else ():
        blocks.append(Block(first, lanes * CORES, 4, lanes))
        first += lanes * CORES
    if rest > CORES:
        log2 = min(4, (rest & -rest).bit_length() - 1)
        blocks.append(Block(first, rest, log2, rest >> log2))
    elif rest:
        blocks.append(Block(first, rest, ceil_log2(rest), 1))
    return blocks if transposed else blocks[::-1]


@recipe("conv", match=match_epilogue, shrinks=True)
def convolution(ops: Sequence[Op], context: Context) -> Fragment:
    """conv: neural engine, one task or several blocks of output channels; bias, relu, table and factor in the task."""
    op = ops[0]
    need_fp16(op.arg("x"))
    weight, bias = constant(op.arg("weight")), op.arg("bias")
    if weight is None or (bias is not None and not bias.is_constant):
        raise UnsupportedError("a convolution whose weights are computed")
    epilogue = Epilogue.of(ops)
    x, y = context.tensor(op.arg("x")), context.tensor(ops[-1].output)
    weights = np.asarray(weight, np.float16)
    start = epilogue.bias if bias is None else np.asarray(bias.data, np.float16).reshape(-1)
    return lower(x, y, weights, start, window_of(op), op.arg("groups"), epilogue)


def window_of(op: Op) -> Window:
    """Strides and padding as the engine takes them; UnsupportedError for what needs another form."""
    weight = op.arg("weight").shape
    if len(op.arg("x").shape) not in (3, 4):
        raise UnsupportedError("a convolution over more than two axes")
    strides, dilations = tuple(op.arg("strides") or (1,)), tuple(op.arg("dilations") or (1,))
    size = tuple(weight[2:])
    if len(size) == 1:
        size, strides, dilations = (1, *size), (1, *strides[-1:]), (1, *dilations[-1:])
    strides = strides if len(strides) == 2 else strides * 2
    pads = _pads(op, size, strides)
    if any(d != 1 for d, k in zip(dilations, size) if k > 1):
        raise UnsupportedError("a dilated convolution", hint="legalise expands its kernel")
    if not set(strides) <= {1, 2}:
        raise UnsupportedError(f"stride {strides}; the engine has 1 and 2")
    _refuse_wide_padding(op, size, strides, pads)
    if max(pads) > 31 or max(size) > 29:
        raise UnsupportedError(f"a kernel of {size} with padding {pads} exceeds the fields of a task")
    return Window(size[0], size[1], strides[0], strides[1], pads[0], pads[1])


def _refuse_wide_padding(op: Op, size: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, int]) -> None:
    """Padding as large as the kernel has no known effect (one pixel beside a 1x1 kernel has been seen)."""
    extents, results = (tuple(v.shape[2:]) for v in (op.arg("x"), op.output))
    extents, results = ((1, *e) if len(e) == 1 else e for e in (extents, results))
    for extent, result, k, s, pad in zip(extents, results, size, strides, pads):
        behind = (result - 1) * s + k - pad - extent
        if pad >= max(k, 2) or not -s < behind < k:
            raise UnsupportedError("padding as large as the kernel", hint="pad in an op of its own")


def _pads(op: Op, size: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """Top and left padding."""
    kind = op.arg("pad_type")
    extents = tuple(op.arg("x").shape[2:])
    extents = (1, *extents) if len(extents) == 1 else extents
    if kind == "valid":
        return (0, 0)
    if kind == "custom":
        pad = list(op.arg("pad") or [0] * (2 * len(op.arg("x").shape[2:])))
        pad = [0, 0, *pad] if len(pad) == 2 else pad
        return (pad[0], pad[2])
    result = []
    for extent, k, s in zip(extents, size, strides):
        total = max(0, (ceil_div(extent, s) - 1) * s + k - extent)
        result.append(total // 2 if kind == "same" else total - total // 2)
    return (result[0], result[1])


def lower(
    x: Tensor,
    y: Tensor,
    weights: np.ndarray,
    bias: np.ndarray | None,
    window: Window,
    groups: int,
    epilogue: Epilogue,
) -> Fragment:
    """The convolution of a whole tensor; a batch runs image by image."""
    cout, cin = weights.shape[0], weights.shape[1]
    weights = weights.reshape(cout, cin, window.kh, window.kw)
    made = Fragment()
    depthwise = groups > 1 and cin == 1 and cout == groups
    if window.kw > NATIVE_KERNEL:
        if depthwise and window.kw <= 13 and window.sx == window.sy == 1 and window.kh == 1:
            return _widened(made, x, y, weights, bias, window, epilogue)
        raise UnsupportedError(f"a kernel {window.kw} pixels wide", hint="at most 7, or 13 in a depthwise 1 x k")
    for n in range(x.n):
        if groups == 1:
            _dense(made, x, y, n, weights, bias, window, epilogue)
        elif depthwise:
            _unicast(made, x, y, n, weights, bias, window, epilogue)
        else:
            _grouped(made, x, y, n, weights, bias, window, groups, epilogue)
    return made


def _plan(x: Tensor, y: Tensor, n: int, window: Window, epilogue: Epilogue, *, bias: bool) -> Plan:
    plan = Plan(
        "NE",
        w=x.w,
        h=x.h,
        c=x.c,
        wout=y.w,
        hout=y.h,
        cout=y.c,
        kw=window.kw,
        kh=window.kh,
        sx=window.sx,
        sy=window.sy,
        px=window.left,
        py=window.top,
        mac=MAC_CONV | (BIAS if bias else 0),
    )
    plan.src, plan.dst = x.dma(n * x.batch), y.dma(n * y.batch)
    epilogue.apply(plan)
    return plan


def packed(layout: KernelLayout, weights: np.ndarray, bias: np.ndarray | None, epilogue: Epilogue) -> Kernel:
    """The block's streams."""
    made = pack(layout, weights, bias=bias, table=epilogue.table)
    return Kernel(made.data, made.offsets, made.sizes, sparse=layout.sparse, inferred=layout.inferred)


def _dense(
    made: Fragment,
    x: Tensor,
    y: Tensor,
    n: int,
    weights: np.ndarray,
    bias: np.ndarray | None,
    window: Window,
    epilogue: Epilogue,
) -> None:
    if is_tall(x, y, window):
        _tall(made, x, y, n, weights, bias, epilogue)
        return
    sparse = (window.sy, window.sx) != (1, 1)
    taps = x.c * window.kh * window.kw
    one_patch = patch_count(y.w, y.h, largest_shape(y.w, y.h)) == 1
    count = taps if not sparse else _sparse_taps(x.c, window)
    blocks = channel_blocks(
        y.c, count, table=epilogue.table is not None, bias=bias is not None, one_patch=one_patch, transposed=False
    )
    plans = []
    for block in blocks:
        channels = slice(block.first, block.first + block.count)
        plan = _plan(x, y, n, window, epilogue, bias=bias is not None)
        plan.cout, plan.cores_log2 = block.count, block.cores_log2
        plan.dst = y.dma(n * y.batch + block.first * y.plane)
        plan.macs = block.count * taps * y.h * y.w
        small = is_small_source(y.w, y.h, up(block.lanes * taps * 2, 64))
        plan.ocg = output_group(block.lanes, small=small, transposed=False)
        layout = KernelLayout(
            block.count,
            x.c,
            window.kh,
            window.kw,
            cores=1 << block.cores_log2,
            ocg=plan.ocg,
            stride=(window.sy, window.sx),
            sparse=sparse,
            bias=bias is not None,
            table=epilogue.table is not None,
        )
        part = None if bias is None else bias[channels]
        plan.kernel = packed(layout, weights[channels], part, epilogue)
        plan.kernel_config = 0x182 if sparse else 0x82
        small_now = is_small_source(y.w, y.h, max(plan.kernel.sizes))
        if small_now != small:
            raise UnsupportedError("a kernel at the limit of small-source tasks")
        tasks.choose_shape(plan, weighted=True, kernel_bytes=max(plan.kernel.sizes))
        plans.append(plan)
    place_blocks(made, plans)


def is_tall(x: Tensor, y: Tensor, window: Window) -> bool:
    """A pointwise convolution over one column that does not fit L2 is turned so that its rows run along W."""
    if (window.kh, window.kw, window.sy, window.sx, window.top, window.left) != (1, 1, 1, 1, 0, 0) or x.w != 1:
        return False
    column = l2.channel_stride(1)
    return x.h > 8 and x.h * (x.c + y.c) * column > L2_BYTES >= x.c * l2.odd_channel_stride(x.h) * 3 // 2


def _tall(
    made: Fragment,
    x: Tensor,
    y: Tensor,
    n: int,
    weights: np.ndarray,
    bias: np.ndarray | None,
    epilogue: Epilogue,
) -> None:
    """Turned copy into L2, the convolution along W into scratch, turned copy back."""
    turn = tasks.copy_plan(x.h, x.c, 1, out_trans=True)
    turn.src = replace(x.dma(n * x.batch), row=x.plane, plane=x.row)
    tasks.choose_shape(turn)
    channel = l2.odd_channel_stride(x.h)
    held = Region(0, channel, channel, channel)
    tasks.ne_source(turn, x.c * channel)
    tasks.stays(turn, held)
    turn.holds = True
    made.add(turn)
    flat = Tensor(Buffer(f"{y.buffer.name}.flat", Space.SCRATCH), 1, y.c, 1, y.h)
    flat = replace(flat, buffer=made.workspace(flat.bytes))
    one_patch = y.h <= 128
    blocks = channel_blocks(
        y.c, x.c, table=epilogue.table is not None, bias=bias is not None, one_patch=one_patch, transposed=False
    )
    for i, block in enumerate(blocks):
        part = weights[block.first : block.first + block.count]
        start = None if bias is None else bias[block.first : block.first + block.count]
        plan = dense_block(x.c, y.h, block, part, start, epilogue, out_trans=False)
        plan.dst = flat.dma(block.first * flat.plane)
        tasks.choose_shape(plan, weighted=True, kernel_bytes=max(plan.kernel.sizes) if plan.kernel else 0)
        tasks.resident(plan, held, l2.ALIAS_NE_RESULT if i == 0 else 0)
        plan.result, plan.result_config = Region(x.c * channel), l2.AUTOMATIC
        plan.holds = i < len(blocks) - 1
        made.add(plan)
    back = tasks.copy_plan(1, y.c, y.h, out_trans=True)
    back.src, back.dst = flat.dma(), replace(y.dma(n * y.batch), row=y.plane, plane=y.row)
    back.src = replace(back.src, row=flat.plane, plane=flat.row)
    tasks.choose_shape(back)
    end = tasks.ne_source(back, 0)
    tasks.streams_out(back, end)
    made.add(back)


def dense_block(
    cin: int,
    width: int,
    block: Block,
    weights: np.ndarray,
    bias: np.ndarray | None,
    epilogue: Epilogue,
    *,
    out_trans: bool,
    height: int = 1,
) -> Plan:
    """A 1x1 convolution over ``height`` x ``width`` pixels whose source is already in L2."""
    plan = Plan("NE", w=width, h=height, c=cin, cout=block.count, out_trans=out_trans)
    plan.mac = MAC_CONV | (BIAS if bias is not None else 0)
    plan.cores_log2 = block.cores_log2
    plan.macs = block.count * cin * width * height
    epilogue.apply(plan)
    head = 128 * (epilogue.table is not None) + 2 * block.lanes * (bias is not None)
    small = is_small_source(width, height, up(head + block.lanes * cin * 2, 64))
    plan.ocg = output_group(block.lanes, small=small, transposed=out_trans)
    layout = KernelLayout(
        block.count,
        cin,
        cores=1 << block.cores_log2,
        ocg=plan.ocg,
        bias=bias is not None,
        table=epilogue.table is not None,
    )
    plan.kernel = packed(layout, weights.reshape(block.count, cin, 1, 1), bias, epilogue)
    return plan


def _sparse_taps(cin: int, window: Window) -> int:
    """Halfwords per lane of a sparse stream without zeros: its values and its share of the masks (§9.6)."""
    positions = up(window.kh, window.sy) * up(window.kw, window.sx)
    values = cin * window.kh * window.kw
    return values + ceil_div(cin * positions, 16)


def place_blocks(made: Fragment, plans: list[Plan]) -> None:
    """L2 places of the tasks that share a source: the first keeps it, unless the map is tiled or streamed (§7.6)."""
    first = plans[0]
    if len(plans) == 1:
        end = tasks.ne_source(first, 0)
        tasks.streams_out(first, end)
        made.add(first)
        return
    channel = l2.channel_stride(first.w)
    fits = first.h * first.c * channel + _result_bytes(first) <= 0x200000 and len({p.small_source for p in plans}) == 1
    if not fits:
        for plan in plans:
            end = tasks.ne_source(plan, 0)
            tasks.streams_out(plan, end)
            made.add(plan)
        return
    end = tasks.ne_source(first, 0, keep=True)
    tasks.streams_out(first, end, explicit=False)
    first.holds = True
    made.add(first)
    region = replace(first.source, group=0)
    for i, plan in enumerate(plans[1:], 1):
        plan.src = None
        tasks.choose_shape(plan, weighted=True, kernel_bytes=max(plan.kernel.sizes) if plan.kernel else 0)
        tasks.resident(plan, region, 0)
        plan.result, plan.result_config = Region(end), l2.AUTOMATIC
        plan.holds = i < len(plans) - 1
        made.add(plan)


def _result_bytes(plan: Plan) -> int:
    return plan.hout * plan.cout * l2.channel_stride(min(plan.wout, 128))


def _unicast(
    made: Fragment,
    x: Tensor,
    y: Tensor,
    n: int,
    weights: np.ndarray,
    bias: np.ndarray | None,
    window: Window,
    epilogue: Epilogue,
) -> None:
    """Depthwise: one input channel per output channel (§9.4)."""
    plan = _plan(x, y, n, window, epilogue, bias=bias is not None)
    plan.unicast = 1
    sparse = (window.sy, window.sx) != (1, 1)
    plan.cores_log2 = min(4, ceil_log2(x.c))
    plan.macs = y.c * window.kh * window.kw * y.h * y.w
    layout = KernelLayout(
        y.c,
        1,
        window.kh,
        window.kw,
        unicast=True,
        cores=1 << plan.cores_log2,
        stride=(window.sy, window.sx),
        sparse=sparse,
        bias=bias is not None,
        table=epilogue.table is not None,
    )
    plan.kernel = packed(layout, weights, bias, epilogue)
    plan.kernel_config = 0x182 if sparse else 0x82
    if max(plan.kernel.sizes) > KERNEL_BYTES:
        raise UnsupportedError("a depthwise kernel of more than 64 KiB per core")
    tasks.choose_shape(plan, weighted=True, kernel_bytes=max(plan.kernel.sizes))
    end = tasks.ne_source(plan, 0)
    tasks.streams_out(plan, end)
    made.add(plan)


def _grouped(
    made: Fragment,
    x: Tensor,
    y: Tensor,
    n: int,
    weights: np.ndarray,
    bias: np.ndarray | None,
    window: Window,
    groups: int,
    epilogue: Epilogue,
) -> None:
    """1 < G < C: the group loop of one task (§9.5); other splits run dense, with zeros between groups."""
    cout, cin = y.c // groups, x.c // groups
    lanes = cout // CORES
    regular = cout % CORES == 0 or cout in (1, 2, 4, 8)
    sparse = (window.sy, window.sx) != (1, 1)
    taps = cin * window.kh * window.kw
    one_patch = patch_count(y.w, y.h, largest_shape(y.w, y.h)) == 1
    per_core = groups * up(2 * max(1, lanes) * (taps + (bias is not None)), 64)
    if not regular or cin == 1 or (per_core > KERNEL_BYTES and not one_patch) or groups > 4096:
        _dense(made, x, y, n, _expanded(weights, groups), bias, window, epilogue)
        return
    plan = _plan(x, y, n, window, epilogue, bias=bias is not None)
    plan.c, plan.cout, plan.groups = cin, cout, groups
    plan.cores_log2 = 4 if cout >= CORES else ceil_log2(cout)
    plan.src = replace(x.dma(n * x.batch), group=cin * x.plane)
    plan.dst = replace(y.dma(n * y.batch), group=cout * y.plane)
    plan.macs = y.c * taps * y.h * y.w
    lanes = ceil_div(cout, 1 << plan.cores_log2)
    small = is_small_source(y.w, y.h, per_core)
    plan.ocg = output_group(lanes, small=small, transposed=False)
    layout = KernelLayout(
        cout,
        cin,
        window.kh,
        window.kw,
        groups=groups,
        cores=1 << plan.cores_log2,
        ocg=plan.ocg,
        stride=(window.sy, window.sx),
        sparse=sparse,
        bias=bias is not None,
        table=epilogue.table is not None,
    )
    plan.kernel = packed(layout, weights, bias, epilogue)
    plan.kernel_config = 0x182 if sparse else 0x82
    tasks.choose_shape(plan, weighted=True, kernel_bytes=max(plan.kernel.sizes))
    end = tasks.ne_source(plan, 0)
    tasks.streams_out(plan, end)
    made.add(plan)


def _expanded(weights: np.ndarray, groups: int) -> np.ndarray:
    """Dense weights of a grouped convolution: zero wherever a channel belongs to another group."""
    cout, cin, kh, kw = weights.shape
    per = cout // groups
    dense = np.zeros((groups, per, groups, cin, kh, kw), weights.dtype)
    for g in range(groups):
        dense[g, :, g] = weights[g * per : (g + 1) * per]
    return dense.reshape(cout, groups * cin, kh, kw)


def _widened(
    made: Fragment,
    x: Tensor,
    y: Tensor,
    weights: np.ndarray,
    bias: np.ndarray | None,
    window: Window,
    epilogue: Epilogue,
) -> Fragment:
    """A depthwise 1 x k wider than 7: two columns per step into L2, then a planar copy of the real width (§9.8)."""
    if x.n > 1 or (bias is None and window.kw != 9):
        raise UnsupportedError(f"a kernel {window.kw} pixels wide in a batch or without bias")
    start = np.zeros(y.c, np.float16) if bias is None else bias
    plan = _plan(x, y, 0, window, epilogue, bias=True)
    plan.dst, plan.unicast, plan.sx, plan.ox = None, 1, 2, 2
    plan.wout = ceil_div(y.w, 2)
    plan.cores_log2 = min(4, ceil_log2(x.c))
    plan.macs = y.c * window.kw * y.h * y.w
    layout = KernelLayout(
        y.c,
        1,
        1,
        window.kw,
        unicast=True,
        cores=1 << plan.cores_log2,
        stride=(1, 2),
        widened=True,
        bias=True,
        table=epilogue.table is not None,
    )
    plan.kernel = packed(layout, weights, start, epilogue)
    tasks.choose_shape(plan, weighted=True, kernel_bytes=max(plan.kernel.sizes))
    channel = l2.channel_stride(2 * plan.wout)
    held = l2.resident_region(0, y.c, channel)
    end = tasks.ne_source(plan, y.h * held.row)
    tasks.stays(plan, held)
    plan.holds = True
    made.add(plan)
    crop = Plan("PE", w=y.w, h=y.h, c=y.c, kind=2)
    crop.dst = y.dma()
    crop.patch = pe_patch(y.w, y.h, operands=1) if y.w <= 256 else (8, plan.shape[2])
    tasks.resident(crop, held, l2.FOLLOWS_NE)
    crop.result, crop.result_config = Region(end), l2.AUTOMATIC
    made.add(crop)
    return made
