"""Comparisons and rounding: differences of pairs through step tables, fraction and integer tables (appendix A)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.geometry import cores_log2, is_small_source
from hexane.codegen.operations import BINARY, INT8_KERNEL, MAC_BYTES, NEGATION, After, Element, Planar
from hexane.codegen.plan import Plan, Region, TaskKernel
from hexane.codegen.recipes import unary
from hexane.codegen.recipes.elementwise import combine, tensor_for, widened
from hexane.codegen.recipes.registry import need_fp16, recipe, scalar, x_and_result
from hexane.errors import UnsupportedError
from hexane.frozen import replace
from hexane.graph.ir import Op
from hexane.kernels import KernelLayout, pack
from hexane.lowering.comparisons import STEPS, sided, with_number
from hexane.lowering.functions import lookup_table

COMPARISONS = {
    "less": ("below_zero", False),
    "greater": ("below_zero", True),
    "equal": ("equals_zero", False),
    "not_equal": ("not_zero", False),
    "greater_equal": ("below_zero", False),
    "less_equal": ("below_zero", True),
}
"""Table on x - y, and whether the operands change places; the last two are the negation of the table's result."""
NEGATED = ("greater_equal", "less_equal")


@recipe(*COMPARISONS)
def comparison(ops: Sequence[Op], context: Context) -> Fragment:
    """less, greater, equal ... of two tensors: their difference, a step table to bytes; Apple's form by pairs in L2."""
    (op,) = ops
    need_fp16(op.arg("x"), op.arg("y"))
    out = context.tensor(op.output)
    fragment = Fragment(context)
    if context.on.planar_comparisons:
        _of_difference(fragment, op, out, context)
        return fragment
    for value in (op.arg("x"), op.arg("y")):
        if value.is_constant and not np.isfinite(value.data).all():
            raise UnsupportedError("a comparison with infinity or NaN: infinity less infinity is no number")
    x, y = (tensor_for(op.arg(name), context, fragment) for name in ("x", "y"))
    if out.n > 1 or not x.shape == y.shape == out.shape:
        x, y = (t if t.shape == out.shape else widened(fragment, t, out) for t in (x, y))
    table, swapped = COMPARISONS[op.type]
    if swapped:
        x, y = y, x
    target = out
    if op.type in NEGATED:
        target = fragment.tensor(*out.shape, out.element)
    for n in range(out.n):
        _compare(fragment, x.image(n), y.image(n), target.image(n), table)
    if target is not out:
        plan = unary.copy_of(context.target, target).writing(element=Element.UINT8)
        plan = unary.set_table(plan, "equals_zero")
        fragment.add(unary.ne_stream(context.target, plan, target, out))
    if op.type != "less" or fragment.constants or out.n > 1:
        fragment.inferred("a comparison other than less of two tensors")
    return fragment


def _of_difference(fragment: Fragment, op: Op, out: Tensor, context: Context) -> None:
    """x - y in the planar engine, which is zero for equal operands only, then a step table to bytes."""
    word, x, y = sided(op)
    difference = Tensor(fragment.workspace(2 * out.bytes), *out.shape)
    number = scalar(y)
    if number is not None:
        word, number = with_number(word, number)
    if number is not None and context.tensor(x).shape == out.shape:
        plan = Plan(pe=Planar(bias=-number), w=out.w, h=out.h, c=out.c, groups=out.n)
        fragment.add(unary.pe_stream(context.target, plan, context.tensor(x), difference))
    else:
        first, second = (tensor_for(value, context, fragment) for value in (x, y))
        combine(fragment, "sub", first, second, difference)
    plan = unary.copy_of(context.target, difference).writing(element=Element.UINT8)
    plan = unary.set_table(plan, STEPS[word])
    fragment.add(unary.ne_stream(context.target, plan, difference, out))
    fragment.inferred("a comparison as a planar difference and a step table")


