"""Moving data: transpose, slice, split, concat, reshape as strided copies.

Source: docs/reference/engine-h13.md 6, 13, 14.5 to 14.7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor, four_dimensional
from hexane.codegen.operations import After, Element
from hexane.codegen.plan import Buffer, Dma, Plan, Region
from hexane.codegen.recipes.registry import recipe
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace, slot_init
from hexane.graph.ir import Op
from hexane.rounding import align

AXES = 4


@slot_init
@dataclass(frozen=True, slots=True)
class AxisWalk:
    """A tensor as four axes with byte strides, innermost last; ``strides[3]`` is the element size."""

    buffer: Buffer
    offset: int
    extents: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]
    total: int
    element: int = 2

    @classmethod
    def of(cls, x: Tensor) -> AxisWalk:
        return cls(x.buffer, x.offset, x.shape, (x.batch, x.plane, x.row, x.element), x.batch, x.element)

    def permuted(self, order: Sequence[int]) -> AxisWalk:
        return replace(
            self,
            extents=tuple(self.extents[i] for i in order),  # type: ignore[arg-type]
            strides=tuple(self.strides[i] for i in order),  # type: ignore[arg-type]
        )

    def sliced(self, axis: int, begin: int, size: int, step: int = 1) -> AxisWalk:
        extents, strides = list(self.extents), list(self.strides)
        offset = self.offset + begin * strides[axis]
        extents[axis] = size
        strides[axis] *= step
        return replace(self, offset=offset, extents=tuple(extents), strides=tuple(strides))  # type: ignore[arg-type]

    def doubled(self, axis: int, apart: int) -> AxisWalk:
        """The walk and the same ``apart`` bytes further, side by side along an axis of one element."""
        extents, strides = list(self.extents), list(self.strides)
        extents[axis], strides[axis] = 2, apart
        return replace(self, extents=tuple(extents), strides=tuple(strides))  # type: ignore[arg-type]

    @property
    def aligned(self) -> bool:
        """True where a DMA can walk it: W contiguous, everything else in multiples of 64 bytes."""
        outer = [s for s, e in zip(self.strides[:3], self.extents) if e > 1]
        return self.strides[3] == self.element and not self.offset % 64 and not any(s % 64 for s in outer)


def _dma(walk: AxisWalk, group: int, channel: int, row: int) -> Dma:
    """The walk with its axes in the roles of groups, channels and rows."""
    strides = walk.strides
    wide = strides[group] if walk.extents[group] > 1 else walk.total
    return Dma(walk.buffer, walk.offset, strides[row], strides[channel], wide, wide, walk.element)


def straight(fragment: Fragment, source: AxisWalk, target: AxisWalk) -> Plan:
    """One NE copy whose innermost axis stays innermost; axes are the target's."""
    n, c, h, w = target.extents
    if source.extents != target.extents:
        raise UnsupportedError("a copy between different extents", code=Reason.BROADCAST)
    if not (source.aligned and target.aligned):
        raise UnsupportedError("a copy to or from a column that is not a multiple of 32 pixels", code=Reason.LAYOUT)
    plan = tasks.copy_plan(fragment.target, c, h, w, groups=n, element=Element.of(source.element))
    if source.element == 1:
        plan = plan.writing(element=Element.UINT8)
    plan = plan.reading(dma=_dma(source, 0, 1, 2)).writing(dma=_dma(target, 0, 1, 2))
    plan, end = fragment.bring(plan, 0)
    plan = tasks.streams_out(fragment.target, plan, end)
    if n > 1:
        plan = plan.inferred("a copy with groups")
    return fragment.add(plan)


