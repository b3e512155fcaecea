"""Quotients and powers: a table task in front of a product (docs/reference/engine-h13.md 13, appendix A)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hexane.codegen import l2, tasks
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.geometry import (
    PATCH_PIXELS,
    ceil_log2,
    cores_log2,
    largest_shape,
    patch_count,
    pe_patch,
    work_shape,
)
from hexane.codegen.operations import MAC_PRODUCT, SQUARE, After
from hexane.codegen.plan import Plan, Region
from hexane.codegen.recipes import unary
from hexane.codegen.recipes.elementwise import (
    against_resident,
    broadcast_axes,
    combine,
    per_channel,
    planar,
    single_axis,
)
from hexane.codegen.recipes.registry import constant, need_fp16, recipe, scalar
from hexane.codegen.recipes.softmax_parts import exponential, lock
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import replace
from hexane.isa.numbers import fp16_value
from hexane.lowering.functions import FUNCTIONS
from hexane.lowering.fusion import follows, table_name
from hexane.lowering.powers import check_power

if TYPE_CHECKING:
    from hexane.codegen.targets import Target
    from hexane.graph.ir import Op

STRIP = 32
"""Columns that a planar task locked to the cores reads at a time (powers of H18, 3x224x224)."""


@recipe("real_div")
def real_div(ops: Sequence[Op], context: Context) -> Fragment:
    """real_div: reciprocal table into L2, then a planar product; by a constant, a per-channel scale."""
    (op,) = ops
    x, y = op.arg("x"), op.arg("y")
    need_fp16(x, y)
    out = context.tensor(op.output)
    data = constant(y)
    if data is not None:
        a = context.tensor(x)
        if a.shape != out.shape:
            raise UnsupportedError(
                "a constant that is larger than the computed operand", hint="expand the operand", code=Reason.CONSTANT
            )
        with np.errstate(divide="ignore"):
            inverse = (1.0 / np.asarray(data, np.float64)).astype(np.float16)
        if inverse.size == 1:
            return per_channel("mul", a, out, np.repeat(inverse.reshape(-1), a.c), "c", False, context)
        axis = single_axis(inverse)
        if axis is None:
            return _times_constant(a, inverse, out, context)
        return per_channel("mul", a, out, inverse.reshape(-1), axis, False, context)
    b = context.tensor(y)
    numerator = constant(x)
    if numerator is None and context.tensor(x).shape == out.shape:
        return _divide(context.tensor(x), b, out, context)
    fragment = Fragment(context)
    inverted = fragment.tensor(*b.shape)
    plan = unary.copy_of(context.target, b)
    plan = unary.set_table(plan, "reciprocal")
    fragment.add(unary.ne_stream(context.target, plan, b, inverted))
    a = context.tensor(x) if numerator is None else fragment.plain_constant(np.asarray(numerator, np.float16))
    combine(fragment, "mul", a, inverted, out)
    fragment.inferred("a quotient whose numerator is broadcast or constant")
    return fragment


def _times_constant(a: Tensor, values: np.ndarray, out: Tensor, context: Context) -> Fragment:
    fragment = Fragment(context)
    combine(fragment, "mul", a, fragment.plain_constant(values), out)
    fragment.inferred("second operand from the const section")
    return fragment


def _divide(a: Tensor, b: Tensor, out: Tensor, context: Context) -> Fragment:
    """T0: 1/b into L2, turned to one packed vector per pixel column; T1: a times it (§13, appendix A)."""
    fragment = Fragment(context)
    transposed = context.choices.turned_quotients or b.h == b.w == 1
    region, size = _held_table(fragment, "reciprocal", b, transposed=transposed)
    product = planar("mul", out, False).against(broadcast=broadcast_axes(b, a), transposed=transposed)
    fragment.add(against_resident(context.target, product, a, out, region, size))
    return fragment


def pixel_residual(op: Op, context: Context) -> tuple[Op, ...] | None:
    """x and a table of it, added or multiplied, of a single pixel."""
    user = follows(op, "add", "mul")
    if user is None or not context.policy.between or op.type == "log" or FUNCTIONS[op.type].epsilon:
        return None
    others = [user.arg(name) for name in ("x", "y") if user.arg(name) is not op.output]
    pixel = op.output.shape[:1] == (1,) and len(op.output.shape) == 4 and op.output.shape[2:] == (1, 1)
    return (op, user) if pixel and others == [op.arg("x")] else None


@recipe(*FUNCTIONS, match=pixel_residual, rank=5)
def function_and_residual(ops: Sequence[Op], context: Context) -> Fragment:
    """T0: the table of x into L2 as a row, as in a quotient, x kept; T1: x and the row (x + gelu(x) on H14)."""
    need_fp16(ops[0].arg("x"))
    x, out = context.tensor(ops[0].arg("x")), context.tensor(ops[1].output)
    fragment = Fragment(context)
    region, _ = _held_table(fragment, table_name(ops[0]), x, transposed=True, keep=True)
    table = fragment.plans[0] = fragment.plans[0].computing(post_scale=fp16_value(FUNCTIONS[ops[0].type].scale))
    last = planar(ops[1].type, out, False)
    last = last.writing(dma=out.dma()).against(region=region, transposed=True).but(patch=pe_patch(1, 1, operands=2))
    last = tasks.resident(last, replace(table.source.region, group=0), After.NE)
    fragment.send(last, region.channel + table.source.region.row, after=After.NOTHING)
    return fragment


def _held_table(
    fragment: Fragment, name: str, x: Tensor, *, transposed: bool, keep: bool = False
) -> tuple[Region, int]:
    """A table of x at 0 in L2, turned if asked for, x behind it: where, and how many bytes (§13, appendix A)."""
    plan = tasks.copy_plan(fragment.target, x.c, x.h, x.w, groups=x.n, out_trans=transposed)
    plan = unary.set_table(plan, name).reading(dma=x.dma())
    if not keep:  # one-row patches where x stays, as of copies that read L2
        plan = tasks.choose_shape(fragment.target, plan)
    channels, width = (x.w, x.c) if transposed else (x.c, x.w)
    region = l2.planar_map(channels, x.h, width, x.n)
    size = x.n * x.h * region.row
    plan, _ = tasks.ne_source(fragment.target, plan, size, keep=keep)
    fragment.stay(plan, region)
    return region, size


@recipe("pow")
def power(ops: Sequence[Op], context: Context) -> Fragment:
    """pow of two computed tensors: log2 table, product of pairs, exp2 table; three neural engine tasks."""
    (op,) = ops
    x, y = op.arg("x"), op.arg("y")
    need_fp16(x, y)
    check_power(op, context.on)
    number = scalar(y)
    fragment = Fragment(context)
    out = context.tensor(op.output)
    if number is not None:
        a = context.tensor(x)
        if number == 2.0:
            fragment.add(unary.pe_stream(context.target, Plan(pe=SQUARE, w=a.w, h=a.h, c=a.c, groups=a.n), a, out))
            return fragment
        return _scaled_power(fragment, a, out, number)
    a, b = context.tensor(x), context.tensor(y)
    if not a.shape == b.shape == out.shape or a.n > 1:
        raise UnsupportedError(
            "a power with broadcast or batch", hint="expand the operands first", code=Reason.BROADCAST
        )
    if context.choices.planar_powers:
        return _planar_power(fragment, a, b, out)
    channel = l2.channel_stride(a.w)
    block = 2 * a.c * channel
    largest = max(1, largest_shape(a.w, a.h, narrow=context.choices.narrow_copies))
    row = block + (_pair_pad(context.target, block, a, largest) if a.h > 1 else 0)
    pairs = Region(0, 2 * channel, row, block)
    size = a.h * row
    for i, tensor in enumerate((b, a)):
        plan = unary.copy_of(context.target, tensor).reading(dma=tensor.dma())
        if tensor is a:
            plan = unary.set_table(plan, "log2")
        plan = tasks.choose_shape(context.target, plan)
        plan, _ = tasks.ne_source(context.target, plan, size, after=tasks.STARTS if i == 0 else After.NOTHING)
        fragment.stay(plan, replace(pairs, base=i * channel))
    product = Plan(ne=MAC_PRODUCT, w=a.w, h=a.h, c=2 * a.c, cout=a.c, unicast=2, power_category=2)
    product = product.but(cores_log2=cores_log2(a.c))
    product = unary.set_table(product, "exp2").writing(dma=out.dma()).but(shape=(1, 1, largest))
    if context.choices.weighs_pairs and patch_count(a.w, a.h, largest) > 1:
        coefficients = max(2, product.lanes) * product.c
        total = tasks.burst_bytes(product, alone=True)
        product = product.but(shape=work_shape(context.target, (a.w, a.h), coefficients, total))
    product = tasks.resident(product, Region(0, channel, row, block), After.NE_RESULT)
    if context.choices.stacks_units and product.cores_log2 < tasks.MOST_CORES_LOG2 and a.w > STRIP:
        fragment.plans[0] = fragment.plans[0].but(stack_log2=1)
        return _on_pairs_of_cores(fragment, product, size)
    fragment.send(product, size, explicit=False, after=After.NOTHING)
    return fragment


def _on_pairs_of_cores(fragment: Fragment, product: Plan, end: int) -> Fragment:
    """Few channels of a wide map: pairs of cores share a patch, two patches a tile (3x224x224 on H16)."""
    s = largest_shape(product.wout, product.hout, 2 * PATCH_PIXELS)
    stack = min(1, tasks.MOST_CORES_LOG2 - product.cores_log2 - 1)
    product = product.but(fat_tile=True, stack_log2=stack, shape=(0, 0, s), tile=min(product.hout, 1 << s + stack))
    product = tasks.streams_out(fragment.target, product, end, explicit=False, after=After.NOTHING)
    if fragment.target.choices.whole_powers:
        channel = l2.channel_stride(product.wout)
        block = product.cout * channel
        product = product.streaming(Region(end, channel, block, block, block))
    fragment.add(product)
    return fragment


def _planar_power(fragment: Fragment, x: Tensor, y: Tensor, out: Tensor) -> Fragment:
    """log2 table, planar product over it in L2, exp2 table patch by patch behind it; a single pixel's product is a row.

    Source: programs of H18 (128x16x16, 64x8x8; 64, 128, 256 and 1024 channels of one pixel; 3x224x224: strips of 32
    columns go through all tasks, the result's in front of the second operand's).
    """
    pixel, strips = x.w == x.h == 1, x.w > PATCH_PIXELS
    logarithms, size = _held_table(fragment, "log2", x, transposed=pixel)
    product = planar("mul", x, False).reading(dma=y.dma())
    last = exponential(fragment.target, *((1, 1, x.c) if pixel else (x.c, x.h, x.w)), out_trans=pixel)
    last = last.writing(dma=out.dma())
    placed = replace(logarithms, base=size) if pixel else logarithms
    if pixel:
        product, end = tasks.pe_source(product, 2 * size, after=After.NE)
        product = product.against(transposed=True).writing(transposed=True)
        last = last.but(shape=(3, max(0, 7 - ceil_log2(x.c)), 3))
        end = 2 * size
    else:
        few = fragment.target.choices.stacks_units and last.cores_log2 < tasks.MOST_CORES_LOG2
        product, last = lock(product, last.but(fat_tile=few and strips))
        channel = l2.channel_stride(STRIP if strips else x.w)
        block = x.c * channel
        result = Region(size, channel, block + l2.patch_pad(block, last.shape[2], fat=last.fat_tile), block, block)
        at = size + strips * x.h * result.row
        source = Region(at, channel, block + l2.pe_pad(block, channel), block, block)
        product = tasks.by_dma(product, source, after=After.NOTHING if strips else After.NE)
        end = size if strips else at + x.h * source.row
        fragment.need_room(at + x.h * source.row, f"a power of a map of {x.c} x {x.h} x {x.w}")
    product = product.against(region=logarithms, besides=After.FOLLOWS_NE if strips else After.NOTHING)
    product = tasks.stays(product, placed, after=After.NOTHING)
    last = tasks.resident(last, placed, After.PE_RESULT if pixel else After.FOLLOWS_PE)
    last = tasks.streams_out(fragment.target, last, end, after=After.NOTHING)
    if not pixel and patch_count(x.w, x.h, last.shape[2]) > 1:
        last = last.streaming(replace(result, base=end))
    fragment.add(product)
    fragment.add(last)
    return fragment


def _pair_pad(target: Target, block: int, x: Tensor, largest: int) -> int:
    """Row pad of two maps that lie channel by channel beside each other."""
    if target.choices.narrow_copies:
        return l2.ne_pad(block, x.h, (1, 1, largest), x.w, narrow=True)
    return l2.pe_pad(block, l2.channel_stride(x.w))


def _scaled_power(fragment: Fragment, x: Tensor, out: Tensor, exponent: float) -> Fragment:
    """x to a number: log2 table into scratch, then exp2 of the number times it (PostScale)."""
    middle = fragment.tensor(*x.shape)
    first = unary.copy_of(fragment.target, x)
    first = unary.set_table(first, "log2")
    fragment.add(unary.ne_stream(fragment.target, first, x, middle))
    second = unary.copy_of(fragment.target, x).computing(post_scale=exponent)
    second = unary.set_table(second, "exp2")
    fragment.add(unary.ne_stream(fragment.target, second, middle, out))
    return fragment
