"""Attention of several heads with keys as channels: scores and weights stay in L2 (hexane.lowering.attention).

k and v go to scratch in the layout of kernels, q into L2 turned. Then, for as many heads as fit: a product per head
whose scores stay, the softmax over channels of all of them, a product per head that sends its result [D, queries] away.
The tasks are those of Apple's products and of its softmax over channels (docs/reference/engine-h13.md 13, 13.2, 13.4),
and hand over in L2 as Apple's chains do; that several heads are in one task is INFERRED.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.forms import by_form
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.geometry import ceil_log2, largest_shape
from hexane.codegen.operations import BINARY, MAC_MAXIMUM, RUNTIME_KERNEL, After, Axes, Mac
from hexane.codegen.plan import Dma, Operand, Plan, Region, TaskKernel
from hexane.codegen.price import price_us
from hexane.codegen.recipes.batched import KERNELS_PER_TASK
from hexane.codegen.recipes.head_operands import SEVERAL, Heads, Kernels, heads_of, of_dims, of_tokens
from hexane.codegen.recipes.registry import need_fp16, recipe
from hexane.codegen.recipes.softmax_parts import powers_and_reciprocals
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.lowering.attention import Attention, Sizes, attention_from, lanes_of, mask_of, moves_of, uses_of
from hexane.lowering.fusion import factor_of, follows
from hexane.rounding import ceil_div

if TYPE_CHECKING:
    from hexane.chips import Chip
    from hexane.codegen.targets import Target
    from hexane.graph.ir import Op

MOST_HALVES = 4
WORTH_A_HALVING = 0.95
"""Of the time for the maxima, at most so much is left by one more task."""
GROUPED = "heads as groups of a computed kernel"


def attention_of_heads(op: Op, context: Context) -> tuple[Op, ...] | None:
    """The ops of an attention with keys as channels, from the moves that split its operands into heads on."""
    scores = list(uses_of(op))[-1]
    if scores.type != "matmul" or not context.on.keys_as_channels:
        return None
    attention = attention_from(scores, -2)
    if attention is None or not attention.scores.arg("transpose_y") or attention.scores.arg("transpose_x"):
        if op.type not in ("reshape", "transpose"):
            return None
        attention = _whose_values(scores)  # the moves of v lead to the second product
        if attention is None:
            return None
    if (
        not attention.result.arg("transpose_x")
        or attention.result.arg("transpose_y")
        or len(attention.result.output.shape) != 4
    ):
        return None
    around = [*_operand_moves(attention), *attention.ops]
    joined = follows(attention.result, "reshape")
    if joined is not None and _joins(joined):
        around.append(joined)
    if op not in around:
        return None
    assert op.block is not None
    return op.block.ops.sort(around)


def _whose_values(result: Op) -> Attention | None:
    soft = result.arg("y").op
    if soft is None or soft.type != "softmax":
        return None
    before = soft.arg("x").op
    for kind in ("add", "mul"):
        if before is not None and before.type == kind:
            x, y = before.arg("x").op, before.arg("y").op
            before = next((o for o in (x, y) if o is not None and o.type in ("matmul", "mul")), None)
    if before is None or before.type != "matmul":
        return None
    attention = attention_from(before, -2)
    return attention if attention is not None and attention.result is result else None


def _operand_moves(attention: Attention) -> list[Op]:
    operands = (attention.scores.arg("x"), attention.scores.arg("y"), attention.result.arg("x"))
    return [move for value in operands for move in moves_of(value)]


def _joins(op: Op) -> bool:
    """True where a reshape puts heads side by side: [1, H, D, S] as [.., H D, S]."""
    _, h, d, s = op.arg("x").shape
    return tuple(op.output.shape[-2:]) == (h * d, s) and all(extent == 1 for extent in op.output.shape[:-2])


@recipe("matmul", "reshape", "transpose", match=attention_of_heads, rank=3)
def heads_in_l2(ops: Sequence[Op], context: Context) -> Fragment:
    """Attention of several heads with keys as channels, scores and weights in L2."""
    scores = next(op for op in ops if op.type == "matmul")
    attention = attention_from(scores, -2)
    assert attention is not None  # it matched
    q, k, v, mask = scores.arg("y"), scores.arg("x"), attention.result.arg("x"), mask_of(attention)
    need_fp16(q, k, v, *([] if mask is None else [mask]))
    if q.shape[0] != 1:
        raise UnsupportedError("heads of several images", code=Reason.BATCH)
    _, heads, queries, dims = q.shape
    sizes = Sizes(heads, queries, k.shape[2], dims, 0 if mask is None else 1)
    if not sizes.suits(context) or (mask is not None and tuple(mask.shape) != (1, 1, sizes.keys, queries)):
        raise UnsupportedError("heads or a mask of another form", code=Reason.EXTENT)
    out = context.tensor(attention.result.output)
    if ops[-1].type == "reshape":
        out = replace(out, buffer=context.tensor(ops[-1].output).buffer)
    scale = 1.0 if attention.scale is None else factor_of(attention.scale) or 0.0
    shown = None if mask is None else mask.data if mask.is_constant else context.tensor(mask)
    places = heads_of(q, context), heads_of(k, context), heads_of(v, context)
    return _attention(sizes, places, scale, shown, out, context)


@by_form
def _attention(
    sizes: Sizes,
    places: tuple[Heads, Heads, Heads],
    scale: float,
    mask: Tensor | np.ndarray | None,
    out: Tensor,
    context: Context,
) -> Fragment:
    (q, k, v), heads, queries = places, sizes.heads, sizes.queries
    fragment = Fragment(context)
    some = replace(sizes, queries=sizes.block(context))
    at_once = some.at_once(context.limits)
    grouped = context.on.heads_as_groups and _in_one_task(context.target, some, at_once)
    operands = _Operands(
        q,
        of_tokens(fragment, k, lanes_of(sizes.keys, context.limits.cores)),
        of_dims(
            fragment,
            v,
            lanes_of(sizes.dims, context.limits.cores),
            grouped=grouped and not context.choices.steps_kernels,
        ),
        scale,
        at_once,
        grouped,
    )
    shown = fragment.plain_constant(mask) if isinstance(mask, np.ndarray) else mask
    for first in range(0, queries, some.queries):
        count = min(some.queries, queries - first)
        part = replace(operands, q=operands.q.part(first, count))
        place = replace(out, offset=out.offset + 2 * first)
        around = _Around(fragment, replace(sizes, queries=count), part, place)
        around.turn()
        if shown is not None:
            around.load_mask(replace(shown, offset=shown.offset + 2 * first))
        for head in range(0, heads, at_once):
            around.some(head, min(at_once, heads - head))
        if some.queries < queries:
            fragment.inferred("attention of some queries at a time")
    return fragment


def _in_one_task(target: Target, sizes: Sizes, at_once: int) -> bool:
    """True where one task can multiply ``at_once`` heads: all its rows at once, streams that fit the cores.

    From H14 on rows may take several passes.
    """
    if target.choices.steps_kernels:
        return 2 * at_once * sizes.keys * sizes.dims <= KERNELS_PER_TASK
    most = target.limits.cores
    cores = [rows // lanes_of(rows, most) for rows in (sizes.keys, sizes.dims)]
    fits = all(count <= most and count.bit_count() == 1 for count in cores)  # each core has as many rows
    halfwords = max(sizes.dims * lanes_of(sizes.keys, most), sizes.keys * lanes_of(sizes.dims, most))
    even = sizes.dims % 32 == 0  # heads and their kernels begin at multiples of 64 bytes
    return fits and even and at_once > 1 and 2 * at_once * halfwords <= target.limits.kernel_bytes_per_core


@dataclass(frozen=True)
class _Operands:
    """The queries of all heads, the kernels, the factor of the scores; how many heads at once, and in one task."""

    q: Heads
    k: Kernels
    v: Kernels
    scale: float
    at_once: int
    grouped: bool


class _Around:
    """The tasks behind the staging copies, and the places in L2 that they share."""

    def __init__(self, fragment: Fragment, sizes: Sizes, operands: _Operands, out: Tensor) -> None:
        self.fragment, self.sizes, self.out = fragment, sizes, out
        self.q, self.k, self.v, self.scale = operands.q, operands.k, operands.v, operands.scale
        self.grouped = operands.grouped
        n, m = sizes.keys, sizes.queries
        self.line = l2.channel_stride(m)
        self.odd = l2.odd_channel_stride(m)
        block = n * self.line
        self.row = block + l2.pe_pad(block, self.line)
        self.small_row = self.line + l2.pe_pad(self.line, self.line)
        count = operands.at_once
        self.columns = Region(0, self.odd, sizes.dims * self.odd, sizes.dims * self.odd)
        at = 0 if self.q.columns else sizes.heads * self.columns.row
        self.mask = Region(at, self.line, block, block)
        at += sizes.mask_heads * block
        self.small = Region(at, self.line, self.small_row, self.line)
        at += count * self.small_row
        self.first = Region(at, self.line, self.row, block)
        self.second = Region(at + count * self.row, self.line, self.row, block)
        self.end = at + 2 * count * self.row
        if self.end > fragment.limits.l2_bytes:
            raise UnsupportedError("scores that do not fit the engine's L2 buffer", code=Reason.MEMORY)
        self.begun = False

    def turn(self) -> None:
        """The queries of all heads, turned: values as channels, queries along W."""
        q = self.q
        if q.columns:
            return
        groups = 1 if q.side_by_side else q.heads
        plan = tasks.copy_plan(
            self.fragment.target, q.tokens, 1, q.dims * (q.heads // groups), groups=groups, out_trans=True
        )
        plan = plan.reading(dma=q.walk(groups))
        plan = tasks.choose_shape(self.fragment.target, plan)
        size = q.heads * self.columns.row
        plan, end = tasks.ne_source(self.fragment.target, plan, size)
        if end > self.fragment.limits.l2_bytes:
            raise UnsupportedError("queries that do not fit the engine's L2 buffer", code=Reason.MEMORY)
        region = Region(0, self.odd, size, size)
        if groups > 1:
            region = replace(self.columns, group=self.columns.row)
        self.fragment.stay(plan.inferred(SEVERAL) if groups > 1 else plan, region)

    def load_mask(self, mask: Tensor) -> None:
        """[1, 1, keys, queries] with keys as channels."""
        plan = tasks.copy_plan(self.fragment.target, self.sizes.keys, 1, self.sizes.queries).reading(dma=mask.matrix())
        plan, end = self.fragment.bring(plan, self.small.base)
        self.fragment.need_room(end, "a mask")
        self.fragment.stay(plan, self.mask)

    def some(self, head: int, count: int) -> None:
        """As many heads as fit."""
        if self.grouped and (count > 1 or self.fragment.target.choices.steps_kernels):
            self._grouped(head, count)
            return
        for i in range(count):
            self._scores(head + i, self.first.at(self.first.base + i * self.row))
        region = self._weights(count)
        for i in range(count):
            self._result(head + i, region.at(region.base + i * self.row), last=i == count - 1)

    def _grouped(self, head: int, count: int) -> None:
        """The same with one product for all heads before the softmax, and one behind it."""
        sizes, out = self.sizes, self.out
        scores = _product(
            self.k.of_groups(self.fragment.target, head, count),
            self.k.lanes,
            sizes.queries,
            sizes.dims,
            sizes.keys,
            self.scale,
        )
        scores = scores.but(groups=count, macs=count * scores.macs)
        scores = tasks.choose_shape(self.fragment.target, scores)
        scores = self._of_queries(scores, head)
        self.begun = True
        self.fragment.stay(scores.inferred(GROUPED), self._by_head(self.first), after=After.NOTHING)
        region = self._weights(count)
        plan = _product(
            self.v.of_groups(self.fragment.target, head, count),
            self.v.lanes,
            sizes.queries,
            sizes.keys,
            sizes.dims,
            1.0,
        )
        plan = plan.but(groups=count, macs=count * plan.macs)
        plan = plan.writing(
            dma=Dma(out.buffer, out.offset + head * out.plane, out.plane, out.row, out.plane, out.plane)
        )
        plan = tasks.choose_shape(self.fragment.target, plan)
        plan = tasks.resident(plan, self._by_head(region), After.PE_RESULT)
        plan = self._sends(plan).but(holds=head + count < sizes.heads)
        self.fragment.add(plan.inferred(GROUPED))

    def _of_queries(self, plan: Plan, head: int) -> Plan:
        """The queries of one head or, one group each, of several: turned in L2, or given so."""
        if self.q.columns:
            plan = plan.reading(dma=self.q.walk(max(2, plan.groups), head))
            plan, _ = tasks.ne_source(self.fragment.target, plan, self.end)
            return plan
        columns = self.columns.at(head * self.columns.row)
        if plan.groups > 1:
            columns = replace(columns, group=self.columns.row)
        return tasks.resident(plan, columns, After.NE_RESULT if not self.begun else After.NOTHING)

    def _by_head(self, region: Region) -> Region:
        """A map whose rows are heads, walked head by head."""
        return Region(region.base, region.channel, region.depth, region.depth, region.row)

    def _sends(self, plan: Plan) -> Plan:
        """Result by DMA, through a buffer behind everything or where the reciprocals were."""
        fits = self.end + l2.RESULT_ROOM <= self.fragment.limits.l2_bytes
        return plan.sending(self.end if fits else self.small.base)

    def _weights(self, count: int) -> Region:
        """Mask and softmax of the scores in L2; where the weights are."""
        region, spare = self.first, self.second
        if self.sizes.mask_heads:
            self._plus_mask(count)
            region, spare = spare, region
        self._softmax(region, spare, count)
        return region

    def _scores(self, head: int, region: Region) -> None:
        sizes = self.sizes
        for first, rows in _blocks(sizes.keys, self.k.lanes):
            plan = _product(self.k.of(head, first, rows), self.k.lanes, sizes.queries, sizes.dims, rows, self.scale)
            plan = tasks.choose_shape(self.fragment.target, plan)
            plan = self._of_queries(plan, head)
            self.begun = True
            self.fragment.stay(plan, region.at(region.base + first * self.line), after=After.NOTHING)

    def _plus_mask(self, count: int) -> None:
        sizes = self.sizes
        plan = Plan(pe=BINARY["add"], w=sizes.queries, h=count, c=sizes.keys).against(broadcast=Axes.H)
        plan = tasks.resident(plan, self.first, After.NE_RESULT, second=replace(self.mask, row=self.mask.row))
        self.fragment.stay(plan, self.second, after=After.NOTHING)

    def _softmax(self, region: Region, spare: Region, count: int) -> None:
        """Over channels: the cores' maximum and sum (docs/reference/engine-h13.md 13), back into ``region``."""
        n, m, fragment = self.sizes.keys, self.sizes.queries, self.fragment
        after = After.PE_RESULT if self.sizes.mask_heads else After.NE_RESULT
        fragment.add(*self._maxima(region, spare, count, after))
        powers_and_reciprocals(fragment, (n, count, m), region, self.small, spare)
        weights = Plan(pe=BINARY["mul"], w=m, h=count, c=n, source=Operand(broadcast=Axes.C))
        weights = tasks.resident(weights, self.small, After.NE_RESULT, second=spare)
        fragment.stay(weights, region, after=After.NOTHING)

    def _maxima(self, region: Region, spare: Region, count: int, after: After) -> list[Plan]:
        """The largest score of every query: halves of the keys against each other as often as that is cheaper.

        A maximum over channels takes the cores about four times as long as a planar maximum of two operands.
        """
        keys, queries, context = self.sizes.keys, self.sizes.queries, self.fragment.context
        times = _best_halvings(keys, queries, count, after, context.chip) if context.on.halved_maxima else 0
        return _halved(keys, queries, (region, spare, self.small), count, after, times)

    def _result(self, head: int, region: Region, *, last: bool) -> None:
        sizes, out = self.sizes, self.out
        for first, rows in _blocks(sizes.dims, self.v.lanes):
            plan = _product(self.v.of(head, first, rows), self.v.lanes, sizes.queries, sizes.keys, rows, 1.0)
            offset = out.offset + head * out.plane + first * out.row
            plan = plan.writing(dma=Dma(out.buffer, offset, out.plane, out.row, out.plane, out.plane))
            plan = tasks.choose_shape(self.fragment.target, plan)
            plan = tasks.resident(plan, region, After.PE_RESULT if first == 0 else After.NOTHING)
            plan = self._sends(plan).but(holds=not last or head + 1 < sizes.heads or first + rows < sizes.dims)
            self.fragment.add(plan)