def turned(fragment: Fragment, source: AxisWalk, order: Sequence[int], target: AxisWalk) -> Plan:
    """One NE copy with turned output: the target's innermost axis is not the source's (§6, §8.2).

    ``order[i]`` is the source axis that becomes axis i of the target. The source's innermost axis W and the axis that
    takes its place run as W and C; the other two as H and groups.
    """
    inner = order[3]
    rest = [axis for axis in range(4) if axis not in (3, inner)]
    # groups: the outer one of the two others, unless it is the only one that is larger than 1
    group, row = rest
    if source.extents[row] == 1 and source.extents[group] > 1:
        group, row = row, group
    place = {axis: i for i, axis in enumerate(order)}
    groups = source.extents[group]
    if source.element != 2:
        raise UnsupportedError("a turned copy of 8-bit data", code=Reason.ELEMENT_TYPE)
    if not (source.aligned and target.aligned):
        raise UnsupportedError("a copy to or from a column that is not a multiple of 32 pixels", code=Reason.LAYOUT)
    plan = tasks.copy_plan(
        fragment.target, source.extents[inner], source.extents[row], source.extents[3], groups=groups, out_trans=True
    )
    plan = plan.reading(dma=_dma(source, group, inner, row)).writing(
        dma=_dma(target, place[group], place[3], place[row])
    )
    plan, end = fragment.bring(plan, 0)
    channel = align(2 * plan.c, 16)
    block = plan.w * channel
    if plan.tile == plan.hout and end + plan.h * block <= fragment.limits.l2_bytes:
        plan = plan.streaming(Region(end, channel, block, block, block), after=tasks.result_after(plan))
    else:
        plan = tasks.streams_out(fragment.target, plan, end, explicit=False)
    if groups > 1:
        plan = plan.inferred("a copy with groups")
    return fragment.add(plan)


def permute(fragment: Fragment, source: AxisWalk, order: Sequence[int], target: AxisWalk) -> None:
    """``target`` axis i = ``source`` axis ``order[i]``; axes of one element may stand anywhere."""
    if source.extents[order[3]] == 1 and source.extents[3] == 1:
        order = _keep_inner(order)
    if order[3] == 3:
        straight(fragment, source.permuted(order), target)
    else:
        turned(fragment, source, order, target)


def _keep_inner(order: Sequence[int]) -> Sequence[int]:
    """Both innermost axes have one element: exchange them, so that no turn is needed."""
    at = list(order).index(3)
    fixed = list(order)
    fixed[at], fixed[3] = fixed[3], 3
    return fixed


@recipe("transpose")
def transpose(ops: Sequence[Op], context: Context) -> Fragment:
    """transpose: one strided neural engine copy, with turned output when the last axis moves."""
    (op,) = ops
    x, y = context.tensor(op.arg("x")), context.tensor(op.output)
    rank = len(op.arg("x").shape)
    perm = [p % rank for p in op.arg("perm")]
    if rank > AXES:
        raise UnsupportedError(f"a transposition of rank {rank}", code=Reason.RANK)
    shift = AXES - rank
    order = [*range(shift), *(p + shift for p in perm)]
    fragment = Fragment(context)
    permute(fragment, AxisWalk.of(x), order, AxisWalk.of(y))
    return fragment


# -- slices ----------------------------------------------------------------------------------------------------------


def slice_to(fragment: Fragment, x: Tensor, begin: Sequence[int], step: Sequence[int], y: Tensor) -> None:
    """y = x[begin : : step] over the four axes."""
    walk = AxisWalk.of(x)
    for axis in range(3):
        walk = walk.sliced(axis, begin[axis], y.shape[axis], step[axis])
    if step[3] == 1 and begin[3] * x.element % 64 == 0:
        straight(fragment, walk.sliced(3, begin[3], y.w), AxisWalk.of(y))
        return
    # columns that no DMA reaches: turn, so that they become planes, and turn back (§14.7)
    n, c, h = y.n, y.c, y.h
    line = align(2 * c, 64)
    buffer = fragment.workspace(n * h * x.w * line)
    plane = h * line
    middle = AxisWalk(buffer, 0, (n, x.w, h, c), (x.w * plane, plane, line, 2), x.w * plane)
    turned(fragment, replace(walk, extents=(n, c, h, x.w)), (0, 3, 2, 1), middle)
    turned(fragment, middle.sliced(1, begin[3], y.w, step[3]), (0, 3, 2, 1), AxisWalk.of(y))


@recipe("slice_by_size", "slice_by_index")
def slices(ops: Sequence[Op], context: Context) -> Fragment:
    """slice_by_size, slice_by_index: one strided copy; columns at other than multiples of 32 by turning twice."""
    (op,) = ops
    x, y = context.tensor(op.arg("x")), op.output
    shape = op.arg("x").shape
    begin, step = slice_bounds(op, shape)
    extents = tuple(len(range(b, e, s)) for (b, e), s in zip(begin, step))
    out = replace_shape(context.tensor(y), extents)
    fragment = Fragment(context)
    lead = [0] * (AXES - len(shape))
    starts, steps = [*lead, *(b for b, _ in begin)], [*(1 for _ in lead), *step]
    slice_to(fragment, x, starts[-AXES:], steps[-AXES:], out)  # of rank 5 the leading axis of one element is dropped
    return fragment


