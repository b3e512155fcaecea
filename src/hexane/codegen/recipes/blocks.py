"""Output channels cut into tasks, their kernels, and their common source in L2.

Source: docs/reference/engine-h13.md 7.6, 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hexane.codegen import l2, tasks
from hexane.codegen.epilogue import apply
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.geometry import ceil_log2, is_small_source, largest_shape, output_group, patch_count
from hexane.codegen.operations import Element, KernelWindow, Mac
from hexane.codegen.plan import Plan, TaskKernel
from hexane.codegen.weights import Weights
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import dict_init, replace
from hexane.kernels import KernelLayout
from hexane.lowering.fusion import Epilogue
from hexane.rounding import align, ceil_div

if TYPE_CHECKING:
    from hexane.codegen.targets import Target

BYTE_FORMATS = {"int8": Element.INT8, "uint8": Element.UINT8}
MOST_KERNEL_BYTES = 1 << 30  # of one op; programs of 402 MB and about 2 GB have been seen (limits 4)


@dataclass(frozen=True)
class ChannelBlock:
    """Output channels of one task: ``first`` and how many, on ``cores`` cores with ``lanes`` each."""

    first: int
    count: int
    cores_log2: int
    lanes: int


@dataclass(frozen=True)
class StreamHeads:
    """Header in front of the weights in each core's stream."""

    table: bool
    bias: bool


def lanes_per_task(target: Target, lanes: int, taps: int, heads: StreamHeads, *, one_patch: bool) -> list[int]:
    """Lanes of each task, in ascending order of their channels; a remainder is last (§7.6)."""
    head = 128 * heads.table
    per_lane = taps * 2 + 2 * heads.bias
    if one_patch or head + lanes * per_lane <= target.limits.kernel_bytes_per_core:
        return [lanes]
    most = (target.limits.kernel_bytes_per_core - head) // per_lane
    most = most // 16 * 16 if most >= 16 else most // 2 * 2 or most
    if most < 1:
        raise UnsupportedError(
            f"one output channel needs {per_lane} bytes of kernel; a core holds {target.limits.kernel_bytes_per_core}",
            hint="split the input channels",
            code=Reason.MEMORY,
        )
    count = ceil_div(lanes, most)
    return [most] * (count - 1) + [lanes - (count - 1) * most]


def channel_blocks(
    target: Target, cout: int, taps: int, heads: StreamHeads, *, one_patch: bool, transposed: bool
) -> list[ChannelBlock]:
    """Output channels cut into tasks, in task order (§7.6).

    Normal output: the remainder first, with the highest channels, then full blocks downwards. Transposed output:
    ascending. Channels beyond a multiple of sixteen make a block of one lane, as the early compiler does for three.
    """
    lanes_per_task(target, 1, taps, heads, one_patch=one_patch)  # one channel at least has to fit a core
    if cout < target.limits.cores:
        log2 = ceil_log2(cout)
        return [ChannelBlock(0, cout, log2, 1)]
    whole, rest = divmod(cout, target.limits.cores)
    blocks = []
    if transposed and rest and whole % 2:
        # a block of columns starts at a multiple of 64 bytes: 17 to 31 channels share one task
        whole, rest = whole - 1, rest + target.limits.cores
    first = 0
    for lanes in lanes_per_task(target, whole, taps, heads, one_patch=one_patch) if whole else ():
        blocks.append(ChannelBlock(first, lanes * target.limits.cores, 4, lanes))
        first += lanes * target.limits.cores
    if rest > target.limits.cores:
        log2 = min(4, (rest & -rest).bit_length() - 1)
        if len(lanes_per_task(target, rest >> log2, taps, heads, one_patch=one_patch)) > 1:
            raise UnsupportedError(f"{rest} columns of {taps} values each in one task", code=Reason.MEMORY)
        blocks.append(ChannelBlock(first, rest, log2, rest >> log2))
    elif rest:
        blocks.append(ChannelBlock(first, rest, ceil_log2(rest), 1))
    return blocks if transposed else blocks[::-1]


