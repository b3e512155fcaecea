"""Pixels to channels and back, repeated pixels, channel shuffles: copies only.

Source: docs/reference/engine-h13.md 14.6 to 14.9.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor, four_dimensional
from hexane.codegen.geometry import ceil_log2, largest_shape, transposing_shape
from hexane.codegen.operations import After
from hexane.codegen.plan import Dma, Region
from hexane.codegen.recipes.columns import columns, turn
from hexane.codegen.recipes.registry import recipe, x_and_result
from hexane.codegen.recipes.shape import AxisWalk, permute, same_bytes, straight
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.graph.ir import Op
from hexane.lowering.fusion import follows
from hexane.rounding import ceil_div

LANES, LINE, TILE = 8, 64, 16
"""Elements side by side in scratch, bytes of a line that one element has for itself, rows of a tile of such lines."""
CHANNEL, COLUMN, ROW = 1, 1, 2


def _phases(op: Op, wide: int) -> Iterator[tuple[int, int, int, int]]:
    """(row, column, first channel, channel step) of each pixel of a block; ``wide`` channels after the shuffle."""
    names = {"pixel_shuffle": "upscale_factor", "pixel_unshuffle": "downscale_factor"}
    factor = op.arg(names.get(op.type, "block_size"))
    for i in range(factor):
        for j in range(factor):
            at = i * factor + j
            yield (i, j, at, factor * factor) if op.type.startswith("pixel") else (i, j, at * wide, 1)


@recipe("pixel_shuffle", "depth_to_space")
def to_pixels(ops: Sequence[Op], context: Context) -> Fragment:
    """pixel_shuffle, depth_to_space: a turned copy per pixel of a block, one turned copy back."""
    (op,) = ops
    x, y = x_and_result(op, context)
    fragment = Fragment(context)
    factor = y.h // x.h
    if op.type == "depth_to_space" and _alone(context) and _stays(x, context):
        _joined(fragment, x, y, factor)
        return fragment
    transposed = columns(fragment, y.n, y.w, y.h, y.c)
    for i, j, first, step in _phases(op, y.c):
        place = transposed.sliced(COLUMN, j, x.w, factor).sliced(ROW, i, x.h, factor)
        turn(fragment, AxisWalk.of(x).sliced(CHANNEL, first, y.c, step), place)
    turn(fragment, transposed, AxisWalk.of(y))
    return _in_turns(fragment)


@recipe("pixel_unshuffle", "space_to_depth")
def to_channels(ops: Sequence[Op], context: Context) -> Fragment:
    """pixel_unshuffle, space_to_depth: one turned copy, then a turned copy back per pixel of a block."""
    (op,) = ops
    x, y = x_and_result(op, context)
    fragment = Fragment(context)
    factor = x.h // y.h
    if op.type == "space_to_depth" and _alone(context) and x.n == 1 and y.w % LANES == 0:
        _apart(fragment, x, y, factor)
        return fragment
    transposed = columns(fragment, x.n, x.w, x.h, x.c)
    turn(fragment, AxisWalk.of(x), transposed)
    for i, j, first, step in _phases(op, x.c):
        pixels = transposed.sliced(COLUMN, j, y.w, factor).sliced(ROW, i, y.h, factor)
        turn(fragment, pixels, AxisWalk.of(y).sliced(CHANNEL, first, x.c, step))
    return _in_turns(fragment)


def _in_turns(fragment: Fragment) -> Fragment:
    if fragment.target.choices.lone_elements:
        fragment.inferred("pixels moved by turned copies, where Apple's compiler gives each a line of its own")
    return fragment


def _alone(context: Context) -> bool:
    """True where the target's compiler gives elements lines of their own, in the dialect that writes its programs."""
    return context.choices.lone_elements and context.policy.between


def _stays(x: Tensor, context: Context) -> bool:
    """True where all rows of an image fit L2 beside a tile of one channel and a result's buffer."""
    line = l2.channel_stride(x.w)
    return x.n == 1 and (x.h * x.c + TILE) * line + l2.RING_ROOM <= context.limits.l2_bytes


def _apart(fragment: Fragment, x: Tensor, y: Tensor, factor: int) -> None:
    """As Apple's compiler for M4: elements apart in lines of their own, columns of blocks interleaved, and back."""
    target, across = fragment.target, factor * x.c
    alone = Dma(fragment.workspace(LINE * x.c * x.w * x.h), 0, x.w * x.c * LINE, x.c * LINE, LINE, LINE)
    step = ceil_div(y.w, LANES) * LINE
    columns = Dma(fragment.workspace(x.h * across * step), 0, across * step, LINE, step, step, interleave=LANES)
    spread = tasks.copy_plan(target, 1, x.h, x.w, groups=x.c, out_trans=True)
    spread = spread.reading(dma=replace(x.dma(), group=x.plane)).writing(dma=alone)
    spread = tasks.choose_shape(target, spread).but(tile=min(x.h, TILE))
    line = l2.channel_stride(min(x.w, 32))
    spread = tasks.by_dma(spread, Region(0, line, line, line, line))
    spread = tasks.streams_out(target, spread, spread.tile * line)
    fragment.add(spread)
    for c, h, groups, out_trans, source, result in (
        (y.w, x.h, across, False, replace(alone, plane=across * LINE, depth=LINE), columns),
        (y.w, y.h, factor * across, True, replace(columns, row=factor * columns.row), replace(y.dma(), group=y.plane)),
    ):
        plan = (
            tasks.copy_plan(target, c, h, 1, groups=groups, out_trans=out_trans).reading(dma=source).writing(dma=result)
        )
        plan = tasks.choose_shape(target, plan)
        plan, end = tasks.ne_source(target, plan, 0, after=After.NOTHING if out_trans else After.NE_RESULT)
        plan = tasks.streams_out(target, plan, end)
        if out_trans:
            line = l2.channel_stride(y.w)
            plan = plan.streaming(Region(end, line, line, line, line))
        fragment.add(plan)


