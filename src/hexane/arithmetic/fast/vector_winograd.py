"""The Winograd form's transforms and combination as vector code (docs/reference/numerics.md 6).

A transformed value is a sum of two or three halfwords, exact in float64. On its way to fp16 it becomes a float32 that
is rounded to odd: its last bit is set where anything was lost. From there, adding half a step to the bit pattern and
cutting rounds half away, as if from the exact sum.
"""

from __future__ import annotations

from llvmlite import ir

from hexane.arithmetic.fast.vector_parts import (
    I32,
    I64,
    VOID,
    VectorShape,
    constant,
    decoded,
    for_lanes,
    load,
    magnitudes_to_halves,
    splat,
    units_to_halves,
    vector_pointer,
)

SHORT = ir.IntType(16)

SMALL = 1 << 28
"""Four numbers below this many units in magnitude add up to less than the limit of 2^31 (sums and start value)."""


def _every(builder: ir.IRBuilder, vector: ir.Value, first: int, step: int, lanes: int) -> ir.Value:
    """Elements first, first + step, ... of a vector."""
    mask = ir.Constant(ir.VectorType(I32, lanes), [first + step * i for i in range(lanes)])
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def _numbers(builder: ir.IRBuilder, halves: ir.Value) -> ir.Value:
    """Halfwords as the multiplier reads them, float64."""
    lanes = halves.type.count
    bits, _ = decoded(builder, halves, step=0)
    singles = builder.bitcast(bits, ir.VectorType(ir.FloatType(), lanes))
    return builder.fpext(singles, ir.VectorType(ir.DoubleType(), lanes))


def _half_away(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Finite float64, a multiple of 2^-25 below 2^20, as halfwords; from 65520 on infinity, zero is +0."""
    lanes = value.type.count
    integers, singles = ir.VectorType(I32, lanes), ir.VectorType(ir.FloatType(), lanes)

    def whole(number: int) -> ir.Constant:
        return constant(integers, number)

    near = builder.fptrunc(value, singles)
    bits = builder.and_(builder.bitcast(near, integers), whole(0x7FFFFFFF))
    back = builder.fpext(near, value.type)
    negative = builder.fcmp_ordered("<", value, constant(value.type, 0.0))
    more, less = (builder.fcmp_ordered(sign, value, back) for sign in (">", "<"))
    outwards = builder.select(negative, less, more)
    inwards = builder.select(negative, more, less)
    odd = builder.select(inwards, builder.sub(bits, whole(1)), bits)
    odd = builder.or_(odd, builder.zext(builder.or_(outwards, inwards), integers))
    return builder.trunc(magnitudes_to_halves(builder, odd, negative), ir.VectorType(SHORT, lanes))


def _store(builder: ir.IRBuilder, value: ir.Value, pointer: ir.Value, i: ir.Value) -> None:
    builder.store(value, vector_pointer(builder, pointer, i, value.type)).align = 2


def build_transform_input(module: ir.Module, shape: VectorShape) -> None:
    """transform_input(line, pairs, v0, v1, v2, v3): halfwords of a padded row (2 * pairs + 2) to those of V0..V3."""
    pointer = SHORT.as_pointer()
    function = ir.Function(module, ir.FunctionType(VOID, [pointer, I64] + [pointer] * 4), "transform_input")
    line, pairs, *targets = function.args

    def body(builder: ir.IRBuilder, i: ir.Value, lanes: int) -> None:
        shorts = ir.VectorType(SHORT, 2 * lanes)
        begin = builder.mul(i, ir.Constant(I64, 2))
        d = []
        for offset in (0, 2):
            place = builder.add(begin, ir.Constant(I64, offset))
            both = load(builder, vector_pointer(builder, line, place, shorts), 2)
            d += [_numbers(builder, _every(builder, both, first, 2, lanes)) for first in (0, 1)]
        sums = (builder.fsub(d[0], d[2]), builder.fadd(d[1], d[2]), builder.fsub(d[2], d[1]), builder.fsub(d[1], d[3]))
        for value, target in zip(sums, targets, strict=True):
            _store(builder, _half_away(builder, value), target, i)

    for_lanes(function, pairs, shape.lanes, body)


def build_transform_kernel(module: ir.Module, shape: VectorShape) -> None:
    """transform_kernel(rows, n, u0, u1, u2, u3): n kernel rows of three halfwords each to those of U0..U3."""
    pointer = SHORT.as_pointer()
    function = ir.Function(module, ir.FunctionType(VOID, [pointer, I64] + [pointer] * 4), "transform_kernel")
    rows, n, *targets = function.args

    def body(builder: ir.IRBuilder, i: ir.Value, lanes: int) -> None:
        begin = builder.mul(i, ir.Constant(I64, 3))
        all_three = load(builder, vector_pointer(builder, rows, begin, ir.VectorType(SHORT, 3 * lanes)), 2)
        g = [_every(builder, all_three, first, 3, lanes) for first in range(3)]
        g0, g1, g2 = (_numbers(builder, halves) for halves in g)
        outer = builder.fadd(g0, g2)
        half = constant(outer.type, 0.5)
        middle = [builder.fmul(add(outer, g1), half) for add in (builder.fadd, builder.fsub)]
        results = (g[0], *(_half_away(builder, value) for value in middle), g[2])
        for value, target in zip(results, targets, strict=True):
            _store(builder, value, target, i)

    for_lanes(function, n, shape.lanes, body)


def build_combine(module: ir.Module, shape: VectorShape) -> None:
    """combine(m0, m1, m2, m3, start, n, out, seen): n sums each, and a start value, to 2 n halfwords in turn.

    `seen` (int32, one per lane) collects bits of magnitudes; from SMALL on the results must not be used.
    """
    sums = I32.as_pointer()
    kind = ir.FunctionType(VOID, [*[sums] * 4, I64, I64, SHORT.as_pointer(), sums])
    function = ir.Function(module, kind, "combine")
    *terms, start, n, out, scratch = function.args

    def body(builder: ir.IRBuilder, i: ir.Value, lanes: int) -> None:
        integers = ir.VectorType(I32, lanes)
        m = [load(builder, vector_pointer(builder, term, i, integers), 4) for term in terms]
        place = vector_pointer(builder, scratch, ir.Constant(I64, 0), integers)
        bits = load(builder, place, 4)
        for value in m:
            bits = builder.or_(bits, builder.xor(value, builder.ashr(value, constant(integers, 31))))
        builder.store(bits, place).align = 4
        begin = splat(builder, builder.trunc(start, I32), lanes)
        even = builder.add(begin, builder.add(m[0], builder.add(m[1], m[2])))
        odd = builder.add(begin, builder.sub(m[1], builder.add(m[2], m[3])))
        halves = [builder.zext(units_to_halves(builder, value, shape), integers) for value in (even, odd)]
        both = builder.or_(halves[0], builder.shl(halves[1], constant(integers, 16)))
        target = builder.bitcast(out, sums)
        builder.store(both, vector_pointer(builder, target, i, integers)).align = 2

    for_lanes(function, n, shape.lanes, body)
