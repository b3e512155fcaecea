"""Sums that may meet the accumulator's limit, followed from term to term (docs/reference/numerics.md 3.3).

The running sums are float64 at the very top of their range, in units of 2^971, the step there: a sum that reaches the
limit upwards becomes infinite and stays so, and the least that a sum was tells whether it reached it downwards. So all
that a term takes beside its multiply-add is one minimum. The rows come multiplied by `SCALE`.
"""

from __future__ import annotations

from llvmlite import ir

from hexane.arithmetic.fast.vector_parts import (
    I32,
    I64,
    UNSURE,
    VectorShape,
    close,
    constant,
    load,
    loop,
    splat,
    vector_pointer,
)

SCALE = 2.0**987
"""Makes a unit of 2^-16 the step of float64 below 2^1024."""
LIMIT = 1 << 31
"""The limit in units."""
INFINITE = 0x7FF << 52
ZERO = INFINITE - LIMIT
"""The bits of a running sum of 0: the limit below infinity. One unit more is one step and one bit pattern more."""
MOST_ROWS = 14
"""Rows at once: a sum and the least that it was have to fit the registers for each."""


def build(module: ir.Module, shape: VectorShape, name: str, *, test: bool) -> None:
    """follow(a, t, b, n, sums, met, reach) -> not 0 where a sum is marked `UNSURE`.

    a, t: (n, rows) values by `SCALE`, and thresholds; b: (n, columns), all float64; sums: (rows, columns) int32 in
    units; met: int32, 0, or the sign with which a sum met the limit before (what it is then means nothing). Where
    `reach`, what the n terms can add up to in units, leaves the sign open, the sum stays and is marked `UNSURE`.
    Without `test` no product is dropped.
    """
    double, integers = ir.DoubleType(), I32.as_pointer()
    numbers = double.as_pointer()
    kind = ir.FunctionType(I64, [numbers, numbers, numbers, I64, integers, integers, I64])
    function = ir.Function(module, kind, name)
    lanes = shape.lanes // 2
    unsure = ir.VectorType(I32, lanes)
    across = module.declare_intrinsic(f"llvm.vector.reduce.or.v{lanes}i32", (), ir.FunctionType(I32, [unsure]))
    before = function.append_basic_block()
    builder, j = loop(function, before, ir.Constant(I64, shape.columns), lanes)
    so_far = builder.phi(unsure)
    marks: ir.Value = so_far
    parts = -(-shape.rows // MOST_ROWS)
    for part in range(parts):
        rows = range(shape.rows * part // parts, shape.rows * (part + 1) // parts)
        builder, marks = _part(builder, function, shape, rows, j, marks, test)
    builder, end = close(builder, j, ir.Constant(I64, shape.columns), lanes)
    so_far.add_incoming(constant(unsure, 0), before)
    so_far.add_incoming(marks, end)
    builder.ret(builder.zext(builder.call(across, [marks]), I64))


def _part(
    builder: ir.IRBuilder, function: ir.Function, shape: VectorShape, rows: range, j: ir.Value, marks: ir.Value,
    test: bool,
) -> tuple[ir.IRBuilder, ir.Value]:  # fmt: skip
    """Some rows of a vector of columns from j on; gives a builder behind them and the marks with theirs."""
    a, t, b, n, sums, met, reach = function.args
    lanes = shape.lanes // 2
    vector, bits = ir.VectorType(ir.DoubleType(), lanes), ir.VectorType(I64, lanes)
    short = ir.VectorType(I32, lanes)
    fma = function.module.declare_intrinsic(f"llvm.fma.v{lanes}f64", (), ir.FunctionType(vector, [vector] * 3))
    fabs = function.module.declare_intrinsic(f"llvm.fabs.v{lanes}f64", (), ir.FunctionType(vector, [vector]))
    base = constant(bits, ZERO)

    places = [builder.add(j, ir.Constant(I64, r * shape.columns)) for r in rows]
    first = [builder.sext(load(builder, vector_pointer(builder, sums, p, short), 4), bits) for p in places]
    start = [builder.bitcast(builder.add(value, base), vector) for value in first]
    before = builder.block
    inner, k = loop(function, before, n, 1)
    totals, lows = [inner.phi(vector) for _ in rows], [inner.phi(vector) for _ in rows]
    column = inner.add(inner.mul(k, ir.Constant(I64, shape.columns)), j)
    w = load(inner, vector_pointer(inner, b, column, vector), 8)
    magnitude = inner.call(fabs, [w]) if test else None
    following, least_so_far = [], []
    for r, total, low in zip(rows, totals, lows, strict=True):
        place = inner.add(inner.mul(k, ir.Constant(I64, shape.rows)), ir.Constant(I64, r))
        x = splat(inner, load(inner, inner.gep(a, [place]), 8), lanes)
        new = inner.call(fma, [x, w, total])
        if test:
            least = splat(inner, load(inner, inner.gep(t, [place]), 8), lanes)
            new = inner.select(inner.fcmp_ordered(">=", magnitude, least), new, total)
        following.append(new)
        least_so_far.append(inner.select(inner.fcmp_ordered("<", new, low), new, low))
    builder, end = close(inner, k, n, 1)
    for phi, value, new in zip((*totals, *lows), (*start, *start), (*following, *least_so_far), strict=True):
        phi.add_incoming(value, before)
        phi.add_incoming(new, end)

    beyond = []
    for new, low in zip(following, least_so_far, strict=True):
        up = builder.icmp_signed("==", builder.bitcast(new, bits), constant(bits, INFINITE))
        down = builder.icmp_signed("<=", builder.bitcast(low, bits), constant(bits, ZERO - LIMIT))
        beyond.append(builder.or_(up, down))
    some = beyond[0]
    for flags in beyond[1:]:
        some = builder.or_(some, flags)
    units = [builder.trunc(builder.sub(builder.bitcast(new, bits), base), short) for new in following]
    none = builder.icmp_unsigned("==", builder.bitcast(some, ir.IntType(lanes)), ir.Constant(ir.IntType(lanes), 0))
    marked, after = function.append_basic_block(), function.append_basic_block()
    fork = builder.block
    for place, value in zip(places, units, strict=True):
        builder.store(value, vector_pointer(builder, sums, place, short)).align = 4
    builder.cbranch(none, after, marked)
    builder = ir.IRBuilder(marked)
    span, new_marks = splat(builder, reach, lanes), marks
    nothing = constant(short, 0)
    for place, old, value, flags in zip(places, first, units, beyond, strict=True):
        not_down = builder.icmp_signed(">", builder.sub(old, span), constant(bits, -LIMIT))
        not_up = builder.icmp_signed("<", builder.add(old, span), constant(bits, LIMIT))
        sign = builder.select(not_up, constant(short, -1), constant(short, UNSURE))
        sign = builder.select(not_down, constant(short, 1), sign)
        where = vector_pointer(builder, met, place, short)
        earlier = load(builder, where, 4)
        sign = builder.select(builder.icmp_signed("==", earlier, nothing), sign, earlier)
        sign = builder.select(flags, sign, earlier)
        builder.store(sign, where).align = 4
        unsure = builder.icmp_signed("==", sign, constant(short, UNSURE))
        new_marks = builder.or_(new_marks, builder.select(unsure, sign, nothing))
        value = builder.select(builder.icmp_signed("==", sign, nothing), value, nothing)
        value = builder.select(unsure, builder.trunc(old, short), value)
        builder.store(value, vector_pointer(builder, sums, place, short)).align = 4
    builder.branch(after)
    builder = ir.IRBuilder(after)
    merged = builder.phi(short)
    merged.add_incoming(marks, fork)
    merged.add_incoming(new_marks, marked)
    return builder, merged