def _joined(fragment: Fragment, x: Tensor, y: Tensor, factor: int) -> None:
    """As Apple's compiler for M4: rows of all channels in L2, whose lines are the result's, pixels apart, and back."""
    target, across = fragment.target, factor * y.c
    line = l2.channel_stride(x.w)
    lines = Region(0, line, x.c * line, line, line)
    size = x.h * lines.row
    load = tasks.copy_plan(target, 1, x.h, x.w, groups=x.c).reading(dma=replace(x.dma(), group=x.plane))
    s = largest_shape(x.w, x.h, narrow=True)
    load = load.but(shape=(s, s, s), stack_log2=min(ceil_log2(TILE >> s), tasks.MOST_STACK_LOG2))
    load, _ = tasks.ne_source(target, load, size)
    fragment.stay(load, lines)
    alone = Dma(fragment.workspace(LINE * across * x.w * y.h), 0, x.w * across * LINE, across * LINE, LINE, LINE)
    spread = tasks.copy_plan(target, 1, y.h, x.w, groups=across, out_trans=True).writing(dma=alone)
    spread = spread.but(shape=transposing_shape(target, 1, x.w, y.h, interleaved=False), tile=min(y.h, TILE))
    spread = tasks.resident(spread, Region(0, line, across * line, line, line), After.NE_RESULT)
    fragment.send(spread, size, after=After.NOTHING)
    back = tasks.copy_plan(target, y.w, y.h, 1, groups=y.c, out_trans=True)
    back = back.reading(dma=replace(alone, plane=y.c * LINE)).writing(dma=replace(y.dma(), group=y.plane))
    back = tasks.choose_shape(target, back)
    back, _ = tasks.ne_source(target, back, 0, after=After.NOTHING)
    back = back.but(tile=tasks.patch_row(back))
    fragment.send(back, back.tile * back.source.region.row, after=After.NOTHING)


@recipe("upsample_nearest_neighbor")
def repeat_pixels(ops: Sequence[Op], context: Context) -> Fragment:
    """upsample_nearest_neighbor by whole factors: a copy per repetition of columns, then of rows."""
    (op,) = ops
    x, y = x_and_result(op, context)
    tall, wide = y.h // x.h, y.w // x.w
    if (x.h * tall, x.w * wide) != (y.h, y.w):
        raise UnsupportedError(
            f"a map of {x.h} x {x.w} resized to {y.h} x {y.w}, which is no whole factor", code=Reason.EXTENT
        )
    fragment = Fragment(context)
    if wide == 1:
        for i in range(tall):
            straight(fragment, AxisWalk.of(x), AxisWalk.of(y).sliced(ROW, i, x.h, tall))
        return fragment
    transposed = columns(fragment, x.n, y.w, x.h, x.c)
    for j in range(wide):
        turn(fragment, AxisWalk.of(x), transposed.sliced(COLUMN, j, x.w, wide))
    for i in range(tall):
        turn(fragment, transposed, AxisWalk.of(y).sliced(ROW, i, x.h, tall))
    return fragment


def _moved(op: Op, context: Context) -> tuple[Op, ...] | None:
    """reshape, transpose, reshape, where nothing else takes what is between."""
    transpose = follows(op, "transpose")
    last = None if transpose is None else follows(transpose, "reshape")
    return None if transpose is None or last is None else (op, transpose, last)


@recipe("reshape", match=_moved, rank=5)
def shuffle(ops: Sequence[Op], context: Context) -> Fragment:
    """reshape, transpose, reshape that keep rows whole (a channel shuffle): one strided copy."""
    first, transpose, last = ops
    x, y = context.tensor(first.arg("x")), context.tensor(last.output)
    middle, outer = transpose.arg("x").shape, transpose.output.shape
    if len(middle) > 4 or not same_bytes(four_dimensional(middle), x.shape):
        raise UnsupportedError("a reshape that cuts rows", code=Reason.LAYOUT)
    if not same_bytes(four_dimensional(outer), y.shape):
        raise UnsupportedError("a reshape that cuts rows", code=Reason.LAYOUT)
    rank = len(middle)
    shift = 4 - rank
    order = [*range(shift), *(p % rank + shift for p in transpose.arg("perm"))]
    fragment = Fragment(context)
    permute(fragment, AxisWalk.of(_seen(x, middle)), order, AxisWalk.of(_seen(y, outer)))
    return fragment


def _seen(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The same rows under other outer axes."""
    n, c, h, w = four_dimensional(shape)
    return replace(tensor, n=n, c=c, h=h, w=w)
