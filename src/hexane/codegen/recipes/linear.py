"""Products with constant weights: matmul and linear, folded or not, alone or two in a row.

Source: docs/reference/engine-h13.md 13.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.geometry import is_small_source, largest_shape, patch_count
from hexane.codegen.operations import After
from hexane.codegen.plan import Buffer, Dma, Plan, Region, TaskKernel
from hexane.codegen.recipes.blocks import ChannelBlock, Product, dense_block, parted_bias, place_blocks
from hexane.codegen.recipes.registry import constant, need_fp16, recipe
from hexane.codegen.targets.base import Target
from hexane.codegen.weights import weights_from
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.graph.ir import Op, Value
from hexane.lowering.fusion import Epilogue, follows, fused_ops
from hexane.lowering.weights import Stream, stream_of
from hexane.rounding import align

FOLD = 8
Kernels = dict[tuple[int, int], TaskKernel | None]
FOLDED_KERNEL_BYTES = 32 << 10


def folds(target: Target, m: int, n: int, k: int) -> bool:
    """True where the rows run as M/8 x 8 pixels (§13.1)."""
    return target.choices.folds_products and m % FOLD == 0 and 8 < m <= 64 and 2 * k * n // 16 >= FOLDED_KERNEL_BYTES


def matrix_operands(op: Op) -> tuple[Value, bool, np.ndarray, np.ndarray | None] | None:
    """(x, transpose_x, weights [N, K], bias) of a product with a constant second operand of rank 2, else None."""
    if op.type == "linear":
        weight, bias = constant(op.inputs["weight"]), op.inputs.get("bias")
        if weight is None or (bias is not None and not bias.is_constant):
            return None
        start = None if bias is None else np.asarray(bias.data, np.float16).reshape(-1)
        return op.inputs["x"], False, np.asarray(weight, np.float16), start
    weight = constant(op.inputs["y"])
    if weight is None or op.inputs["x"].is_constant or prod(weight.shape[:-2]) != 1 or weight.ndim < 2:
        return None
    values = np.asarray(weight, np.float16).reshape(weight.shape[-2:])
    return op.inputs["x"], bool(op.arg("transpose_x")), values if op.arg("transpose_y") else values.T, None


def with_bias(op: Op, context: Context) -> tuple[Op, ...]:
    """The product and what its task can do behind the sums."""
    return fused_ops(op, context.on)


def weights_of(ops: Sequence[Op], target: Target) -> tuple[Value, bool, Product]:
    operands = matrix_operands(ops[0])
    if operands is None:
        raise UnsupportedError("the second operand is computed", code=Reason.COMPUTED)
    x, transposed, values, bias = operands
    need_fp16(x)
    if any(value.dtype == "fp64" for value in ops[0].operands()):
        raise UnsupportedError("weights of float64", hint="give them as float32", code=Reason.ELEMENT_TYPE)
    epilogue = Epilogue.of(ops)
    coded = weights_from(np.ascontiguousarray(values), _stream(ops[0], target), epilogue.scale)
    if coded.scaled:
        row: tuple[np.ndarray | None, float] = epilogue.bias_behind_scale, 0.0
    else:  # of an addition no value is looked at
        row = parted_bias(bias, coded) if bias is not None else (epilogue.bias, 0.0)
    return x, transposed, Product(coded, *row, epilogue)


def _stream(op: Op, target: Target) -> Stream | None:
    """The stream of the weights as [N, K]."""
    stream = stream_of(op, target.limits)
    if stream is None or stream.stored is None:
        return stream
    stored = stream.stored.reshape(stream.stored.shape[-2:])
    transposed = op.type == "matmul" and not op.arg("transpose_y")
    return replace(stream, stored=np.ascontiguousarray(stored.T if transposed else stored))


@recipe("matmul", "linear", match=with_bias, shrinks=True)
def product(ops: Sequence[Op], context: Context) -> Fragment:
    """matmul, linear with constant weights: turned copy into L2, then 1x1 convolutions with turned result."""
    x, transposed, weights = weights_of(ops, context.target)
    source, out = context.tensor(x), context.tensor(ops[-1].output)
    fragment = Fragment(context)
    if transposed:
        kernels: Kernels = {}
        for b in range(source.n * source.c):
            x_part, y_part = as_rows(source).part(b * source.h, source.h), as_rows(out).part(b * out.h, out.h)
            _from_transposed(fragment, x_part, y_part, weights, kernels)
        return fragment
    x_rows, y_rows = as_rows(source), as_rows(out)
    _by_rows(fragment, x_rows, y_rows, weights)
    return fragment


@dataclass(frozen=True)
class MatrixRows:
    """A matrix in DRAM: ``m`` rows of ``k`` values, ``stride`` bytes apart."""

    buffer: Buffer
    offset: int
    m: int
    k: int
    stride: int
    total: int = 0  # bytes of the tensor that the rows are a part of, 0: of the rows

    def part(self, first: int, count: int) -> MatrixRows:
        return replace(self, offset=self.offset + first * self.stride, m=count)

    def walk(self) -> Dma:
        """Rows as channels."""
        size = self.m * self.stride
        total = self.total or size
        return Dma(self.buffer, self.offset, size, self.stride, total, total)

    def folded(self) -> Dma:
        """Row 8h + c as channel c of image row h."""
        size = self.m * self.stride
        return Dma(self.buffer, self.offset, FOLD * self.stride, self.stride, size, size)


def as_rows(tensor: Tensor) -> MatrixRows:
    """All leading axes together are the rows: planes and batches are dense."""
    return MatrixRows(tensor.buffer, tensor.offset, tensor.n * tensor.c * tensor.h, tensor.w, tensor.row)


def _by_rows(fragment: Fragment, x: MatrixRows, y: MatrixRows, weights: Product) -> None:
    """Cut M so that x^T, its source window and a result buffer fit L2."""
    limit = largest_rows(fragment.target, x.k, y.k)
    kernels: Kernels = {}
    for first in range(0, x.m, limit):
        count = min(limit, x.m - first)
        _chunk(fragment, x.part(first, count), y.part(first, count), weights, kernels)


def largest_rows(target: Target, k: int, n: int) -> int:
    """Most rows of one pass: x^T [K][M] with odd channel stride and the window of the copy's source."""
    for m in (4096, 2048, 1024, 512, 256, 128, 64, 32, 16, 8, 1):
        window = m * l2.ne_window(k)
        if (
            k * l2.odd_channel_stride(m) + max(window, 2 * min(n, 128) * l2.channel_stride(min(m, 128)))
            <= target.limits.l2_bytes
        ):
            return m
    raise UnsupportedError(f"a product over {k} values does not fit the engine's L2 buffer", code=Reason.MEMORY)


