"""Two operands in the planar engine: same shape, broadcast, constants (docs/reference/engine-h13.md 8.3, 8.4, 13)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor, four_dimensional, narrower_views
from hexane.codegen.geometry import pe_patch
from hexane.codegen.operations import BINARY, COPY, SCALE_SHIFT, After, Axes, Planar
from hexane.codegen.plan import OWN_DMA, Dma, Operand, Plan, Region
from hexane.codegen.recipes import direct, unary
from hexane.codegen.recipes.registry import constant, need_fp16, recipe
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.lowering.fusion import follows
from hexane.rounding import align

if TYPE_CHECKING:
    from hexane.codegen.targets import Target
    from hexane.graph.ir import Op, Value

COMMUTATIVE = ("add", "mul", "maximum", "minimum")


def with_relu(op: Op, context: Context) -> tuple[Op, ...] | None:
    """The op, with a relu behind it when nothing else takes its result."""
    relu = follows(op, "relu")
    return (op, relu) if relu is not None else (op,)


def shift_and_scale(op: Op, context: Context) -> tuple[Op, ...] | None:
    """A sum and the product behind it, each with a number per channel."""
    product = follows(op, "mul")
    if product is None or not context.on.batch_norms or op.output.shape != product.output.shape:
        return None
    return None if any(_channel_numbers(step) is None for step in (op, product)) else (op, product)


def _channel_numbers(op: Op) -> np.ndarray | None:
    """The constant operand of a sum or product, where it varies along the channels alone."""
    data = next((array for array in (constant(op.arg(name)) for name in ("x", "y")) if array is not None), None)
    return None if data is None or data.size == 1 or single_axis(data) != "c" else data.reshape(-1)


@recipe("add", match=shift_and_scale, rank=2)
def batch_norm(ops: Sequence[Op], context: Context) -> Fragment:
    """(x + shift) * scale by channel: one planar task, as Apple's batch norm is on M5."""
    x = next(op for op in (ops[0].arg("x"), ops[0].arg("y")) if constant(op) is None)
    need_fp16(x)
    shift, scale = (_channel_numbers(op) for op in ops)
    assert shift is not None and scale is not None
    fragment = _rows_onto(context.tensor(x), context.tensor(ops[1].output), (shift, scale, "add"), "c", context)
    fragment.change(-1, note="shift and scale in one task, as on M5")
    return fragment


def planar(op: str, big: Tensor, relu: bool) -> Plan:
    """A two-operand task over ``big``'s dimensions."""
    operation = BINARY[op].with_relu(relu)
    return Plan(pe=operation, w=big.w, h=big.h, c=big.c, groups=big.n)


@recipe("add", "sub", "mul", "maximum", "minimum", match=with_relu, shrinks=True)
def elementwise(ops: Sequence[Op], context: Context) -> Fragment:
    """add, sub, mul, maximum, minimum of two computed tensors, with or without relu: planar engine."""
    op = ops[0]
    x, y = op.inputs["x"], op.inputs["y"]
    need_fp16(x, y)
    relu = len(ops) == 2
    out = context.tensor(ops[-1].output)
    if x.is_constant and y.is_constant:
        raise UnsupportedError("both operands are constants", hint="fold them before compiling", code=Reason.CONSTANT)
    if x.is_constant or y.is_constant:
        return _with_constant(op, out, relu, context)
    a, b = context.tensor(x), context.tensor(y)
    if a.shape == b.shape:
        fragment = Fragment(context)
        fragment.add(two_surfaces(context.target, op.type, a, b, out, relu))
        return fragment
    return broadcast(op.type, a, b, out, relu, Fragment(context))


def relu_residual(op: Op, context: Context) -> tuple[Op, ...] | None:
    """x + relu(x), where nothing else takes the relu."""
    add = follows(op, "add")
    if add is None:
        return None
    other = add.arg("y") if add.arg("x") is op.output else add.arg("x")
    return (op, add) if other is op.inputs["x"] and add.arg("x") is not add.arg("y") else None


