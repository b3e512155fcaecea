"""Products of two computed tensors where the kernel DMA steps through batches and passes: H14 and later.

The first operand is staged once for all batches, eight of its rows side by side, or read from its surface as it is when
it has no more rows than there are cores. One task takes as many batches as its kernels allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.geometry import ceil_log2
from hexane.codegen.operations import COPY, RUNTIME_KERNEL, After, Mac
from hexane.codegen.plan import Dma, Plan, Region, TaskKernel
from hexane.codegen.recipes.matmul import SCRATCH_LANES, behind_staging, hazard, lanes_of
from hexane.codegen.recipes.registry import fused, need_fp16, recipe
from hexane.errors import UnsupportedError
from hexane.frozen import replace
from hexane.lowering.fusion import Epilogue
from hexane.rounding import align, ceil_div

if TYPE_CHECKING:
    from hexane.codegen.targets import Target
    from hexane.graph.ir import Op

KERNELS_PER_TASK = 1 << 20
"""Bytes of staged kernels that one task takes [INFERRED: 770048 in one task, 1129984 in two]."""


@recipe("matmul", match=fused, rank=15, shrinks=True)
def batched_product(ops: Sequence[Op], context: Context) -> Fragment:
    """matmul of two computed tensors, all batches in one task: H14 and later."""
    op = ops[0]
    x, y = op.arg("x"), op.arg("y")
    need_fp16(x, y)
    if not context.choices.steps_kernels:
        raise UnsupportedError("the kernel DMA of this generation does not step through batches")
    if x.is_constant or y.is_constant:
        raise UnsupportedError("a constant operand of a product in batches")
    epilogue = Epilogue.of(ops)
    if epilogue.relu or epilogue.table_name is not None or epilogue.bias is not None:
        raise UnsupportedError("a table or bias behind a product whose kernel is computed")
    a, b, out = context.tensor(x), context.tensor(y), context.tensor(ops[-1].output)
    if not (a.n * a.c == b.n * b.c == out.n * out.c):
        raise UnsupportedError("a product whose batches are broadcast")
    fragment = Fragment(context)
    _product(
        fragment, _stack(a), _stack(b), _stack(out), bool(op.arg("transpose_x")), bool(op.arg("transpose_y")), epilogue
    )
    return fragment


def _stack(tensor: Tensor) -> Tensor:
    """All leading axes as the batch: every matrix a plane of rows."""
    return replace(tensor, n=tensor.n * tensor.c, c=1)


def _rows(tensor: Tensor) -> Dma:
    """Rows as channels, one matrix per group."""
    plane = tensor.plane
    return Dma(tensor.buffer, tensor.offset, plane, tensor.row, plane, plane)


def _product(
    fragment: Fragment, x: Tensor, w: Tensor, y: Tensor, turned_x: bool, turned_y: bool, epilogue: Epilogue
) -> None:
    batch, m, k, n = x.n, y.h, (x.h if turned_x else x.w), y.w
    if m < fragment.limits.cores and ((turned_x and m < SCRATCH_LANES) or (not turned_x and m & (m - 1))):
        raise UnsupportedError(f"{m} rows, which do not fill cores and lanes evenly")
    if m <= fragment.limits.cores and not turned_x:
        kernel = _from_surface(fragment.target, x, m, k)
        staging, each, lanes = None, batch, 1
    else:
        lanes = SCRATCH_LANES if m % fragment.limits.cores else lanes_of(fragment.target, m)
        staging = fragment.add(_stage(fragment, x, m, k, lanes, turned_x))
        assert staging.result.dma is not None
        kernel = _staged(fragment.target, staging.result.dma, batch, m, k, lanes)
        each = next(
            c for c in range(batch, 0, -1) if (batch % c == 0 and c * kernel.group_stride <= KERNELS_PER_TASK) or c == 1
        )
    region, end = None, 0
    source = _rows(w)
    if turned_y:
        region, end = _turn(fragment, w, staging)
        if region is None:
            source = _turn_through_scratch(fragment, w)
    for first in range(batch - each, -1, -each):
        plan = Plan(ne=Mac(post_scale=epilogue.scale), w=n, h=1, c=k, cout=m, groups=each, kernel_format=RUNTIME_KERNEL)
        plan = plan.writing(dma=_rows(y).moved(first * y.plane)).but(
            ocg=ceil_log2(lanes),
            cores_log2=min(4, ceil_log2(ceil_div(m, lanes))),
            kernel=replace(kernel, offset=kernel.offset + first * kernel.group_stride),
            macs=each * m * n * k,
        )
        last = first == batch - each
        if region is not None:
            plan = tasks.choose_shape(fragment.target, plan, weighted=True)
            plan = tasks.resident(
                plan, replace(region, base=first * region.group), After.NE_RESULT if last else After.NOTHING
            )
            plan = plan.sending(end).but(holds=first > 0)
        else:
            plan = _by_dma(fragment.target, plan, source.moved(first * source.group), kernel, staging, starts=last)
        fragment.add(plan)
    if batch > 1 and ((lanes < SCRATCH_LANES and staging is not None) or (turned_y and staging is None)):
        fragment.inferred("batches of a product whose rows are few")


def _by_dma(target: Target, plan: Plan, source: Dma, kernel: TaskKernel, staging: Plan | None, *, starts: bool) -> Plan:
    """The second operand straight from memory; ``starts``: the first product of its batches."""
    plan = plan.reading(dma=source)
    plan = tasks.choose_shape(target, plan, weighted=True)
    after = After.NOTHING
    if starts and source.interleave == 1:
        after = tasks.STARTS if staging is None else After.NE
    plan, end = tasks.ne_source(target, plan, 0, after=after)
    plan = tasks.streams_out(target, plan, end, explicit=False, after=after)
    if starts and staging is not None and staging.unit == "PE":
        plan = behind_staging(plan, end, staging)
    return plan


def _from_surface(target: Target, x: Tensor, m: int, k: int) -> TaskKernel:
    """One row per core, straight from the surface."""
    size = align(2 * k, 64)
    cores = 1 << ceil_log2(m)
    return TaskKernel(
        b"",
        tuple(core * x.row for core in range(cores)),
        (size,) * cores,
        source=x.buffer,
        offset=x.offset,
        group_stride=x.plane if x.n > 1 else 0,
        pass_stride=target.limits.cores * size,
    )


def _stage(fragment: Fragment, x: Tensor, m: int, k: int, lanes: int, transposed: bool) -> Plan:
    """x to scratch as ``[batch][M / lanes][K][lanes]``: the layout of kernels."""
    plane = align(2 * lanes * k, 64)
    group = ceil_div(m, lanes) * plane
    buffer = fragment.workspace(x.n * group)
    walk = Dma(buffer, 0, plane, plane, group, group, interleave=lanes)
    if transposed:
        plan = tasks.copy_plan(fragment.target, k, 1, m, groups=x.n, out_trans=True)
    else:
        plan = Plan(pe=COPY, w=k, h=1, c=m, groups=x.n)
    plan = plan.reading(dma=_rows(x)).writing(dma=walk)
    if transposed:
        plan, end = fragment.bring(plan, 0)
    else:
        plan, end = tasks.pe_source(plan, 0)
    fragment.need_room(end + l2.RESULT_ROOM, f"an operand of {x.h} x {x.w}")
    return tasks.streams_out(fragment.target, plan, end, explicit=False)


def _staged(target: Target, walk: Dma, batch: int, m: int, k: int, lanes: int) -> TaskKernel:
    size = align(2 * k * lanes, 64)
    cores = min(target.limits.cores, ceil_div(m, lanes))
    return TaskKernel(
        b"",
        tuple(core * size for core in range(cores)),
        (size,) * cores,
        source=walk.buffer,
        offset=walk.offset,
        group_stride=walk.group if batch > 1 else 0,
        pass_stride=target.limits.cores * size,
        total=ceil_div(m, lanes) * size,
    )


def _turn(fragment: Fragment, w: Tensor, staging: Plan | None) -> tuple[Region | None, int]:
    """w given as [N, K]: turned copies in L2 at 0; None where they do not fit."""
    n, k = w.h, w.w
    channel = l2.channel_stride(n) if w.n > 1 else l2.odd_channel_stride(n)
    size = k * channel
    if w.n * size + n * l2.ne_window(k) > fragment.limits.l2_bytes:
        return None, 0
    plan = tasks.copy_plan(fragment.target, n, 1, k, groups=w.n, out_trans=True).reading(dma=_rows(w))
    plan = tasks.choose_shape(fragment.target, plan)
    region = Region(0, channel, size, size, size if w.n > 1 else 0)
    start = w.n * size
    after = After.NOTHING if staging is not None else tasks.STARTS
    plan, end = tasks.ne_source(fragment.target, plan, start, after=after)
    plan = tasks.stays(plan, region, after=after)
    if staging is not None and staging.unit == "PE":
        waits = hazard(start, end, staging), hazard(0, start, staging)
        plan = plan.waiting(waits[0], result=waits[1])
    elif staging is not None:
        plan = plan.waiting(After.NE_RESULT)
    fragment.add(plan)
    return region, start


def _turn_through_scratch(fragment: Fragment, w: Tensor) -> Dma:
    """w given as [N, K], too large for L2: turned into scratch, eight rows side by side."""
    n, k = w.h, w.w
    if k % SCRATCH_LANES:
        raise UnsupportedError(f"a transposed operand of {n} x {k} does not fit the engine's L2 buffer")
    plane = align(2 * SCRATCH_LANES * n, 64)
    group = k // SCRATCH_LANES * plane
    walk = Dma(fragment.workspace(w.n * group), 0, plane, plane, group, group, interleave=SCRATCH_LANES)
    plan = tasks.copy_plan(fragment.target, n, 1, k, groups=w.n, out_trans=True).reading(dma=_rows(w)).writing(dma=walk)
    plan, end = fragment.bring(plan, 0)
    fragment.need_room(end + l2.RESULT_ROOM, f"an operand of {w.h} x {w.w}")
    fragment.send(plan, end, explicit=False)
    return walk