@dataclass(frozen=True)
class TransposedMap:
    """x^T in L2: ``m`` = h * w pixels, ``k`` channels at ``region``; what comes next stands at ``end``.

    ``walk`` is the scratch image of a staging pair, ``after`` what its first reader waits for.
    """

    region: Region
    h: int
    w: int
    end: int
    walk: Dma | None
    after: After
    source_end: int = 0


def turn_in(fragment: Fragment, x: MatrixRows, base: int = 0) -> TransposedMap:
    """T0: NE copy with turned output into L2, as a staging pair (§12 item 4)."""
    plan = tasks.copy_plan(fragment.target, x.m, 1, x.k, out_trans=True).reading(dma=x.walk())
    plan = tasks.choose_shape(fragment.target, plan)
    channel = l2.odd_channel_stride(x.m)
    size = x.k * channel
    region = Region(base, channel, size, size)
    plan, source_end = tasks.ne_source(fragment.target, plan, base + size)
    row = align(2 * x.m, 64)
    return _staged(
        fragment, plan, region, Dma(fragment.workspace(x.k * row), 0, row, row, x.k * row, x.k * row), source_end
    )


def fold_in(fragment: Fragment, x: MatrixRows, kernel_bytes: int, base: int = 0) -> TransposedMap:
    """T0 of a folded product: rows as M/8 x 8 pixels; row pad as the product's patch asks for."""
    h = x.m // FOLD
    plan = tasks.copy_plan(fragment.target, FOLD, h, x.k, out_trans=True).reading(dma=x.folded())
    plan = tasks.choose_shape(fragment.target, plan)
    region = folded_region(fragment.target, base, x.k, h, kernel_bytes)
    plan, source_end = tasks.ne_source(fragment.target, plan, base + h * region.row)
    return _staged(fragment, plan, region, _folded_walk(fragment, x.k, h), source_end)