@recipe("relu", match=relu_residual, rank=5)
def add_own_relu(ops: Sequence[Op], context: Context) -> Fragment:
    """x + relu(x): one planar task that clamps its second operand."""
    need_fp16(ops[0].arg("x"))
    x, out = context.tensor(ops[0].arg("x")), context.tensor(ops[1].output)
    fragment = Fragment(context)
    fragment.add(two_surfaces(context.target, "add", x, x, out, False).computing(relu_second=True))
    return fragment


def two_surfaces(target: Target, op: str, a: Tensor, b: Tensor, out: Tensor, relu: bool) -> Plan:
    """Both operands by DMA: source 1 at 0, source 2 behind it, the result behind both (§7.3)."""
    for first, second, result in chain([(a, b, out)], narrower_views(a, b, out)):
        try:
            return _two_surfaces(target, op, first, second, result, relu)
        except UnsupportedError as error:
            refused = error
    raise refused


def _two_surfaces(target: Target, op: str, a: Tensor, b: Tensor, out: Tensor, relu: bool) -> Plan:
    plan = planar(op, out, relu).reading(dma=a.dma()).against(dma=b.dma()).writing(dma=out.dma())
    return side_by_side(target, plan, same=a.buffer == b.buffer and a.offset == b.offset)


def side_by_side(target: Target, plan: Plan, *, same: bool) -> Plan:
    """A planar task whose two operands of DMA lie one behind the other in L2, ``same`` where they are one tensor."""
    plan, end = tasks.pe_source(plan, 0)
    base = end if same else l2.second_operand_base(end)
    plan = plan.against(region=replace(plan.source.region, base=base))
    return tasks.fit_pe(target, tasks.streams_out(target, plan, base + end))


def small_copy(fragment: Fragment, small: Tensor) -> tuple[Plan, int]:
    """Bring a small operand into L2 at 0; returns the copy and the end of its region (§7.3)."""
    plan = unary.copy_of(fragment.target, small).reading(dma=small.dma())
    region = l2.planar_map(small.c, small.h, small.w, small.n)
    size = small.n * small.h * region.row
    plan, _ = fragment.bring(plan, size)
    return fragment.stay(plan, region), size


def broadcast_axes(small: Tensor, big: Tensor) -> Axes:
    """The axes along which ``small`` has size 1 and ``big`` has not."""
    return sizes_of_one((small.w, big.w), (small.h, big.h), (small.c, big.c))


def sizes_of_one(w: tuple[int, int], h: tuple[int, int], c: tuple[int, int] = (1, 1)) -> Axes:
    """The axes W, H, C for which a pair of extents is (1, more than 1)."""
    axes = Axes.NONE
    for axis, (small, big) in ((Axes.W, w), (Axes.H, h), (Axes.C, c)):
        if small == 1 and big > 1:
            axes |= axis
    return axes


def broadcast(op: str, a: Tensor, b: Tensor, out: Tensor, relu: bool, fragment: Fragment) -> Fragment:
    """A small operand by its own DMA, or copied into L2 and then broadcast by the planar task.

    A row of all channels that does not fit L2 is seen as more rows of fewer, where the small operand is one row.
    """
    start = len(fragment.plans)
    views: Iterator[tuple[Tensor, ...]] = iter(())
    if a.shape == out.shape and b.c == b.h == 1:
        views = ((first, b, result) for first, result in narrower_views(a, out))
    elif b.shape == out.shape and a.c == a.h == 1:
        views = ((a, second, result) for second, result in narrower_views(b, out))
    for first, second, result in chain([(a, b, out)], views):
        try:
            return _broadcast(op, first, second, result, relu, fragment)
        except UnsupportedError as error:
            refused = error
            del fragment.plans[start:]
    raise refused


