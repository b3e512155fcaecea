"""Tiles, casts, selection and booleans (docs/reference/engine-h13.md 13, appendix A)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.operations import BINARY, COPY, MAC_COPY_BYTES, NO_KERNEL, After, Axes, Element
from hexane.codegen.plan import Operand, Plan, Region
from hexane.codegen.recipes import unary
from hexane.codegen.recipes.elementwise import combine, tensor_for, two_surfaces, widen, with_relu
from hexane.codegen.recipes.registry import constant, need_fp16, recipe
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.graph.ir import Op


@recipe("tile", match=with_relu, shrinks=True)
def tile(ops: Sequence[Op], context: Context) -> Fragment:
    """tile of axes of length 1, with or without relu: one planar copy with a broadcast source."""
    op = ops[0]
    x = op.arg("x")
    need_fp16(x)
    fragment = Fragment(context)
    out = context.tensor(ops[-1].output)
    data = constant(x)
    source = context.tensor(x) if data is None else fragment.plain_constant(np.asarray(data, np.float16))
    axes = Axes.NONE
    for axis in "whc":
        if getattr(source, axis) != getattr(out, axis):
            if getattr(source, axis) != 1:
                raise UnsupportedError(
                    "a tile of an axis longer than 1", hint="write it as a concat", code=Reason.EXTENT
                )
            axes |= Axes[axis.upper()]
    if source.n != out.n:
        raise UnsupportedError("a tile along the batch", code=Reason.BATCH)
    copy = COPY.with_relu(len(ops) == 2)
    plan = Plan(pe=copy, w=out.w, h=out.h, c=out.c, groups=out.n, source=Operand(broadcast=axes))
    widen(fragment, plan, source, out)
    return fragment


@recipe("cast")
def cast(ops: Sequence[Op], context: Context) -> Fragment:
    """cast of bool or bytes to fp16: one planar copy."""
    (op,) = ops
    x, y = op.arg("x"), op.output
    if (x.dtype, y.dtype) not in (("bool", "fp16"), ("uint8", "fp16"), ("int8", "fp16")):
        raise UnsupportedError(f"a cast from {x.dtype} to {y.dtype}", code=Reason.ELEMENT_TYPE)
    source, out = context.tensor(x), context.tensor(y)
    fragment = Fragment(context)
    plan = Plan(pe=COPY, w=source.w, h=source.h, c=source.c, groups=source.n)
    fragment.add(unary.pe_stream(context.target, plan, source, out))
    if x.dtype == "int8":
        fragment.plans[-1] = fragment.plans[-1].reading(element=Element.INT8)
        fragment.inferred("signed bytes, which no program of Apple's compiler shows")
    return fragment


@recipe("logical_not")
def logical_not(ops: Sequence[Op], context: Context) -> Fragment:
    """logical_not: one neural engine copy of bytes through the table x == 0."""
    (op,) = ops
    x, y = context.tensor(op.arg("x")), context.tensor(op.output)
    fragment, plan = Fragment(context), unary.copy_of(context.target, x)
    plan = plan.writing(element=Element.UINT8)
    plan = unary.set_table(plan, "equals_zero")
    fragment.add(unary.ne_stream(context.target, plan, x, y))
    return fragment


@recipe("select")
def select(ops: Sequence[Op], context: Context) -> Fragment:
    """select by a computed condition: two masked products and their sum."""
    (op,) = ops
    need_fp16(op.arg("a"), op.arg("b"))
    if op.arg("cond").dtype != "bool":
        raise UnsupportedError("a condition that is no bool", code=Reason.ELEMENT_TYPE)
    cond = context.tensor(op.arg("cond"))
    out = context.tensor(op.output)
    fragment = Fragment(context)
    a, b = (tensor_for(op.arg(name), context, fragment) for name in ("a", "b"))
    plain = a.shape == b.shape == out.shape and out.n == 1 and not fragment.constants
    by_row = cond.shape == (1, 1, 1, out.w) and out.c == 1 and out.h > 1
    by_pixel = cond.shape == out.shape and out.h == out.w == 1
    half = out.h * l2.channel_stride(out.w)
    if plain and by_pixel:
        _select(fragment, cond, (("not_zero", a), ("equals_zero", b)), out, by_row=False)
    elif plain and by_row and 2 * half + 4 * l2.RING_ROOM < context.limits.l2_bytes:
        _select(fragment, cond, (("equals_zero", b), ("not_zero", a)), out, by_row=True)
    else:
        _select_through_scratch(fragment, cond, a, b, out)
    return fragment


def _select(fragment: Fragment, cond: Tensor, halves: tuple, out: Tensor, *, by_row: bool) -> None:
    """In L2 (appendix A): mask at 0, first half behind it, the kept condition behind that; then the other half.

    A mask per channel is a turned vector, one per column is a row that is broadcast along H.
    """
    width = out.w if by_row else out.c
    channel = l2.channel_stride(width)
    mask = Region(0, channel, channel, channel)
    half = Region(channel, channel, channel, channel)
    size = out.h * channel
    kept_base = channel + size
    for i, (table, operand) in enumerate(halves):
        plan = (
            unary.copy_of(fragment.target, cond)
            if by_row
            else tasks.copy_plan(fragment.target, cond.c, 1, 1, out_trans=True, element=Element.UINT8)
        )
        plan = plan.reading(element=Element.UINT8).but(ne=MAC_COPY_BYTES, kernel_format=NO_KERNEL)
        plan = unary.set_table(plan, table)
        if i == 0:
            plan = plan.reading(dma=cond.dma())
            plan, kept_end = fragment.bring(plan, kept_base, keep=True)
            plan = tasks.stays(plan, mask)
            whole = replace(plan.source.region, group=0)
            second_at, base = kept_end, channel
        else:
            plan = tasks.resident(plan, whole)
            plan = tasks.stays(plan, mask, after=After.PE_SOURCE)
            base = _apart(channel, channel + size)
            second_at = base + size
        fragment.add(plan)
        product = Plan(pe=BINARY["mul"], w=out.w, h=out.h, c=out.c)
        repeated = Axes.H if by_row else Axes.NONE
        product = product.reading(broadcast=repeated, transposed=not by_row, dma=operand.dma())
        product = product.writing(transposed=not by_row)
        product, end = tasks.pe_source(product, second_at, after=After.NOTHING)
        product = product.against(region=product.source.region, dma=product.source.dma).reading(dma=None)
        overlap = second_at < kept_end and kept_base < end
        after = After.FOLLOWS_NE if i == 0 else After.NE if overlap else After.NE_RESULT
        product = tasks.resident(product, mask, after)
        fragment.stay(product, replace(half, base=base), after=After.NOTHING)
    total = Plan(pe=BINARY["add"], w=out.w, h=out.h, c=out.c)
    total = total.reading(transposed=not by_row).against(transposed=not by_row).writing(dma=out.dma())
    regions = [channel, base]
    first, second = (regions[1], regions[0]) if by_row else (regions[0], regions[1])
    total = tasks.resident(total, replace(half, base=first), After.PE_RESULT, second=replace(half, base=second))
    fragment.send(total, base + size, after=After.NOTHING)


def _apart(first: int, base: int) -> int:
    """Base of a second PE operand: at least four banks behind the first one's (§7.3)."""
    while (base - first) // l2.UNIT % l2.BANKS < 4:
        base += l2.UNIT
    return base


def _select_through_scratch(fragment: Fragment, cond: Tensor, a: Tensor, b: Tensor, out: Tensor) -> None:
    """cond * a + (not cond) * b, every step through scratch; 0 * inf is 0 in the planar engine (numerics 7)."""
    halves = []
    for table, operand in (("not_zero", a), ("equals_zero", b)):
        mask = fragment.tensor(*cond.shape)
        plan = unary.copy_of(fragment.target, cond)
        plan = unary.set_table(plan, table)
        fragment.add(unary.ne_stream(fragment.target, plan, cond, mask))
        product = fragment.tensor(*out.shape)
        operands = combine(fragment, "mul", operand, mask, product)
        halves.append(operands)
    fragment.add(two_surfaces(fragment.target, "add", halves[0], halves[1], out, False))
    fragment.inferred("a selection through scratch")