def fold_columns(fragment: Fragment, x: MatrixRows, kernel_bytes: int) -> TransposedMap:
    """T0 and T1 of a folded product whose x is given as [K, M]: its columns as rows in L2, then folded from there."""
    k, m = x.m, x.k
    turn = tasks.copy_plan(fragment.target, k, 1, m, out_trans=True).reading(dma=x.walk())
    turn = tasks.choose_shape(fragment.target, turn)
    channel = l2.channel_stride(k)
    rows = Region(0, channel, m * channel, m * channel)
    turn, _ = tasks.ne_source(fragment.target, turn, rows.row)
    fragment.stay(turn, rows)
    plan = tasks.copy_plan(fragment.target, FOLD, m // FOLD, k, out_trans=True)
    plan = tasks.choose_shape(fragment.target, plan)
    plan = tasks.resident(plan, Region(0, channel, FOLD * channel, rows.depth), After.NE_RESULT)
    region = folded_region(fragment.target, rows.row, k, plan.h, kernel_bytes)
    return _staged(fragment, plan, region, _folded_walk(fragment, k, plan.h), 0)


def _folded_walk(fragment: Fragment, k: int, h: int) -> Dma:
    """The scratch image of a map of ``k`` channels and ``h`` rows of eight pixels."""
    plane = 64 * h
    return Dma(fragment.workspace(k * plane), 0, 64, plane, k * plane, k * plane)


def folded_region(target: Target, base: int, channels: int, h: int, kernel_bytes: int) -> Region:
    """[h][channels][8 px] with the row pad of the product that reads it."""
    s = largest_shape(FOLD, h)
    small = is_small_source(target, FOLD, h, kernel_bytes)
    channel = l2.channel_stride(FOLD)
    block = channels * channel
    pad = l2.ne_pad(block, h, (4, 4, 4) if small else (s, s, s), FOLD, small=small)
    return Region(base, channel, block + pad, block)


def _staged(fragment: Fragment, plan: Plan, source: Region, walk: Dma, source_end: int) -> TransposedMap:
    plan = plan.writing(dma=walk, staged=True)
    plan = fragment.stay(plan, source)
    end = source.base + plan.hout * source.row
    return TransposedMap(source, plan.h, plan.c, end, walk, After.NE_RESULT | After.STAGED, source_end)


def fold_out(fragment: Fragment, region: Region, m: int, y: MatrixRows) -> None:
    """T2 of a folded product: from pixels back to rows."""
    plan = tasks.copy_plan(fragment.target, m, 1, y.k).writing(dma=y.walk())
    plan = tasks.choose_shape(fragment.target, plan)
    size = m * region.channel
    plan = tasks.resident(plan, Region(region.base, region.channel, size, size), After.NE_RESULT)
    plan = plan.sending(region.base + size)
    fragment.add(plan)


def blocks_for(target: Target, weights: Product, h: int, w: int, *, transposed: bool) -> list[ChannelBlock]:
    one_patch = patch_count(w, h, largest_shape(w, h)) == 1
    return weights.blocks(target, one_patch=one_patch, transposed=transposed)


def block_plan(
    target: Target, source: TransposedMap, weights: Product, block: ChannelBlock, kernels: Kernels, *, out_trans: bool
) -> Plan:
    """One block of output channels, its kernel shared between the passes over M."""
    plan = dense_block(target, weights, block, source.w, out_trans=out_trans, height=source.h)
    return plan.but(kernel=kernels.setdefault((block.first, block.count), plan.kernel))


def settle(target: Target, plan: Plan) -> Plan:
    assert plan.kernel is not None
    return tasks.choose_shape(target, plan, weighted=True)


def products(fragment: Fragment, source: TransposedMap, weights: Product, y: MatrixRows, kernels: Kernels) -> None:
    """T1 ...: the blocks of output channels, ascending, each to its columns of y."""
    blocks = blocks_for(fragment.target, weights, source.h, source.w, transposed=True)
    for i, block in enumerate(blocks):
        plan = block_plan(fragment.target, source, weights, block, kernels, out_trans=True)
        plan = plan.writing(dma=replace(y.walk(), offset=y.offset + 2 * block.first))
        plan = from_transposed(fragment.target, plan, source, first=i == 0)
        fragment.add(plan.sending(source.end).but(holds=i < len(blocks) - 1))


def from_transposed(target: Target, plan: Plan, source: TransposedMap, *, first: bool) -> Plan:
    """A block's task, which reads the map in L2; the first of the map brings what is not there yet."""
    if first and source.walk is not None:
        plan = plan.reading(dma=source.walk, staged=True)
    return tasks.resident(settle(target, plan), source.region, source.after if first else After.NOTHING)


def folded_products(fragment: Fragment, source: TransposedMap, weights: Product, base: int, kernels: Kernels) -> Region:
    """T1 of a folded product: result [h][8 px][N channels along W], which stays in L2 at ``base``."""
    channel = l2.channel_stride(weights.n)
    region = Region(base, channel, FOLD * channel, source.h * FOLD * channel)
    blocks = blocks_for(fragment.target, weights, source.h, source.w, transposed=True)
    for i, block in enumerate(blocks):
        plan = block_plan(fragment.target, source, weights, block, kernels, out_trans=True)
        plan = from_transposed(fragment.target, plan, source, first=i == 0)
        fragment.stay(plan, replace(region, base=base + 2 * block.first), after=After.NOTHING)
    return region


def _chunk(fragment: Fragment, x: MatrixRows, y: MatrixRows, weights: Product, kernels: Kernels) -> None:
    if folds(fragment.target, x.m, weights.n, weights.k):
        _folded(fragment, x, y, weights, kernels, transposed=False)
        return
    products(fragment, turn_in(fragment, x), weights, y, kernels)


def _folded(
    fragment: Fragment, x: MatrixRows, y: MatrixRows, weights: Product, kernels: Kernels, *, transposed: bool
) -> None:
    """Rows as M/8 x 8 pixels; of an x that is given as [K, M] the rows are written to L2 first."""
    m = x.k if transposed else x.m
    lanes = max(b.lanes for b in blocks_for(fragment.target, weights, m // FOLD, FOLD, transposed=True))
    source = (fold_columns if transposed else fold_in)(fragment, x, kernel_bytes(weights, lanes))
    region = folded_products(fragment, source, weights, source.end, kernels)
    fold_out(fragment, region, m, y)


def _folds_columns(target: Target, x: MatrixRows, weights: Product) -> bool:
    """True where an x that is given as [K, M] is folded: it has to fit L2 as rows, as pixels and as it is."""
    room = 2 * x.k * l2.channel_stride(x.m) + x.m * l2.channel_stride(x.k) + l2.RESULT_ROOM
    return folds(target, x.k, weights.n, x.m) and room <= target.limits.l2_bytes


def kernel_bytes(weights: Product, lanes: int) -> int:
    head = 128 * (weights.epilogue.table is not None) + 2 * lanes * (weights.bias is not None)
    return align(head + 2 * lanes * weights.weights.lane_halfwords(weights.k), 64)


def _from_transposed(fragment: Fragment, x: MatrixRows, y: MatrixRows, weights: Product, kernels: Kernels) -> None:
    """x is given as [K, M]: the product reads it directly, its first block keeps it in L2 (§7.6)."""
    if fragment.context.policy.between and _folds_columns(fragment.target, x, weights):  # the model prefers one task
        _folded(fragment, x, y, weights, kernels, transposed=True)
        return
    size = x.m * x.stride
    walk = Dma(x.buffer, x.offset, size, x.stride, size, size)
    source = TransposedMap(Region(), 1, x.k, 0, None, After.NOTHING)
    plans = []
    for block in blocks_for(fragment.target, weights, 1, x.k, transposed=True):
        plan = block_plan(fragment.target, source, weights, block, kernels, out_trans=True)
        plan = plan.reading(dma=walk).writing(dma=replace(y.walk(), offset=y.offset + 2 * block.first))
        plan = settle(fragment.target, plan)
        plans.append(plan)
    place_blocks(fragment, plans)


# -- two products in a row -------------------------------------------------------------------------------------------


def feed_forward(op: Op, context: Context) -> tuple[Op, ...] | None:
    """Product, table or relu, product, where nothing else takes what is between them."""
    first = fused_ops(op, context.on)
    if len(first) == 1:
        return None
    second = follows(first[-1], "matmul", "linear")
    if second is None or second.arg("x") is not first[-1].output:
        return None
    return (*first, *fused_ops(second, context.on))


@recipe("matmul", "linear", match=feed_forward, rank=5)
def two_products(ops: Sequence[Op], context: Context) -> Fragment:
    """Product, function, product with constant weights: the hidden map stays in L2."""
    split = next(i for i, op in enumerate(ops) if i and op.type in ("matmul", "linear"))
    x, transposed, first = weights_of(ops[:split], context.target)
    _, turned_again, second = weights_of(ops[split:], context.target)
    if transposed or turned_again or second.k != first.n:
        raise UnsupportedError("a transposed operand in a chain of products", code=Reason.LAYOUT)
    source, out = as_rows(context.tensor(x)), as_rows(context.tensor(ops[-1].output))
    fragment = Fragment(context)
    m = source.m
    if folds(context.target, m, first.n, first.k) and folds(context.target, m, second.n, second.k):
        _folded_chain(fragment, source, out, first, second)
    else:
        _chain(fragment, source, out, first, second)
    return fragment


def _fits(target: Target, *sizes: int) -> None:
    if sum(sizes) > target.limits.l2_bytes:
        raise UnsupportedError("the map between two products does not fit the engine's L2 buffer", code=Reason.MEMORY)


def _chain(fragment: Fragment, x: MatrixRows, y: MatrixRows, first: Product, second: Product) -> None:
    channel = l2.channel_stride(x.m)
    hidden = Region(0, channel, first.n * channel, first.n * channel)
    size = hidden.row
    _fits(fragment.target, size, x.k * l2.odd_channel_stride(x.m), x.m * l2.ne_window(x.k))
    source = turn_in(fragment, x, size)
    _hidden(fragment, source, first, hidden)
    again = TransposedMap(hidden, 1, x.m, size, None, After.NE_RESULT)
    products(fragment, again, second, y, {})


def _folded_chain(fragment: Fragment, x: MatrixRows, y: MatrixRows, first: Product, second: Product) -> None:
    h = x.m // FOLD
    lanes = max(b.lanes for b in blocks_for(fragment.target, first, h, FOLD, transposed=False))
    lanes_again = max(b.lanes for b in blocks_for(fragment.target, second, h, FOLD, transposed=True))
    hidden = folded_region(fragment.target, 0, first.n, h, kernel_bytes(second, lanes_again))
    size = h * hidden.row
    _fits(fragment.target, size, h * (x.k * 16 + l2.MOST_PAD), x.m * l2.ne_window(x.k))
    source = fold_in(fragment, x, kernel_bytes(first, lanes), size)
    _hidden(fragment, source, first, hidden)
    again = TransposedMap(hidden, h, FOLD, size, None, After.NE_RESULT)
    region = folded_products(fragment, again, second, size, {})
    fold_out(fragment, region, x.m, y)


def _hidden(fragment: Fragment, source: TransposedMap, weights: Product, region: Region) -> None:
    """The first product: its blocks side by side in L2, channels as channels."""
    for i, block in enumerate(blocks_for(fragment.target, weights, source.h, source.w, transposed=False)):
        plan = block_plan(fragment.target, source, weights, block, {}, out_trans=False)
        if i == 0:
            plan = plan.reading(dma=source.walk, staged=True)
        plan = settle(fragment.target, plan)
        follows = After.FOLLOWS_NE if fragment.target.choices.follows_closely else source.after
        plan = tasks.resident(plan, source.region, follows if i == 0 else After.NOTHING)
        fragment.stay(plan, replace(region, base=region.base + block.first * region.channel), after=After.NOTHING)