@recipe("slice_update")
def slice_update(ops: Sequence[Op], context: Context) -> Fragment:
    """slice_update: a copy of the whole, none of a state's own contents, and one of the new part to its place."""
    (op,) = ops
    value, part = op.inputs["x"], op.inputs["update"]
    bounds, steps = slice_bounds(op, value.shape)
    if any(step != 1 for step in steps):
        raise UnsupportedError("an update of every other element", code=Reason.LAYOUT)
    fragment, out = Fragment(context), context.tensor(op.output)
    lead = [(0, 1)] * (AXES - len(bounds))
    axes = [*lead, *bounds][-AXES:]
    first, end = axes[-1]
    if first * out.element % 64 or (end < out.w and end * out.element % 64):
        raise UnsupportedError("an update of columns between multiples of 32", code=Reason.LAYOUT)
    x = fragment.plain_constant(value.data, out.element) if value.is_constant else context.tensor(value)
    new = fragment.plain_constant(part.data, out.element) if part.is_constant else context.tensor(part)
    target = AxisWalk.of(out)
    if x.buffer != out.buffer:
        straight(fragment, AxisWalk.of(x), target)
    for axis, (begin, stop) in enumerate(axes):
        target = target.sliced(axis, begin, stop - begin)
    straight(fragment, AxisWalk.of(new), target)
    if x.buffer == out.buffer:
        fragment.inferred("a state that is input and output")
    return fragment


def slice_bounds(op: Op, shape: tuple[int, ...]) -> tuple[list[tuple[int, int]], list[int]]:
    """((begin, end) per axis, step per axis) with negative indices and masks resolved."""
    begin = op.arg("begin")
    if not isinstance(begin, (tuple, list)):
        raise UnsupportedError("a slice whose bounds are computed", code=Reason.COMPUTED)
    if op.type == "slice_by_size":
        size = op.arg("size")
        starts = [b + e if b < 0 else b for b, e in zip(begin, shape)]
        return [(b, e if s == -1 else b + s) for b, s, e in zip(starts, size, shape)], [1] * len(shape)
    rank = len(shape)
    step = list(op.arg("stride") or [1] * rank)
    if any(s < 1 for s in step):
        raise UnsupportedError("a slice with negative steps", code=Reason.LAYOUT)
    begin_mask, end_mask = (list(op.arg(n) or [False] * rank) for n in ("begin_mask", "end_mask"))
    squeeze = list(op.arg("squeeze_mask") or [False] * rank)
    bounds = []
    for axis, extent in enumerate(shape):
        b, e = begin[axis], op.arg("end")[axis]
        b = 0 if begin_mask[axis] else max(0, b + extent) if b < 0 else min(b, extent)
        e = extent if end_mask[axis] else e + extent if e < 0 else min(e, extent)
        bounds.append((b, b + 1) if squeeze[axis] else (b, e))
    return bounds, step