def _broadcast(op: str, a: Tensor, b: Tensor, out: Tensor, relu: bool, fragment: Fragment) -> Fragment:
    if fragment.target.choices.direct_operands:
        direct.broadcast(fragment, BINARY[op].with_relu(relu), a, b, out)
        return fragment
    if a.shape != out.shape and b.shape == out.shape and op in COMMUTATIVE:
        a, b = b, a
    if a.shape == out.shape and fragment.context.on.direct_operands:
        direct.broadcast(fragment, BINARY[op].with_relu(relu), a, b, out)
        fragment.change(-1, note=OWN_DMA)
        return fragment
    if a.shape == out.shape:
        return against_small(fragment, op, a, b, out, relu)
    if b.shape == out.shape:
        return _resident_first(fragment, op, a, b, out, relu)
    # both operands broadcast: the first is widened through scratch, then meets the second as usual
    return broadcast(op, widened(fragment, a, out), b, out, relu, fragment)


def widened(fragment: Fragment, small: Tensor, out: Tensor) -> Tensor:
    """An operand at the size of the result, in scratch: one copy, or one for each image where they share a sample."""
    wide = fragment.tensor(*out.shape, small.element)
    images = [wide] if small.n == out.n else [wide.image(n) for n in range(out.n)]
    for to in images:
        axes = broadcast_axes(small, to)
        widen(fragment, Plan(pe=COPY, w=to.w, h=to.h, c=to.c, groups=to.n, source=Operand(broadcast=axes)), small, to)
    return wide


