"""Products of two computed tensors: one operand becomes the kernel (docs/reference/engine-h13.md 9.7, 13.2, 13.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.geometry import ceil_log2, is_small_source, joint_shape, largest_shape
from hexane.codegen.operations import COPY, RUNTIME_KERNEL, After, Mac, SourceType
from hexane.codegen.plan import Destination, Dma, Operand, Plan, Region, TaskKernel
from hexane.codegen.recipes.linear import MatrixRows, as_rows, turn_in
from hexane.codegen.recipes.registry import constant, fused, need_fp16, recipe
from hexane.codegen.recipes.shape import AxisWalk, permute
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.lowering.fusion import Epilogue
from hexane.lowering.weights import stream_of
from hexane.rounding import align, ceil_div

if TYPE_CHECKING:
    from hexane.codegen.targets import Target
    from hexane.graph.ir import Op

SCRATCH_LANES = 8
STAGING_RESULT = 1 << 10  # bytes that the automatic buffer of a PE staging copy is taken to hold, for hazards


def lanes_of(target: Target, m: int) -> int:
    """Rows per core, which is also the interleave of the staged operand (§13.2)."""
    share = m // target.limits.cores
    return min(8, max(2, share & -share))


@recipe("matmul", match=fused, rank=20, shrinks=True)
def runtime_product(ops: Sequence[Op], context: Context) -> Fragment:
    """matmul of two computed tensors: x is the kernel, w the map; rows in blocks."""
    op = ops[0]
    x, y = op.arg("x"), op.arg("y")
    need_fp16(x, y)
    if y.is_constant and stream_of(op, context.limits) is not None:
        raise UnsupportedError("compressed weights, which stream as a kernel", code=Reason.CONSTANT)
    if x.is_constant:
        raise UnsupportedError(
            "a constant first operand of a product", hint="transpose both operands and the result", code=Reason.CONSTANT
        )
    epilogue = Epilogue.of(ops)
    if epilogue.relu or epilogue.table_name is not None or epilogue.bias is not None:
        raise UnsupportedError("a table or bias behind a product whose kernel is computed", code=Reason.COMPUTED)
    fragment = Fragment(context)
    a, out = context.tensor(x), context.tensor(ops[-1].output)
    data = constant(y)
    b = context.tensor(y) if data is None else fragment.plain_constant(np.asarray(data, np.float16))
    turned_x, turned_y = bool(op.arg("transpose_x")), bool(op.arg("transpose_y"))
    pairs = _batches(a, b, out)
    m = a.w if turned_x else a.h
    if m % context.limits.cores or (data is not None and len(pairs) > 1):
        if turned_x:
            a = _turned_back(fragment, a)
            pairs = _batches(a, b, out)
        for rx, rw, ry in reversed(pairs):
            _by_single_rows(fragment, rx, rw, ry, turned_y, epilogue)
        return fragment
    staged = None if turned_x or a.n * a.c < len(pairs) else _stage_batches(fragment, pairs)
    for i, (rx, rw, ry) in reversed(list(enumerate(pairs))):
        kernel = None if staged is None else replace(staged, offset=staged.offset + i * staged.group)
        product(fragment, rx, rw, ry, turned_x=turned_x, turned_y=turned_y, scale=epilogue.scale, staged=kernel)
    if len(pairs) > 1:
        fragment.inferred("batches of a product with staged kernels")
    return fragment


def _turned_back(fragment: Fragment, a: Tensor) -> Tensor:
    """A first operand given as [K, M], as [M, K] in scratch."""
    straight = fragment.tensor(a.n, a.c, a.w, a.h)
    permute(fragment, AxisWalk.of(a), (0, 1, 3, 2), AxisWalk.of(straight))
    return straight


def _batches(a: Tensor, b: Tensor, out: Tensor) -> list[tuple[MatrixRows, MatrixRows, MatrixRows]]:
    """Matrices of every batch, with batch broadcast."""
    batches = []
    for n in range(out.n):
        for c in range(out.c):
            triple = []
            for tensor in (a, b, out):
                index = (n if tensor.n > 1 else 0) * tensor.c + (c if tensor.c > 1 else 0)
                triple.append(replace(as_rows(tensor).part(index * tensor.h, tensor.h), total=tensor.batch))
            batches.append((triple[0], triple[1], triple[2]))
    return batches


def _stage_batches(fragment: Fragment, pairs: Sequence[tuple[MatrixRows, MatrixRows, MatrixRows]]) -> Dma | None:
    """The first operands of all batches to scratch by one planar copy, as on H14 (engine-h14, batched products): a
    change of the unit, not two for each batch. None where a product stages nothing, or stages on the cores.
    """
    x = pairs[0][0]
    lanes = lanes_of(fragment.target, x.m)
    cores = fragment.limits.cores
    if len(pairs) == 1 or not cores < x.m <= cores * lanes or 2 * x.k * lanes > fragment.limits.kernel_bytes_per_core:
        return None
    row = align(2 * lanes * x.k, 64)
    group = x.m // lanes * row
    walk = Dma(fragment.workspace(len(pairs) * group), 0, row, row, group, group, interleave=lanes)
    plan = Plan(pe=COPY, w=x.k, h=1, c=x.m, groups=len(pairs), result=Destination(dma=walk))
    step = x.m * x.stride
    plan = plan.reading(dma=replace(x.walk(), depth=step, group=step))
    plan, end = tasks.pe_source(plan, 0)
    plan = tasks.streams_out(fragment.target, plan, end, explicit=False)
    fragment.add(plan)
    return walk


def product(
    fragment: Fragment,
    x: MatrixRows,
    w: MatrixRows,
    y: MatrixRows,
    *,
    turned_x: bool,
    turned_y: bool,
    scale: float = 1.0,
    staged: Dma | None = None,
) -> None:
    """One matrix product with M a multiple of 16 (§13.2); ``staged``: its kernel, where the first task wrote it."""
    m, k = (x.k, x.m) if turned_x else (x.m, x.k)
    if m == fragment.limits.cores and not turned_x:
        _unstaged(fragment, x, w, y, turned_y, scale)
        return
    lanes = lanes_of(fragment.target, m)
    if k * lanes * 2 > fragment.limits.kernel_bytes_per_core:
        raise UnsupportedError(
            f"a computed kernel over {k} values", hint="at most 4096 with 8 rows per core", code=Reason.EXTENT
        )
    per_task = fragment.limits.cores * lanes
    count = ceil_div(m, per_task)
    planar = count == 1 and not turned_x
    start = 0 if staged is not None else len(fragment.plans)
    if staged is None:
        staged = stage(fragment, x, lanes, transposed=turned_x, planar=planar)
    after = fragment.plans[start] if planar and start == len(fragment.plans) - 1 else None
    region, end = None, 0
    if turned_y and w.k * l2.odd_channel_stride(w.m) + w.m * l2.ne_window(w.k) > fragment.limits.l2_bytes:
        w = _turn_through_scratch(fragment, w, after)
    elif turned_y:
        region, end = _turn_map(fragment, w, after_planar=after)
    compute(fragment, ComputedProduct(start, staged, w, y, m, k, lanes, scale, region, end))


def stage(fragment: Fragment, x: MatrixRows, lanes: int, *, transposed: bool, planar: bool) -> Dma:
    """x to scratch with its rows interleaved ``[M/I][K][I]``: the layout of a kernel (§9.7)."""
    m, k = (x.k, x.m) if transposed else (x.m, x.k)
    line = 2 * lanes * k
    row = align(line, 64)
    buffer = fragment.workspace(m // lanes * row)
    total = m // lanes * row
    walk = Dma(buffer, 0, row, row, total, total, interleave=lanes)
    if planar:
        plan = Plan(pe=COPY, w=k, h=1, c=m, source=Operand(dma=x.walk()), result=Destination(dma=walk))
        plan, end = tasks.pe_source(plan, 0)
        plan = tasks.streams_out(fragment.target, plan, end, explicit=False)
    else:
        plan = (
            tasks.copy_plan(fragment.target, k, 1, m, out_trans=True)
            if transposed
            else tasks.copy_plan(fragment.target, m, 1, k)
        )
        plan = plan.reading(dma=x.walk()).writing(dma=walk)
        plan, end = fragment.bring(plan, 0)
        plan = tasks.streams_out(fragment.target, plan, end, explicit=False)
    fragment.add(plan)
    return walk


def _overlap(region: tuple[int, int], other: tuple[int, int]) -> bool:
    return region[0] < other[1] and other[0] < region[1]


def hazard(start: int, end: int, copy: Plan) -> After:
    """Region of a PE staging copy that a region of the next NE task overlaps (§4.6)."""
    result = copy.result.region.base
    if _overlap((start, end), (result, result + STAGING_RESULT)):
        return After.PE_RESULT
    return After.PE_SOURCE if _overlap((start, end), (copy.source.region.base, result)) else After.NOTHING


def behind_staging(plan: Plan, end: int, copy: Plan) -> Plan:
    """Waits of a product whose source stands in L2 up to ``end`` and whose result follows it."""
    plan = plan.waiting(hazard(0, end, copy))
    strip = plan.cout * l2.channel_stride(min(plan.wout, 128))
    if hazard(end, end + strip, copy) is After.PE_RESULT:
        plan = plan.waiting(result=After.PE_RESULT)
    return plan


def _turn_map(fragment: Fragment, w: MatrixRows, *, after_planar: Plan | None) -> tuple[Region, int]:
    """w given as [N, K]: a turned copy in L2 at 0."""
    plan = tasks.copy_plan(fragment.target, w.m, 1, w.k, out_trans=True).reading(dma=w.walk())
    plan = tasks.choose_shape(fragment.target, plan)
    channel = l2.odd_channel_stride(w.m)
    size = w.k * channel
    region = Region(0, channel, size, size)
    plan, end = tasks.ne_source(fragment.target, plan, size, after=After.NE)
    after = After.NE
    if after_planar is not None:
        after = hazard(0, size, after_planar)
        # the copy's source region is checked the same way, and waits for the neural engine besides
        waits = hazard(size, end, after_planar)
        plan = plan.waiting(waits)
    fragment.stay(plan, region, after=after | After.NE)
    return region, size


def _turn_through_scratch(fragment: Fragment, w: MatrixRows, after_planar: Plan | None) -> Interleaved:
    """w given as [N, K], too large for L2: turned into scratch with interleave 8 (§13.2)."""
    if w.k % SCRATCH_LANES:
        raise UnsupportedError(
            f"a transposed operand of {w.m} x {w.k} does not fit the engine's L2 buffer", code=Reason.MEMORY
        )
    plan = tasks.copy_plan(fragment.target, w.m, 1, w.k, out_trans=True)
    row = align(2 * SCRATCH_LANES * w.m, 64)
    total = w.k // SCRATCH_LANES * row
    walk = Dma(fragment.workspace(total), 0, row, row, total, total, interleave=SCRATCH_LANES)
    plan = plan.reading(dma=w.walk()).writing(dma=walk)
    plan, end = fragment.bring(plan, 0, after=After.NE)
    if after_planar is not None:
        plan = plan.waiting(hazard(0, end, after_planar))
    plan = tasks.streams_out(fragment.target, plan, end, explicit=False, after=After.NE).but(holds=True)
    fragment.add(plan)
    return Interleaved(walk.buffer, 0, w.k, w.m, row, interleave=SCRATCH_LANES)


@dataclass(frozen=True)
class Interleaved(MatrixRows):
    """A matrix in scratch, rows interleaved by eight."""

    interleave: int = SCRATCH_LANES

    def walk(self) -> Dma:
        total = self.m // self.interleave * self.stride
        return Dma(self.buffer, self.offset, self.stride, self.stride, total, total, interleave=self.interleave)


@dataclass(frozen=True)
class ComputedProduct:
    """[M, K] times [K, N] whose first operand lies in scratch as a kernel of ``lanes`` rows side by side.

    ``start`` is the task that staged it. ``held`` is the map where it is in L2 already, ``end`` what is free behind it.
    ``settled``: that task has waited for those of the cores.
    """

    start: int
    staged: Dma
    w: MatrixRows
    y: MatrixRows
    m: int
    k: int
    lanes: int
    scale: float = 1.0
    held: Region | None = None
    end: int = 0
    settled: bool = False


def kernel_product(target: Target, kernel: Dma, m: int, k: int, n: int, scale: float) -> Plan:
    """A task of [M, K] times [K, N] whose first operand lies in scratch as a kernel, its rows side by side."""
    lanes = kernel.interleave
    plan = Plan(ne=Mac(post_scale=scale), w=n, c=k, cout=m, kernel_format=RUNTIME_KERNEL, macs=m * n * k)
    plan = plan.but(cores_log2=min(4, ceil_log2(m // lanes)), ocg=ceil_log2(lanes))
    size, cores = align(2 * k * lanes, 64), 1 << plan.cores_log2
    return plan.but(
        kernel=TaskKernel(
            b"",
            tuple(core * size for core in range(cores)),
            (size,) * cores,
            source=kernel.buffer,
            offset=kernel.offset,
            pass_stride=target.limits.cores * size,
            total=ceil_div(m, lanes) * size,
        )
    )


def choose_joint_shape(target: Target, plan: Plan) -> Plan:
    """The work-unit shape of a product whose map and result stay in L2, which a planar task may follow."""
    assert plan.kernel is not None
    s = joint_shape(plan.w, 1)
    if target.choices.small_patch and is_small_source(target, plan.w, 1, plan.kernel.sizes[0]):
        s = largest_shape(plan.w, 1)
        plan = plan.but(small_source=True)
    return plan.but(shape=(s, s, s))


def compute(fragment: Fragment, product: ComputedProduct) -> None:
    """Blocks of rows, the highest first; a remainder runs on fewer cores."""
    start, staged, w, y = product.start, product.staged, product.w, product.y
    m, k, lanes, region, end = product.m, product.k, product.lanes, product.held, product.end
    per_task = fragment.limits.cores * lanes
    if fragment.target.choices.steps_kernels:
        per_task = m
    rest = m % per_task
    blocks = ([(m - rest, rest)] if rest else []) + [(r, per_task) for r in range(m - rest - per_task, -1, -per_task)]
    n = y.k
    staging = fragment.plans[start]
    for i, (first, count) in enumerate(blocks):
        plan = kernel_product(fragment.target, staged.moved(first // lanes * staged.row), count, k, n, product.scale)
        plan = plan.writing(dma=replace(y.walk(), offset=y.offset + first * y.stride)).but(dtid=start)
        if region is not None:
            plan = tasks.choose_shape(fragment.target, plan)
            plan = tasks.resident(plan, region, After.NE_RESULT if i == 0 else After.NOTHING).sending(end)
        elif i == 0 or fragment.plans[-1].source.type is SourceType.DMA_STREAM:
            plan = plan.reading(dma=w.walk())
            plan = tasks.choose_shape(fragment.target, plan, weighted=fragment.target.choices.small_patch)
            after = staging if staging.unit == "PE" and start == len(fragment.plans) - 1 else None
            keep = len(blocks) > 1 and k * l2.channel_stride(n) + 2 * l2.RING_ROOM <= fragment.limits.l2_bytes
            scratch = isinstance(w, Interleaved)
            waits = After.NOTHING if scratch or product.settled else After.NE
            plan, end = tasks.ne_source(fragment.target, plan, 0, keep=keep, after=waits)
            plan = tasks.streams_out(fragment.target, plan, end, explicit=False, after=waits)
            if after is not None and not scratch and i == 0:
                plan = behind_staging(plan, end, after)
        else:
            plan = tasks.choose_shape(fragment.target, plan)
            plan = tasks.resident(plan, replace(fragment.plans[-1].source.region, group=0)).sending(end)
        resident = region is not None or plan.source.dma is None or plan.source.type is SourceType.DMA_KEEP
        plan = plan.but(holds=i < len(blocks) - 1 and resident)
        fragment.add(plan)


def _surface_kernel(target: Target, plan: Plan, rows: MatrixRows) -> Plan:
    """Kernel straight from rows of a surface: one row per core (§9.7)."""
    size = align(2 * rows.k, 64)
    plan = plan.but(kernel_format=RUNTIME_KERNEL, cores_log2=ceil_log2(rows.m))
    return plan.but(
        kernel=TaskKernel(
            b"",
            tuple(c * rows.stride for c in range(rows.m)),
            (size,) * rows.m,
            source=rows.buffer,
            offset=rows.offset,
            pass_stride=target.limits.cores * size,
        )
    )


def _unstaged(fragment: Fragment, x: MatrixRows, w: MatrixRows, y: MatrixRows, turned_y: bool, scale: float) -> None:
    """M = 16: one row per core, no staging (§13.2)."""
    n = y.k
    plan = Plan(ne=Mac(post_scale=scale), w=n, h=1, c=x.k, cout=x.m)
    plan = _surface_kernel(fragment.target, plan, x).writing(dma=y.walk()).but(macs=x.m * n * x.k)
    if turned_y:
        source = turn_in(fragment, w)
        plan = plan.reading(dma=source.walk, staged=True)
        plan = tasks.choose_shape(fragment.target, plan)
        plan = tasks.resident(plan, source.region, source.after).sending(source.end)
    else:
        plan = plan.reading(dma=w.walk())
        plan, end = fragment.bring(plan, 0)
        plan = tasks.streams_out(fragment.target, plan, end, explicit=False)
    fragment.add(plan)


def _by_single_rows(
    fragment: Fragment, x: MatrixRows, w: MatrixRows, y: MatrixRows, turned_y: bool, epilogue: Epilogue
) -> None:
    """Any M: from the end, blocks of 1, 2, 4, 8 rows for the remainder, then sixteen, one row per core (§13.3)."""
    m, k, n = x.m, x.k, y.k
    resident, end = (None, 0)
    if turned_y:
        transposed = turn_in(fragment, w)
        resident, end = transposed.region, transposed.end
        walk, waits = transposed.walk, transposed.after
    sizes = [1 << bit for bit in range(4) if m % fragment.limits.cores >> bit & 1] + [fragment.limits.cores] * (
        m // fragment.limits.cores
    )
    at = m
    region = resident
    for i, count in enumerate(sizes):
        at -= count
        plan = Plan(ne=Mac(post_scale=epilogue.scale), w=n, h=1, c=k, cout=count)
        plan = _surface_kernel(fragment.target, plan, x.part(at, count))
        plan = plan.writing(dma=replace(y.walk(), offset=y.offset + at * y.stride)).but(macs=count * n * k)
        if region is None:
            plan = plan.reading(dma=w.walk())
            plan = tasks.choose_shape(fragment.target, plan)
            keep = len(sizes) > 1 and k * l2.channel_stride(n) + 2 * l2.RING_ROOM <= fragment.limits.l2_bytes
            plan, end = tasks.ne_source(fragment.target, plan, 0, keep=keep)
            plan = tasks.streams_out(fragment.target, plan, end, explicit=False)
            region = replace(plan.source.region, group=0) if keep else None
        else:
            if turned_y and i == 0:
                plan = plan.reading(dma=walk, staged=True)
            plan = tasks.choose_shape(fragment.target, plan)
            plan = tasks.resident(plan, region, waits if turned_y and i == 0 else After.NOTHING).sending(end)
        plan = plan.but(holds=i < len(sizes) - 1 and region is not None)
        fragment.add(plan)