def replace_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The tensor under another shape with the same bytes: the same number of rows of the same width."""
    n, c, h, w = four_dimensional(shape)
    view = Tensor(tensor.buffer, n, c, h, w, tensor.element, tensor.offset)
    if not same_bytes(view.shape, tensor.shape):
        raise UnsupportedError("a result whose axes are dropped and whose layout changes", code=Reason.LAYOUT)
    return view


def same_bytes(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """True where two 4-D shapes of as many elements stand in the same bytes: rows are dense, so the width decides."""
    return prod(a) == prod(b) and a[3] == b[3]


@recipe("split")
def split(ops: Sequence[Op], context: Context) -> Fragment:
    """split: one copy per part."""
    (op,) = ops
    x = context.tensor(op.arg("x"))
    rank = len(op.arg("x").shape)
    axis = op.arg("axis") % rank + AXES - rank
    fragment, at = Fragment(context), 0
    for result in op.outputs:
        part = context.tensor(result)
        begin = [0] * AXES
        begin[axis] = at
        slice_to(fragment, x, begin, [1] * AXES, part)
        at += part.shape[axis]
    return fragment


@recipe("sliding_windows")
def sliding_windows(ops: Sequence[Op], context: Context) -> Fragment:
    """sliding_windows: one copy whose source walks through the windows, which overlap."""
    (op,) = ops
    value = op.arg("x")
    x, y = context.tensor(value), context.tensor(op.output)
    axis, step = op.arg("axis") % len(value.shape), op.arg("stride")
    lead = len(value.shape) - AXES
    if lead > 0:
        raise UnsupportedError(f"windows of rank {len(value.shape)}", code=Reason.RANK)
    strides = [x.batch, x.plane, x.row, x.element][-lead:]
    strides[axis : axis + 1] = [step * strides[axis], strides[axis]]
    extents = list(op.output.shape)
    while len(extents) > AXES and extents[0] == 1:
        extents, strides = extents[1:], strides[1:]
    fill = AXES - len(extents)
    strides = [stride if extent > 1 else x.bytes for extent, stride in zip(extents[:-1], strides)] + strides[-1:]
    if any(stride % context.limits.dma_granule_bytes for stride in strides[:-1]):
        raise UnsupportedError("windows that begin between the granules of memory", code=Reason.LAYOUT)
    source = AxisWalk(
        x.buffer,
        x.offset,
        (1,) * fill + tuple(extents),  # type: ignore[arg-type]
        (x.bytes,) * fill + tuple(strides),  # type: ignore[arg-type]
        x.bytes,
        x.element,
    )
    fragment = Fragment(context)
    straight(fragment, source, AxisWalk.of(y))
    fragment.inferred("windows that overlap")
    return fragment


@recipe("concat")
def concat(ops: Sequence[Op], context: Context) -> Fragment:
    """concat: one copy per input to its place; columns at other than multiples of 32 by turning."""
    (op,) = ops
    if op.arg("interleave"):
        raise UnsupportedError("an interleaved concat", code=Reason.LAYOUT)
    values = op.inputs["values"]
    out = context.tensor(op.output)
    rank = len(op.output.shape)
    axis = op.arg("axis") % rank + AXES - rank
    fragment = Fragment(context)
    parts = [
        fragment.plain_constant(value.data, out.element) if value.is_constant else context.tensor(value)
        for value in values
    ]
    starts, at = [], 0
    for part in parts:
        starts.append(at)
        at += part.shape[axis]
    if axis < 3 or all(start * out.element % 64 == 0 for start in starts):
        target = AxisWalk.of(out)
        for part, start in zip(parts, starts):
            straight(fragment, AxisWalk.of(part), target.sliced(axis, start, part.shape[axis]))
        return fragment
    n, c, h, _ = out.shape
    line = align(2 * c, 64)
    plane = h * line
    middle = AxisWalk(
        fragment.workspace(n * out.w * plane), 0, (n, out.w, h, c), (out.w * plane, plane, line, 2), out.w * plane
    )
    for part, start in zip(parts, starts):
        turned(fragment, AxisWalk.of(part), (0, 3, 2, 1), middle.sliced(1, start, part.w))
    turned(fragment, middle, (0, 3, 2, 1), AxisWalk.of(out))
    return fragment


@recipe("reshape", "squeeze", "expand_dims", "flatten2d")
def reshape(ops: Sequence[Op], context: Context) -> Fragment:
    """reshape, squeeze, expand_dims: one copy where rows stay whole; else rows are joined, cut or turned."""
    (op,) = ops
    fragment = Fragment(context)
    if op.inputs["x"].is_constant:
        raise UnsupportedError("a reshape of a constant", code=Reason.CONSTANT)
    relayout(fragment, context.surface(op.inputs["x"]), context.surface(op.output))
    return fragment


def relayout(fragment: Fragment, x: Tensor, y: Tensor) -> None:
    """y = the elements of x in order, under another shape."""
    if same_bytes(x.shape, y.shape):
        view = replace(y, n=x.n, c=x.c, h=x.h, w=x.w)
        straight(fragment, AxisWalk.of(x), AxisWalk.of(view))
        return
    if x.element != 2:
        raise UnsupportedError("a reshape of 8-bit data that cuts rows", code=Reason.ELEMENT_TYPE)
    if x.w == 1 and y.w > 1:
        _gather_columns(fragment, x, y)
    elif y.w == 1 and x.w > 1:
        _scatter_columns(fragment, x, y)
    else:
        _join_or_cut(fragment, x, y)


def _gather_columns(fragment: Fragment, x: Tensor, y: Tensor) -> None:
    """Rows of one pixel become rows of ``y.w``: channels turned into a row (§6)."""
    rows = y.n * y.c * y.h
    source = AxisWalk(
        x.buffer, x.offset, (1, rows, y.w, 1), (rows * y.w * x.row, y.w * x.row, x.row, 2), rows * y.w * x.row
    )
    target = AxisWalk(y.buffer, y.offset, (1, rows, 1, y.w), (rows * y.row, y.row, y.row, 2), rows * y.row)
    turned(fragment, source, (0, 1, 3, 2), target)


def _scatter_columns(fragment: Fragment, x: Tensor, y: Tensor) -> None:
    """The reverse: each element gets a row of its own."""
    rows = x.n * x.c * x.h
    source = AxisWalk(x.buffer, x.offset, (1, rows, 1, x.w), (rows * x.row, x.row, x.row, 2), rows * x.row)
    total = rows * x.w * y.row
    target = AxisWalk(y.buffer, y.offset, (1, rows, x.w, 1), (total, x.w * y.row, y.row, 2), total)
    turned(fragment, source, (0, 1, 3, 2), target)


def _join_or_cut(fragment: Fragment, x: Tensor, y: Tensor) -> None:
    """Whole rows joined or cut at multiples of 32 pixels by DMA strides, of 8 pixels by strides in L2."""
    narrow, wide = min(x.w, y.w), max(x.w, y.w)
    if wide % narrow:
        raise UnsupportedError("a reshape that cuts rows", hint="the host moves the data", code=Reason.LAYOUT)
    rows, pieces = x.n * x.c * x.h * x.w // wide, wide // narrow
    if narrow % 32 == 0:
        parts = [_pieces(t, rows, pieces, narrow, t.w == wide) for t in (x, y)]
        straight(fragment, parts[0], parts[1])
        return
    if narrow % 8 or rows * wide * 2 + l2.RING_ROOM > fragment.limits.l2_bytes:
        raise UnsupportedError("a reshape that cuts rows", hint="the host moves the data", code=Reason.LAYOUT)
    _through_l2(fragment, x, y, rows, pieces, narrow)


def _pieces(t: Tensor, rows: int, pieces: int, narrow: int, is_wide: bool) -> AxisWalk:
    """The tensor as [rows][pieces][narrow]."""
    line = t.row if is_wide else t.row * pieces
    step = 2 * narrow if is_wide else t.row
    return AxisWalk(t.buffer, t.offset, (1, rows, pieces, narrow), (rows * line, line, step, 2), rows * line)


def _through_l2(fragment: Fragment, x: Tensor, y: Tensor, rows: int, pieces: int, narrow: int) -> None:
    """In under one shape, out under the other: L2 strides are multiples of 16 bytes (§7.1)."""
    wide = narrow * pieces
    joins = x.w == narrow
    block = 2 * wide

    def walk(t: Tensor, is_wide: bool) -> tuple[int, int, Dma]:
        if is_wide:
            total = rows * t.row
            return 1, wide, Dma(t.buffer, t.offset, total, t.row, total, total)
        total = rows * pieces * t.row
        return pieces, narrow, Dma(t.buffer, t.offset, t.row, pieces * t.row, total, total)

    h, w, source = walk(x, not joins)
    load = tasks.copy_plan(fragment.target, rows, h, w).reading(dma=source)
    load = tasks.choose_shape(fragment.target, load)
    size = rows * block
    load, _ = tasks.ne_source(fragment.target, load, size)
    region = Region(0, block, 2 * w if h > 1 else size, size)
    note = "one region of L2 under two shapes"
    fragment.stay(load.inferred(note), region)
    h, w, target = walk(y, joins)
    store = tasks.copy_plan(fragment.target, rows, h, w).writing(dma=target)
    store = tasks.choose_shape(fragment.target, store)
    store = tasks.resident(store, Region(0, block, 2 * w if h > 1 else size, size), After.NE_RESULT).sending(size)
    fragment.add(store.inferred(note))