def widen(fragment: Fragment, plan: Plan, source: Tensor, out: Tensor) -> None:
    """A planar copy with a broadcast source, which stays in L2 whole (tile, §13)."""
    plan = plan.reading(dma=source.dma()).writing(dma=out.dma()).but(patch=pe_patch(plan.w, plan.h, operands=1))
    channel = l2.channel_stride(source.w)
    block = source.c * channel
    image = source.h * block
    plan = tasks.by_dma(plan, Region(0, channel, block, block, image if source.n > 1 else block), keep=True)
    if source.n * image > fragment.limits.l2_bytes // 2:
        raise UnsupportedError("a broadcast source of more than 1 MiB", code=Reason.MEMORY)
    plan = tasks.streams_out(fragment.target, plan, source.n * image, explicit=True)
    if out.w <= 256:
        wide = l2.channel_stride(out.w)
        plan = plan.writing(region=Region(source.n * image, wide, out.c * wide, out.c * wide, out.c * wide))
        room = fragment.limits.l2_bytes - source.n * image
        if out.h * plan.result.region.row > room:
            plan = plan.but(tile=room // plan.result.region.row // plan.patch_rows * plan.patch_rows)
            if plan.tile < 1:
                raise UnsupportedError(
                    "a row of a broadcast result does not fit the engine's L2 buffer", code=Reason.MEMORY
                )
    fragment.add(plan)


def against_small(fragment: Fragment, op: str, big: Tensor, small: Tensor, out: Tensor, relu: bool = False) -> Fragment:
    """A map and a small operand that is copied into L2 and broadcast there."""
    copy, end = small_copy(fragment, small)
    plan = planar(op, out, relu).against(broadcast=broadcast_axes(small, big))
    fragment.add(against_resident(fragment.target, plan, big, out, copy.result.region, end))
    return fragment


def against_resident(target: Target, plan: Plan, big: Tensor, out: Tensor, resident: Region, base: int) -> Plan:
    """Source 1 by DMA, source 2 resident in L2."""
    plan = plan.reading(dma=big.dma()).writing(dma=out.dma())
    plan, end = tasks.pe_source(plan, base, after=After.NE)
    plan = plan.against(region=resident)
    plan = tasks.streams_out(target, plan, end, after=After.NOTHING)
    return tasks.fit_pe(target, plan)


def _resident_first(fragment: Fragment, op: str, small: Tensor, big: Tensor, out: Tensor, relu: bool) -> Fragment:
    """small - big: the small operand is source 1 in L2, the other comes by DMA, as in select (appendix A)."""
    copy, end = small_copy(fragment, small)
    plan = planar(op, out, relu).reading(dma=big.dma(), broadcast=broadcast_axes(small, big)).writing(dma=out.dma())
    plan, end = tasks.pe_source(plan, end, after=After.NOTHING)
    plan = plan.against(region=plan.source.region, dma=plan.source.dma)
    plan = tasks.resident(plan.reading(dma=None), copy.result.region, After.NE_RESULT)
    plan = tasks.streams_out(fragment.target, plan, end, after=After.NOTHING)
    plan = tasks.fit_pe(fragment.target, plan).inferred("first operand resident in a difference")
    fragment.add(plan)
    return fragment


# -- constants -------------------------------------------------------------------------------------------------------


def _with_constant(op: Op, out: Tensor, relu: bool, context: Context) -> Fragment:
    first = op.inputs["x"].is_constant
    value: Value = op.inputs["y"] if first else op.inputs["x"]
    data = constant(op.inputs["x"] if first else op.inputs["y"])
    assert data is not None
    data = np.asarray(data, np.float16)
    x = context.tensor(value)
    if x.shape != out.shape:
        fragment = Fragment(context)
        tensor = fragment.plain_constant(data)
        a, b = (tensor, x) if first else (x, tensor)
        broadcast(op.type, a, b, out, relu, fragment)
        fragment.inferred("first operand from the const section")
        return fragment
    if data.size == 1 and op.type not in ("maximum", "minimum"):
        return _scalar(op.type, x, out, float(data.reshape(-1)[0]), first, relu, context)
    if data.size == 1:
        return _clamp(op.type, x, out, float(data.reshape(-1)[0]), relu, context)
    axis = single_axis(data)
    if axis is not None and op.type in ("maximum", "minimum") and context.choices.direct_operands:
        fragment = Fragment(context)
        direct.per_channel(fragment, x, out, data.reshape(-1), axis, BINARY[op.type].with_relu(relu))
        return fragment
    if axis is not None and op.type in ("add", "sub", "mul"):
        return per_channel(op.type, x, out, data.reshape(-1), axis, first, context, relu)
    fragment = Fragment(context)
    tensor = fragment.plain_constant(data)
    if tensor.shape == x.shape:
        a, b = (tensor, x) if first else (x, tensor)
        fragment.add(two_surfaces(context.target, op.type, a, b, out, relu))
        fragment.inferred("second operand from the const section")
        return fragment
    if context.choices.direct_operands:
        a, b = (tensor, x) if first else (x, tensor)
        direct.broadcast(fragment, BINARY[op.type].with_relu(relu), a, b, out)
        fragment.inferred("an operand from the const section")
        return fragment
    if first and op.type not in COMMUTATIVE:
        return _resident_first(fragment, op.type, tensor, x, out, relu)
    return against_small(fragment, op.type, x, tensor, out, relu)


def _scalar(op: str, x: Tensor, out: Tensor, value: float, first: bool, relu: bool, context: Context) -> Fragment:
    """x * v, x + v, x - v: the scale or bias field of one planar task; v - x as a per-channel constant."""
    if op == "sub" and first:
        return per_channel("sub", x, out, np.full(x.c, value, np.float16), "c", True, context, relu)
    factor, shift = (value, 0.0) if op == "mul" else (1.0, value if op == "add" else -value)
    plan = Plan(pe=Planar(relu=relu, scale=factor, bias=shift), w=x.w, h=x.h, c=x.c, groups=x.n)
    fragment = Fragment(context)
    fragment.add(unary.pe_stream(context.target, plan, x, out))
    return fragment


def _clamp(op: str, x: Tensor, out: Tensor, value: float, relu: bool, context: Context) -> Fragment:
    """maximum or minimum with a number: a derived table (§10)."""
    if relu:
        raise UnsupportedError("a table cannot be followed by relu in one task")
    fragment, plan = Fragment(context), unary.copy_of(context.target, x)
    plan = unary.set_table(plan, op, value)
    fragment.add(unary.ne_stream(context.target, plan, x, out))
    return fragment


def single_axis(data: np.ndarray) -> str | None:
    """ "c" or "h" when the constant varies along that axis of the 4-D view only, and W is broadcast or has size 1."""
    shape = four_dimensional(data.shape)
    varying = [axis for axis, extent in zip("nchw", shape) if extent > 1]
    return varying[0] if varying in (["c"], ["h"]) else None


def per_channel(
    op: str, x: Tensor, out: Tensor, values: np.ndarray, axis: str, first: bool, context: Context, relu: bool = False
) -> Fragment:
    """A constant per channel: two rows, shift and scale, as the second operand of a GOC task (§8.4, §9.11)."""
    if relu:
        raise UnsupportedError("relu behind a scale and shift")
    ones, zeros = np.ones_like(values), np.zeros_like(values)
    if context.choices.direct_operands:
        fragment = Fragment(context)
        shift, scale = {
            "add": (values, ones),
            "mul": (zeros, values),
            "sub": (values, -ones) if first else (-values, ones),
        }[op]
        direct.scale_and_shift(fragment, x, out, shift, scale, axis)
        if op == "sub" and first:
            fragment.change(-1, note="a constant minus a tensor")
        return fragment
    rows = {
        "add": (values, ones, "add"),
        "mul": (zeros, values, "add"),
        "sub": (values, -ones if first else ones, "sub"),
    }[op]
    return _rows_onto(x, out, rows, axis, context)


def _rows_onto(
    x: Tensor, out: Tensor, rows: tuple[np.ndarray, np.ndarray, str], axis: str, context: Context
) -> Fragment:
    """Shift and scale of each channel, and whether the shift is added or subtracted, from the constants onto a map."""
    shift, scale, operation = rows
    fragment = Fragment(context)
    if context.choices.direct_operands:
        direct.scale_and_shift(fragment, x, out, shift, scale, axis)
        return fragment
    copy = fragment.add(two_rows(fragment, shift, scale))
    c, h, walk_in, walk_out = x.c, x.h, x.dma(), out.dma()
    if axis == "h":
        c, h, walk_in, walk_out = x.h, x.c, _rows_as_channels(walk_in), _rows_as_channels(walk_out)
    plan = Plan(pe=SCALE_SHIFT[operation], w=x.w, h=h, c=c, groups=x.n)
    plan = plan.against(transposed=True).reading(dma=walk_in).writing(dma=walk_out)
    plan, end = tasks.pe_source(plan, 2 * copy.result.region.row, after=After.NE)
    channel = copy.result.region.channel
    plan = plan.against(region=Region(0, channel, copy.result.region.row, channel))
    plan = tasks.streams_out(context.target, plan, end, after=After.NOTHING)
    plan = tasks.fit_pe(context.target, plan)
    fragment.add(plan)
    return fragment


def _rows_as_channels(dma: Dma) -> Dma:
    return replace(dma, row=dma.plane, plane=dma.row)


def two_rows(fragment: Fragment, shift: np.ndarray, scale: np.ndarray) -> Plan:
    """T0 of a per-channel constant: [2 rows][C] from the const section to L2 at 0."""
    count = shift.size
    stride = align(2 * count, 64)
    rows = np.zeros((2, stride // 2), "<f2")
    rows[0, :count], rows[1, :count] = shift, scale
    buffer = fragment.constant(rows.tobytes())
    plan = tasks.copy_plan(fragment.target, 1, 2, count).reading(
        dma=Dma(buffer, 0, stride, 2 * stride, 2 * stride, 2 * stride)
    )
    plan = tasks.choose_shape(fragment.target, plan)
    channel = l2.channel_stride(count)
    row = channel + l2.pe_pad(channel, 4 * l2.UNIT)
    plan, _ = tasks.ne_source(fragment.target, plan, 2 * row)
    return tasks.stays(plan, Region(0, channel, row, channel))


def combine(fragment: Fragment, word: str, a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """out = a op b with either operand broadcast; returns out."""
    if a.shape == b.shape == out.shape:
        fragment.add(two_surfaces(fragment.target, word, a, b, out, False))
    else:
        broadcast(word, a, b, out, False, fragment)
    return out


def tensor_for(value: Value, context: Context, fragment: Fragment) -> Tensor:
    """An operand as DRAM tensor, constants included."""
    data = constant(value)
    return context.tensor(value) if data is None else fragment.plain_constant(np.asarray(data, np.float16))