@dict_init
@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution of a whole tensor: operands, weights [O, I, kh, kw], and what stands around the sums.

    ``uniform`` is a bias equal for all outputs.
    """

    x: Tensor
    y: Tensor
    weights: Weights
    bias: np.ndarray | None
    window: KernelWindow
    epilogue: Epilogue
    groups: int = 1
    uniform: float = 0.0
    parts: int = 1
    """Sums of neighbouring groups that run as tasks of their own, where groups are no loop of one task."""

    @property
    def one_to_one(self) -> bool:
        """Depthwise: one input channel per output channel."""
        cout, cin = self.weights.shape[:2]
        return self.groups > 1 and cin == 1 and cout == self.groups

    @property
    def single_patch(self) -> bool:
        """True where one patch covers the result."""
        return patch_count(self.y.w, self.y.h, largest_shape(self.y.w, self.y.h)) == 1

    def layout(self, cout: int, cin: int, cores_log2: int) -> KernelLayout:
        """The kernel's layout for this many channels; groups, unicast and output groups are the caller's."""
        return KernelLayout(
            cout,
            cin,
            self.window.kh,
            self.window.kw,
            cores=1 << cores_log2,
            stride=(self.window.sy, self.window.sx),
            sparse=self.window.strided,
            bias=self.bias is not None,
            table=self.epilogue.table is not None,
        )

    def plan(self, n: int) -> Plan:
        """The task of image ``n``: dimensions, window, walks and the epilogue."""
        x, y = self.x, self.y
        sums = Mac(bias=self.bias is not None, acc_bias=self.uniform)
        plan = Plan(ne=sums, w=x.w, h=x.h, c=x.c, wout=y.w, hout=y.h, cout=y.c, window=self.window)
        plan = plan.reading(dma=x.dma(n * x.batch)).writing(dma=y.dma(n * y.batch))
        plan = apply(self.epilogue, plan)
        if self.epilogue.store:
            plan = plan.writing(element=BYTE_FORMATS[self.epilogue.store])
        return plan


@dataclass(frozen=True, eq=False)
class Product:
    """[N, K] fp16 weights and what stands behind the product. ``uniform`` is a bias equal for all outputs."""

    weights: Weights
    bias: np.ndarray | None
    uniform: float
    epilogue: Epilogue

    @property
    def n(self) -> int:
        return self.weights.shape[0]

    @property
    def k(self) -> int:
        return self.weights.shape[1]

    def rows(self, block: ChannelBlock) -> Product:
        """The outputs of one task."""
        part = slice(block.first, block.first + block.count)
        bias = None if self.bias is None else self.bias[part]
        return replace(self, weights=self.weights.rows(block.first, block.count), bias=bias)

    def blocks(self, target: Target, *, one_patch: bool, transposed: bool) -> list[ChannelBlock]:
        """The outputs cut into tasks."""
        halfwords = self.weights.lane_halfwords(self.k)
        heads = StreamHeads(self.epilogue.table is not None, self.bias is not None)
        return channel_blocks(target, self.n, halfwords, heads, one_patch=one_patch, transposed=transposed)


def parted_bias(bias: np.ndarray | None, weights: Weights) -> tuple[np.ndarray | None, float]:
    """A bias as a row in front of the weights, or as one number where it is equal for all outputs (§13.1)."""
    if bias is None or weights.scaled:
        return bias, 0.0
    bits = bias.view(np.uint16)
    if bits[0] != bits[-1] or (bits != bits[0]).any():
        return bias, 0.0
    return None, float(bias[0])


def packed(
    target: Target, layout: KernelLayout, weights: np.ndarray | Weights, bias: np.ndarray | None, epilogue: Epilogue
) -> TaskKernel:
    """The block's streams."""
    if weights.nbytes > MOST_KERNEL_BYTES:
        raise UnsupportedError(f"{weights.nbytes} bytes of weights in one op", code=Reason.MEMORY)
    coded = weights if isinstance(weights, Weights) else Weights(weights)
    layout = replace(coded.layout(layout), mask_elements=target.choices.mask_elements)
    packing = coded.pack(layout, bias, epilogue.table)
    return TaskKernel(packing.data, packing.offsets, packing.sizes, sparse=layout.sparse, inferred=layout.inferred)


def place_blocks(fragment: Fragment, plans: list[Plan]) -> None:
    """L2 places of the tasks that share a source: the first keeps it, unless the map is tiled or streamed (§7.6)."""
    first = plans[0]
    if len(plans) == 1:
        first, end = tasks.ne_source(fragment.target, first, 0)
        first = fragment.send(first, end)
        return
    channel = l2.channel_stride(first.w)
    result = first.hout * first.cout * l2.channel_stride(min(first.wout, 128))
    fits = first.h * first.c * channel + result <= fragment.limits.l2_bytes
    if not fits or len({p.small_source for p in plans}) > 1:
        for plan in plans:
            plan, end = tasks.ne_source(fragment.target, plan, 0)
            fragment.send(plan, end)
        return
    first, end = tasks.ne_source(fragment.target, first, 0, keep=True)
    first = tasks.streams_out(fragment.target, first, end, explicit=False).but(holds=True)
    first = fragment.add(first)
    region = replace(first.source.region, group=0)
    for i, plan in enumerate(plans[1:], 1):
        plan = plan.reading(dma=None)
        plan = tasks.choose_shape(fragment.target, plan, weighted=True)
        plan = tasks.resident(plan, region).sending(end).but(holds=i < len(plans) - 1)
        fragment.add(plan)


def dense_block(
    target: Target, product: Product, block: ChannelBlock, width: int, *, out_trans: bool, height: int = 1
) -> Plan:
    """A 1x1 convolution over ``height`` x ``width`` pixels whose source is already in L2: one block of a product."""
    part = product.rows(block)
    cin, coded = part.k, part.weights
    sums = Mac(bias=part.bias is not None, acc_bias=part.uniform)
    plan = Plan(ne=sums, w=width, h=height, c=cin, cout=block.count, out_trans=out_trans)
    plan = plan.but(cores_log2=block.cores_log2, macs=block.count * cin * width * height)
    plan = apply(part.epilogue, plan)
    head = 128 * (part.epilogue.table is not None) + 2 * block.lanes * (part.bias is not None)
    small = is_small_source(target, width, height, align(head + block.lanes * coded.lane_halfwords(cin) * 2, 64))
    plan = plan.but(ocg=output_group(block.lanes, small=small, transposed=out_trans))
    layout = KernelLayout(
        block.count,
        cin,
        cores=1 << block.cores_log2,
        ocg=plan.ocg,
        bias=part.bias is not None,
        table=part.epilogue.table is not None,
    )
    plan = plan.but(kernel=packed(target, layout, coded.shaped(block.count, cin, 1, 1), part.bias, part.epilogue))
    return coded.mark(plan)
