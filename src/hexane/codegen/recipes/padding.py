"""Padding as copies into a filled map (docs/reference/engine-h13.md 14.5)."""

from __future__ import annotations

from collections.abc import Sequence

from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment
from hexane.codegen.recipes.columns import columns, constant_line, fill, turn
from hexane.codegen.recipes.mirror import reverse
from hexane.codegen.recipes.registry import need_fp16, recipe
from hexane.codegen.recipes.shape import AxisWalk, straight
from hexane.errors import Reason, UnsupportedError
from hexane.graph.ir import Op
from hexane.graph.ops.join import PAD_MODES

HEIGHT, WIDTH = 2, 3
COLUMN, ROW = 1, 2


@recipe("pad")
def pad(ops: Sequence[Op], context: Context) -> Fragment:
    """pad: the result filled from one line, the map copied into it; columns by turning, edges and mirrors by copies."""
    (op,) = ops
    value = op.arg("x")
    need_fp16(value)
    widths = _widths(op, len(value.shape))
    mode, number = op.arg("mode"), op.arg("constant_val")
    x, y = context.tensor(value), context.tensor(op.output)
    if any(min(pair) < 0 for pair in widths):
        raise UnsupportedError("a pad that cuts", code=Reason.PADDING)
    fragment = Fragment(context)
    (h0, h1), (w0, w1) = widths[HEIGHT], widths[WIDTH]
    if mode != "constant":
        if any(map(any, widths[:2])):
            raise UnsupportedError(f"a {mode} pad of channels", code=Reason.PADDING)
        transposed = columns(fragment, x.n, y.w, y.h, x.c)
        turn(fragment, AxisWalk.of(x), transposed.sliced(COLUMN, w0, x.w).sliced(ROW, h0, x.h))
        continue_lines(fragment, transposed.sliced(COLUMN, w0, x.w), ROW, h0, h1, mirror=mirrors(mode))
        continue_lines(fragment, transposed, COLUMN, w0, w1, mirror=mirrors(mode))
        turn(fragment, transposed, AxisWalk.of(y))
        return fragment
    if not (w0 or w1):
        inner = _surrounded(fragment, AxisWalk.of(y), widths[:3], number)
        straight(fragment, AxisWalk.of(x), inner)
        return fragment
    inner = _surrounded(fragment, AxisWalk.of(y), widths[:2], number)
    transposed = columns(fragment, x.n, y.w, y.h, x.c)
    turn(fragment, AxisWalk.of(x), _surrounded(fragment, transposed, [(0, 0), widths[WIDTH], widths[HEIGHT]], number))
    turn(fragment, transposed, inner)
    return fragment


def _surrounded(fragment: Fragment, walk: AxisWalk, widths: Sequence[tuple[int, int]], number: float) -> AxisWalk:
    """Fill the slabs before and behind a map along its outer axes; what is left of the walk for the map itself."""
    if not any(map(any, widths)):
        return walk
    line = constant_line(fragment, walk.extents[3], number)
    whole = not fragment.context.on.border_fills
    if whole:
        fill(fragment, walk, line)
    for axis, (before, after) in enumerate(widths):
        extent = walk.extents[axis]
        for begin, count in ((0, before), (extent - after, after)):
            if count and not whole:
                fill(fragment, walk.sliced(axis, begin, count), line)
        walk = walk.sliced(axis, before, extent - before - after)
    return walk


def _widths(op: Op, rank: int) -> list[tuple[int, int]]:
    """(before, after) for N, C, H, W."""
    flat = op.arg("pad")
    if not isinstance(flat, tuple):
        raise UnsupportedError("a pad whose widths are computed", code=Reason.COMPUTED)
    if rank > 4:
        raise UnsupportedError(f"a pad of rank {rank}", code=Reason.RANK)
    flat = [0] * (8 - len(flat)) + list(flat)
    return [(flat[2 * i], flat[2 * i + 1]) for i in range(4)]


def mirrors(mode: str) -> bool:
    """True where a pad continues with the mirror image, the edge once, instead of the edge repeated."""
    if PAD_MODES[mode] == "symmetric":
        raise UnsupportedError("a pad with the mirror image, the edge twice", code=Reason.PADDING)
    return PAD_MODES[mode] == "reflect"


def continue_lines(fragment: Fragment, walk: AxisWalk, axis: int, before: int, after: int, *, mirror: bool) -> None:
    """Rows outside the map: the edge repeated, or the rows inside mirrored at the edge."""
    last = walk.extents[axis] - 1 - after
    if mirror and max(before, after) > last - before:
        raise UnsupportedError("a mirrored pad as long as the map", code=Reason.PADDING)
    inside = walk.sliced(axis, before, last + 1 - before)
    free = [i for i in (0, COLUMN, ROW) if i != axis and walk.extents[i] == 1]
    apart = inside.extents[axis] - 2 - before  # of the lines that the two ends mirror
    if mirror and before == after and len(free) == 2 and apart >= 0:  # both ends at once
        ends = inside.sliced(axis, 0, before + 2).doubled(free[0], apart * walk.strides[axis])
        both = walk.sliced(axis, 0, before).doubled(free[0], (last + 1) * walk.strides[axis])
        reverse(fragment, ends, axis, 1, both)
        return
    for edge, count, target in ((0, before, 0), (last - before, after, last + 1)):
        if not count:
            continue
        outside = walk.sliced(axis, target, count)
        if mirror:
            reverse(fragment, inside, axis, 1 if target == 0 else edge - count, outside)
        else:
            straight(fragment, inside.sliced(axis, edge, count, 0), outside)
            fragment.change(-1, note="one line read for every row")
