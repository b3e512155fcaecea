"""Few terms per output as vector code: every term of a run of outputs of one channel.

Source: docs/reference/numerics.md 11.3.
"""

from __future__ import annotations

from llvmlite import ir

from hexane.arithmetic.fast.vector_parts import (
    I32,
    I64,
    MAGIC32,
    VOID,
    Shape,
    close,
    constant,
    load,
    loop,
    splat,
    vector_pointer,
)

UNROLLED = 4
"""Vectors of outputs at a time."""


def build(module: ir.Module, shape: Shape) -> None:
    """depthwise(values, offsets, weights, limits, terms, start, units, n): n outputs of one channel, n > 0, terms > 0.

    values: float32, a step from zero; term t of output j stands at offsets[t] (int64, bytes are not meant) + j.
    weights, limits: float32, a product with a value below the limit is dropped. units: int32, start (int64) added;
    room for n rounded up to whole steps of `UNROLLED` vectors, and as much readable behind the values.
    """
    f32 = ir.FloatType()
    vector, integers = ir.VectorType(f32, shape.lanes), ir.VectorType(I32, shape.lanes)
    numbers = f32.as_pointer()
    kind = ir.FunctionType(VOID, [numbers, I64.as_pointer(), numbers, numbers, I64, I64, I32.as_pointer(), I64])
    function = ir.Function(module, kind, "depthwise")
    values, offsets, weights, limits, terms, start, units, n = function.args
    fma = module.declare_intrinsic(f"llvm.fma.v{shape.lanes}f32", (), ir.FunctionType(vector, [vector] * 3))
    fabs = module.declare_intrinsic(f"llvm.fabs.v{shape.lanes}f32", (), ir.FunctionType(vector, [vector]))
    magic = constant(vector, MAGIC32)

    step = UNROLLED * shape.lanes
    outer, i = loop(function, function.append_basic_block(), n, step)
    before = outer.block
    inner, t = loop(function, before, terms, 1)
    sums = [inner.phi(vector) for _ in range(UNROLLED)]
    place = inner.gep(values, [inner.add(load(inner, inner.gep(offsets, [t]), 8), i)])
    weight = splat(inner, load(inner, inner.gep(weights, [t]), 4), shape.lanes)
    limit = splat(inner, load(inner, inner.gep(limits, [t]), 4), shape.lanes)
    ends = []
    for v, total in enumerate(sums):
        x = load(inner, vector_pointer(inner, place, ir.Constant(I64, v * shape.lanes), vector), 4)
        stays = inner.fcmp_ordered(">=", inner.call(fabs, [x]), limit)
        if shape.masked:
            ends.append(inner.select(stays, inner.call(fma, [x, weight, total]), total))
        else:
            ends.append(inner.call(fma, [inner.select(stays, x, constant(vector, 0.0)), weight, total]))
    outer, end = close(inner, t, terms, 1)
    for total, value in zip(sums, ends, strict=True):
        total.add_incoming(magic, before)
        total.add_incoming(value, end)
    begin = splat(outer, outer.trunc(start, I32), shape.lanes)
    for v, value in enumerate(ends):
        bits = outer.sub(outer.bitcast(value, integers), outer.bitcast(magic, integers))
        target = vector_pointer(outer, units, outer.add(i, ir.Constant(I64, v * shape.lanes)), integers)
        outer.store(outer.add(bits, begin), target).align = 4
    builder, _ = close(outer, i, n, step)
    builder.ret_void()