@lru_cache(256)
def _best_halvings(keys: int, queries: int, count: int, after: After, chip: Chip) -> int:
    """Number of halvings that take the least time; the place of the scores of so many heads does not matter."""
    anywhere = (Region(channel=l2.channel_stride(queries)),) * 3
    best, least = 0, price_us(_halved(keys, queries, anywhere, count, after, 0), chip)
    for times in range(1, MOST_HALVES + 1):
        if keys >> times < 2:
            break
        price = price_us(_halved(keys, queries, anywhere, count, after, times), chip)
        if price < WORTH_A_HALVING * least:
            best, least = times, price
    return best


def _halved(
    keys: int, queries: int, places: tuple[Region, Region, Region], count: int, after: After, times: int
) -> list[Plan]:
    """So many halvings, one behind the other, then one maximum over the channels left.

    Of an odd number both halves have the one in the middle. ``places``: of the scores, the halves and the result.
    """
    region, spare, result = places
    m, n, at, line, plans = queries, keys, 0, region.channel, []
    for i in range(times):
        half = ceil_div(n, 2)
        plan = Plan(pe=BINARY["maximum"], w=m, h=count, c=half)
        plan = tasks.resident(plan, region, after if i == 0 else After.PE_RESULT)
        plan = plan.against(region=region.at(region.base + (n - half) * line))
        region, n = spare.at(spare.base + at * line), half
        plan = tasks.stays(plan, region, after=After.NOTHING).inferred("halves of the keys compared in L2")
        plans.append(plan)
        at += half
    top = Plan(ne=MAC_MAXIMUM, w=m, h=count, c=n, cout=1, unicast=n)
    s = largest_shape(m, count)
    size = min(4, s + (m < 16))
    top = top.but(shape=(size, size, size))
    top = tasks.resident(top, region, after if not times else After.PE_RESULT)
    top = tasks.stays(top, result, after=After.NOTHING)
    return [*plans, top]


def _product(kernel: TaskKernel, lanes: int, w: int, c: int, rows: int, scale: float) -> Plan:
    plan = Plan(ne=Mac(post_scale=scale), w=w, h=1, c=c, cout=rows, kernel_format=RUNTIME_KERNEL, kernel=kernel)
    return plan.but(cores_log2=min(4, ceil_log2(ceil_div(rows, lanes))), ocg=ceil_log2(lanes), macs=rows * w * c)


def _blocks(rows: int, lanes: int) -> list[tuple[int, int]]:
    """(first, count): as many rows as all cores take at once, then as half of them do, and so on."""
    blocks, at = [], 0
    for cores in (16, 8, 4, 2, 1):
        while rows - at >= cores * lanes:
            blocks.append((at, cores * lanes))
            at += cores * lanes
    return blocks