def _compare(fragment: Fragment, x: Tensor, y: Tensor, out: Tensor, table: str) -> None:
    """T0, T1: the operands as pairs of channels in L2; T2: +1, -1 per pair and the table (appendix A, less)."""
    pairs = l2.planar_map(2 * x.c, x.h, x.w)
    size = x.h * pairs.row
    fragment.need_room(
        size + x.h * (x.c * l2.ne_window(x.w) + l2.MOST_PAD) + l2.RESULT_ROOM,
        f"a comparison of {x.c} x {x.h} x {x.w} values",
    )
    for i, (tensor, place) in enumerate(((y, 1), (x, 0))):
        plan = unary.copy_of(fragment.target, tensor).reading(dma=tensor.dma())
        plan, _ = fragment.bring(plan, size, after=tasks.STARTS if i == 0 else After.NOTHING)
        fragment.stay(plan, replace(pairs, base=place * pairs.channel, channel=2 * pairs.channel))
    pair = Plan(ne=MAC_BYTES, w=x.w, h=x.h, c=2 * x.c, cout=x.c, unicast=2, kernel_format=INT8_KERNEL)
    pair = pair.writing(element=Element.UINT8).but(cores_log2=cores_log2(x.c))
    layout = KernelLayout(x.c, 2, unicast=True, cores=1 << pair.cores_log2, dtype="int8", table=True)
    weights = np.tile(np.array([1, -1], np.int8).reshape(1, 2, 1, 1), (x.c, 1, 1, 1))
    packed = pack(layout, weights, table=lookup_table(table))
    kernel = TaskKernel(packed.data, packed.offsets, packed.sizes)
    pair = pair.through(table).writing(dma=out.dma()).but(kernel=kernel)
    pair = tasks.choose_shape(fragment.target, pair)
    if is_small_source(fragment.target, x.w, x.h, 0) and x.h * x.w > 1:
        pair = pair.but(shape=(pair.shape[2],) * 3)
    pair = tasks.resident(pair, pairs, After.NE_RESULT).sending(size)
    fragment.add(pair)


@recipe("floor", "ceil")
def floor(ops: Sequence[Op], context: Context) -> Fragment:
    """floor: integer part minus (fraction below zero); ceil is -floor(-x)."""
    (op,) = ops
    x, out = x_and_result(op, context)
    fragment = Fragment(context)
    if op.type == "floor" and x.n == x.h == x.w == 1:
        _floor_vector(fragment, x, out)
        return fragment
    source = x
    if op.type == "ceil":
        source = _negative(fragment, x, fragment.tensor(*x.shape))
    target = out if op.type == "floor" else fragment.tensor(*x.shape)
    parts = {}
    for table, place in (("fraction", source), ("below_zero", None), ("integer", source)):
        plan = unary.copy_of(context.target, x)
        plan = unary.set_table(plan, table)
        parts[table] = fragment.tensor(*x.shape)
        fragment.add(unary.ne_stream(context.target, plan, place or parts["fraction"], parts[table]))
    combine(fragment, "sub", parts["integer"], parts["below_zero"], target)
    if op.type == "ceil":
        _negative(fragment, target, out)
    fragment.inferred("rounding through scratch")
    return fragment


def _negative(fragment: Fragment, x: Tensor, out: Tensor) -> Tensor:
    plan = Plan(pe=NEGATION, w=x.w, h=x.h, c=x.c, groups=x.n)
    fragment.add(unary.pe_stream(fragment.target, plan, x, out))
    return out


def _floor_vector(fragment: Fragment, x: Tensor, out: Tensor) -> None:
    """Channels of one pixel: four tasks on vectors turned into rows (appendix A, floor)."""
    line = l2.channel_stride(x.c)
    first, second = (Region(base, line, line, line) for base in (0, line))
    fraction = tasks.copy_plan(fragment.target, x.c, 1, 1, out_trans=True)
    fraction = unary.set_table(fraction, "fraction").reading(dma=x.dma())
    fraction, _ = fragment.bring(fraction, 2 * line, keep=True)
    fraction = tasks.stays(fraction, second)
    below = tasks.copy_plan(fragment.target, 1, 1, x.c)
    below = unary.set_table(below, "below_zero")
    below = tasks.choose_shape(fragment.target, below)
    below = tasks.resident(below, second, After.NE_RESULT)
    below = tasks.stays(below, first, after=After.NOTHING)
    whole = tasks.copy_plan(fragment.target, x.c, 1, 1, out_trans=True)
    whole = unary.set_table(whole, "integer").but(shape=fraction.shape)
    whole = tasks.resident(whole, replace(fraction.source.region, group=0))
    whole = tasks.stays(whole, second, after=After.NOTHING)
    difference = Plan(pe=BINARY["sub"], c=x.c).reading(transposed=True).against(transposed=True).writing(dma=out.dma())
    difference = tasks.resident(difference, second, After.NE_RESULT, second=first)
    difference = tasks.streams_out(fragment.target, difference, 2 * line, after=After.NOTHING)
    fragment.add(fraction, below, whole)
    fragment.add(difference)
