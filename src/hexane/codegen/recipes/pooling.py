"""Maximum pools: one task of the neural cores, or maxima of shifted maps (docs/reference/engine-h13.md 14.1)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.geometry import ceil_log2
from hexane.codegen.operations import MAC_MAXIMUM, KernelWindow
from hexane.codegen.plan import Plan
from hexane.codegen.price import price_us
from hexane.codegen.recipes.columns import columns, combine, turn
from hexane.codegen.recipes.conv import PAIR
from hexane.codegen.recipes.registry import need_fp16, recipe
from hexane.codegen.recipes.shape import AxisWalk, straight
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.graph.ir import Op, Value
from hexane.graph.ops.pooling import pool_geometry
from hexane.lowering.fusion import FUSED

COLUMN, ROW = 1, 2
"""Axes of a turned map."""
ROWS = 2
"""Axis of a plain one."""
LEAST_GAIN = 0.85
"""Of rows first over all at once: the rate of pools rests on few measurements (docs/timing.md)."""
LEFT_BYTES = 64 << 10
"""Of a map and the maxima of its rows, which stand in L2 side by side."""

ELEMENTWISE = ("abs", "add", "maximum", "minimum", "mul", "square", "sub")
"""What makes a map row by row, whatever is in front of it."""

WIDEST, TALLEST = 8, 13
"""Windows that the compiler of a generation with pooling takes (docs/limits.md)."""


@recipe("max_pool", rank=5)
def native_max_pool(ops: Sequence[Op], context: Context) -> Fragment:
    """max_pool: one neural engine task, the largest input of a window; exact."""
    (op,) = ops
    if not context.on.native_pools:
        raise UnsupportedError("a maximum over a window in one task is switched off")
    value = op.arg("x")
    need_fp16(value)
    if len(value.shape) != 4:
        raise UnsupportedError("a pool over other than two axes", code=Reason.RANK)
    (kh, kw), (sy, sx) = op.arg("kernel_sizes"), op.arg("strides") or (1, 1)
    _, _, reach, out = pool_geometry(
        value.shape, (kh, kw), op.arg("strides"), op.arg("pad_type"), op.arg("pad"), op.arg("ceil_mode")
    )
    if kw > WIDEST or kh > TALLEST:
        raise UnsupportedError(f"a window of {kh} x {kw} in one task", code=Reason.WINDOW)
    if not {sx, sy} <= {1, 2}:
        raise UnsupportedError(f"stride {(sy, sx)}; the engine has 1 and 2", code=Reason.STRIDE)
    for extent, count, k, step, pads in zip(value.shape[2:], out, (kh, kw), (sy, sx), reach):
        _needed(extent, k, step, pads, count)
        if pads[0] >= max(k, 2) or not -step < (count - 1) * step + k - pads[0] - extent < k:
            raise UnsupportedError("a window that leaves rows or columns unread in one task", code=Reason.PADDING)
    x, y = context.tensor(value), context.tensor(op.output)
    window = KernelWindow(kh, kw, sy, sx, reach[0][0], reach[1][0])
    fragment = _windows_at_once(x, y, window, context)
    inside = not reach[0][0] and (y.h - 1) * sy + kh <= x.h
    need = x.n * x.c * l2.channel_stride(x.w) * (x.h + y.h)
    in_l2 = need <= context.limits.l2_bytes - LEFT_BYTES or _comes_by_rows(value, context)
    if context.on.rows_first_pools and inside and kh > 1 and sy > 1 and in_l2:
        other, from_outside = _rows_first(x, y, window, context), value.op is None
        if _computing(other, context, from_outside) < LEAST_GAIN * _computing(fragment, context, from_outside):
            return other
    return fragment


def _comes_by_rows(value: Value, context: Context) -> bool:
    """True where a map beyond L2 may be made for the pool alone, band by band.

    By a convolution or element by element. Each band of a convolution fetches its kernels again: they have to fit the
    cores at once. One with groups, or whose cores work in pairs, is not cut.
    """
    if not context.on.bands or value.only_user is None:
        return False
    op = value.op
    while op is not None and op.type in ("relu", *FUSED) and op.arg("x").op is not None:
        op = op.arg("x").op
    if op is None or op.type != "conv":
        return op is not None and op.type in ELEMENTWISE
    weight = op.arg("weight").shape
    whole = op.arg("groups") == 1 and not (context.choices.fat_tiles and weight[0] == PAIR * context.limits.cores)
    return whole and 2 * prod(weight) <= context.limits.cores * context.limits.kernel_bytes_per_core


def _windows_at_once(x: Tensor, y: Tensor, window: KernelWindow, context: Context) -> Fragment:
    fragment = Fragment(context)
    plan = Plan(ne=MAC_MAXIMUM, w=x.w, h=x.h, c=x.c, wout=y.w, hout=y.h, groups=x.n, unicast=1, window=window)
    plan = plan.reading(dma=x.dma()).writing(dma=y.dma()).but(cores_log2=min(tasks.MOST_CORES_LOG2, ceil_log2(x.c)))
    plan = tasks.choose_shape(context.target, plan)
    plan, end = tasks.ne_source(context.target, plan, 0)
    fragment.send(plan, end)
    fragment.inferred("a maximum over a window, which programs show over channels only")
    return fragment


def _rows_first(x: Tensor, y: Tensor, window: KernelWindow, context: Context) -> Fragment:
    """Planar maxima of the rows of every window, which lie ``sy`` rows apart, then windows of one row."""
    fragment = Fragment(context)
    rows = AxisWalk.of(x)
    least = rows.sliced(ROWS, 0, y.h, window.sy)
    for tap in range(1, window.kh):
        tensor = Tensor(fragment.workspace(x.n * x.c * y.h * x.row), x.n, x.c, y.h, x.w)
        combine(fragment, "maximum", least, rows.sliced(ROWS, tap, y.h, window.sy), AxisWalk.of(tensor))
        least = AxisWalk.of(tensor)
    last = _windows_at_once(tensor, y, replace(window, kh=1, sy=1, top=0), context)
    fragment.plans += last.plans
    fragment.inferred("a maximum over the rows of windows, then over their columns")
    return fragment


def _computing(fragment: Fragment, context: Context, from_outside: bool) -> float:
    """Price of the tasks with all operands in L2, but for a map that is given in DRAM."""
    if from_outside:
        return price_us(fragment.plans, context.chip)
    return price_us(
        [plan.reading(dma=None).against(dma=None).writing(dma=None) for plan in fragment.plans], context.chip
    )


@recipe("max_pool")
def max_pool(ops: Sequence[Op], context: Context) -> Fragment:
    """max_pool: map turned, planar maxima of shifted planes and rows, turned back; exact."""
    (op,) = ops
    value = op.arg("x")
    need_fp16(value)
    if len(value.shape) != 4:
        raise UnsupportedError("a pool over other than two axes", code=Reason.RANK)
    sizes = tuple(op.arg("kernel_sizes"))
    steps, _, reach, out = pool_geometry(
        value.shape, sizes, op.arg("strides"), op.arg("pad_type"), op.arg("pad"), op.arg("ceil_mode")
    )
    x, y = context.tensor(value), context.tensor(op.output)
    needed = [_needed(*row) for row in zip(value.shape[2:], sizes, steps, reach, out)]
    fragment = Fragment(context)
    top, left = needed[0][0], needed[1][0]
    height, width = (sum(pads) + extent for pads, extent in zip(needed, (x.h, x.w)))
    padded = columns(fragment, x.n, width, height, x.c)
    inside = padded.sliced(ROW, top, x.h).sliced(COLUMN, left, x.w)
    turn(fragment, AxisWalk.of(x), inside)
    _extend(fragment, padded.sliced(COLUMN, left, x.w), ROW, *needed[0])
    _extend(fragment, padded, COLUMN, *needed[1])
    rows = _windows(fragment, padded, ROW, sizes[0], steps[0], out[0])
    both = _windows(fragment, rows, COLUMN, sizes[1], steps[1], out[1])
    if max(sizes) == 1:  # moves alone keep -0 and NaN, which a maximum does not
        both = _joined(fragment, both, both)
    turn(fragment, both, AxisWalk.of(y))
    return fragment


def _needed(extent: int, k: int, step: int, reach: tuple[int, int], count: int) -> tuple[int, int]:
    """Rows before and after the map that windows reach; every window must touch the map."""
    before = reach[0]
    after = max(0, (count - 1) * step + k - before - extent)
    if before >= k or (count - 1) * step - before >= extent:
        raise UnsupportedError("a window that lies in the padding altogether", code=Reason.PADDING)
    return before, after


def _extend(fragment: Fragment, walk: AxisWalk, axis: int, before: int, after: int) -> None:
    """Repeat the first and last row: a repeated element of a window never changes its maximum."""
    extent = walk.extents[axis]
    for place, edge in [(i, before) for i in range(before)] + [
        (extent - 1 - i, extent - 1 - after) for i in range(after)
    ]:
        straight(fragment, walk.sliced(axis, edge, 1), walk.sliced(axis, place, 1))


def _windows(fragment: Fragment, walk: AxisWalk, axis: int, k: int, step: int, count: int) -> AxisWalk:
    """The maximum of every window along one axis: tap by tap behind a stride, else by doubling the window."""
    if k == 1:
        return walk.sliced(axis, 0, count, step)
    if step > 1:
        result = walk.sliced(axis, 0, count, step)
        for tap in range(1, k):
            result = _joined(fragment, result, walk.sliced(axis, tap, count, step))
        return result
    covered = 1
    while covered < k:
        shift = min(covered, k - covered)
        length = count + k - covered - shift
        walk = _joined(fragment, walk.sliced(axis, 0, length), walk.sliced(axis, shift, length))
        covered += shift
    return walk


def _joined(fragment: Fragment, a: AxisWalk, b: AxisWalk) -> AxisWalk:
    n, w, h, c = a.extents
    out = columns(fragment, n, w, h, c)
    combine(fragment, "maximum", a, b, out)
    return out
