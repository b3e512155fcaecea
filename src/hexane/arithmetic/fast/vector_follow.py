"""Sums that may meet the accumulator's limit, followed from term to term (docs/reference/numerics.md 3.3).

The running sums are float64 at the very top of their range, in units of 2^971, the step there: a sum that reaches the
limit upwards becomes infinite and stays so, and the least that a sum was tells whether it reached it downwards. So all
that a term takes beside its multiply-add is one minimum. A sum that did both went down first, because no sum comes back
from infinity. The rows come multiplied by `SCALE`.
"""

from __future__ import annotations

from functools import reduce

from llvmlite import ir

from hexane.arithmetic.fast.vector_parts import (
    I32,
    I64,
    VOID,
    VectorShape,
    close,
    constant,
    load,
    loop,
    splat,
    vector_pointer,
)
from hexane.rounding import ceil_div

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
    """follow(a, t, b, n, sums, met): n terms, n > 0, are added to sums that may meet the limit.

    a, t: (n, rows) values by `SCALE`, and thresholds; b: (n, columns), all float64; sums: (rows, columns) int32 in
    units; met: int32, 0, or the sign with which a sum met the limit, which then means nothing. Without `test` no
    product is dropped.
    """
    integers, numbers = I32.as_pointer(), ir.DoubleType().as_pointer()
    kind = ir.FunctionType(VOID, [numbers, numbers, numbers, I64, integers, integers])
    function = ir.Function(module, kind, name)
    lanes = shape.lanes // 2
    builder, j = loop(function, function.append_basic_block(), ir.Constant(I64, shape.columns), lanes)
    parts = ceil_div(shape.rows, MOST_ROWS)
    for part in range(parts):
        rows = range(shape.rows * part // parts, shape.rows * (part + 1) // parts)
        builder = _part(builder, function, shape, rows, j, test)
    builder, _ = close(builder, j, ir.Constant(I64, shape.columns), lanes)
    builder.ret_void()


def _part(
    builder: ir.IRBuilder, function: ir.Function, shape: VectorShape, rows: range, j: ir.Value, test: bool
) -> ir.IRBuilder:
    """Some rows of a vector of columns from j on; gives a builder behind them."""
    a, t, b, n, sums, met = function.args
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

    up = [builder.icmp_signed("==", builder.bitcast(new, bits), constant(bits, INFINITE)) for new in following]
    lowest = constant(bits, ZERO - LIMIT)
    down = [builder.icmp_signed("<=", builder.bitcast(low, bits), lowest) for low in least_so_far]
    some = reduce(builder.or_, (*up, *down))
    units = [builder.trunc(builder.sub(builder.bitcast(new, bits), base), short) for new in following]
    none = builder.icmp_unsigned("==", builder.bitcast(some, ir.IntType(lanes)), ir.Constant(ir.IntType(lanes), 0))
    marked, after = function.append_basic_block(), function.append_basic_block()
    for place, value in zip(places, units, strict=True):
        builder.store(value, vector_pointer(builder, sums, place, short)).align = 4
    builder.cbranch(none, after, marked)
    builder = ir.IRBuilder(marked)
    nothing = constant(short, 0)
    for place, value, above, below in zip(places, units, up, down, strict=True):
        where = vector_pointer(builder, met, place, short)
        earlier = load(builder, where, 4)
        sign = builder.select(below, constant(short, -1), builder.select(above, constant(short, 1), nothing))
        sign = builder.select(builder.icmp_signed("==", earlier, nothing), sign, earlier)
        builder.store(sign, where).align = 4
        value = builder.select(builder.icmp_signed("==", sign, nothing), value, nothing)
        builder.store(value, vector_pointer(builder, sums, place, short)).align = 4
    builder.branch(after)
    return ir.IRBuilder(after)
