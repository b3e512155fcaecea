"""The planar engine's operations on lines of halfwords as vector code (docs/reference/numerics.md 7.1).

Products of halfwords are exact in float32. A sum is cut on its way to float32, which leaves it on the same side of
every tie. From there, adding half a step to the bit pattern and cutting rounds half away, as if from the exact result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from llvmlite import ir

from hexane.arithmetic.fast.vector_parts import (
    I32,
    I64,
    TO_NEAREST,
    TOWARDS_ZERO,
    VOID,
    VectorShape,
    constant,
    decoded,
    load_lanes,
    magnitudes_to_halves,
    over_line,
    splat,
    store_lanes,
)

SHORT, HALF, SINGLE = ir.IntType(16), ir.HalfType(), ir.FloatType()
MAGNITUDE, INFINITE = 0x7FFFFFFF, 0x7F800000

Operation = Callable[..., ir.Value]


def _read(builder: ir.IRBuilder, halves: ir.Value, shape: VectorShape) -> ir.Value:
    """Halfwords as the planar engine reads them, float32: NaN is +infinity."""
    lanes = halves.type.count
    singles, integers = ir.VectorType(SINGLE, lanes), ir.VectorType(I32, lanes)
    if shape.converts:
        value = builder.fpext(builder.bitcast(halves, ir.VectorType(HALF, lanes)), singles)
        unordered = builder.fcmp_unordered("uno", value, value)
        return builder.select(unordered, constant(singles, float("inf")), value)
    bits, _ = decoded(builder, halves, step=0)
    half = builder.zext(halves, integers)
    magnitude = builder.and_(half, constant(integers, 0x7FFF))
    negative = builder.icmp_signed("==", half, constant(integers, 0xFC00))
    sign = builder.select(negative, constant(integers, -(1 << 31)), constant(integers, 0))
    special = builder.icmp_signed(">=", magnitude, constant(integers, 0x7C00))
    bits = builder.select(special, builder.or_(constant(integers, INFINITE), sign), bits)
    return builder.bitcast(bits, singles)


def _exact(builder: ir.IRBuilder, value: ir.Value, shape: VectorShape) -> ir.Value:
    """An exact result in float32, of 22 bits at most, rounded; NaN (0 times infinity) is +0.

    A result that is a tie, made larger by one or two of the steps that it does not use, is none and lies beyond it.
    """
    integers, zero = ir.VectorType(I32, value.type.count), constant(value.type, 0.0)
    value = builder.select(builder.fcmp_unordered("uno", value, value), zero, value)
    if shape.converts:
        halves = _converted(builder, builder.fmul(value, constant(value.type, 1 + 2.0**-23)))
        minus_zero = builder.icmp_signed("==", halves, constant(halves.type, -1 << 15))
        return builder.select(minus_zero, constant(halves.type, 0), halves)
    bits = builder.and_(builder.bitcast(value, integers), constant(integers, MAGNITUDE))
    return magnitudes_to_halves(builder, bits, builder.fcmp_ordered("<", value, zero))


def _converted(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """float32 that is no tie to halfwords, by the processor."""
    lanes = value.type.count
    return builder.bitcast(builder.fptrunc(value, ir.VectorType(HALF, lanes)), ir.VectorType(SHORT, lanes))


def _cut_sum(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """x + y, rounded, where the processor adds without rounding up (AVX-512): what it cuts lies below the place that
    decides, and sums of halfwords are whole steps of subnormal ones."""
    integers, mask = ir.VectorType(I32, x.type.count), ir.IntType(16)
    shorts, module = ir.VectorType(SHORT, x.type.count), builder.module
    add = module.declare_intrinsic("llvm.x86.avx512.add.ps.512", (), ir.FunctionType(x.type, [x.type, x.type, I32]))
    halved = module.declare_intrinsic(
        "llvm.x86.avx512.mask.vcvtps2ph.512", (), ir.FunctionType(shorts, [x.type, I32, shorts, mask])
    )
    total = builder.call(add, [x, y, TOWARDS_ZERO])
    some = builder.fcmp_ordered("one", total, constant(x.type, 0.0))  # neither zero nor NaN, which is +0
    value = builder.bitcast(_to_places(builder, builder.bitcast(total, integers)), x.type)
    return builder.call(halved, [value, TO_NEAREST, constant(shorts, 0), builder.bitcast(some, mask)])


def _sum(builder: ir.IRBuilder, x: ir.Value, y: ir.Value, shape: VectorShape, *, minus: bool) -> ir.Value:
    """x + y or x - y, rounded; what float32 loses of it is known exactly (Knuth's two-sum), and so the cut sum is."""
    integers, zero = ir.VectorType(I32, x.type.count), constant(x.type, 0.0)
    if minus:
        y = builder.fsub(constant(x.type, -0.0), y)
    if shape.masked and x.type.count == 16:
        return _cut_sum(builder, x, y)
    near = builder.fadd(x, y)
    part = builder.fsub(near, x)
    lost = builder.fadd(builder.fsub(x, builder.fsub(near, part)), builder.fsub(y, part))
    outwards = builder.fcmp_ordered("<", builder.fmul(near, lost), zero)  # not so where infinities made it NaN
    bits = builder.add(builder.bitcast(near, integers), builder.sext(outwards, integers))
    some = builder.fcmp_ordered("one", near, zero)  # neither zero nor NaN, which is +0
    if not shape.converts:
        magnitude = builder.and_(bits, constant(integers, MAGNITUDE))
        magnitude = builder.select(some, magnitude, constant(integers, 0))
        return magnitudes_to_halves(builder, magnitude, builder.fcmp_ordered("<", near, zero))
    value = builder.bitcast(builder.select(some, _to_places(builder, bits), constant(integers, 0)), x.type)
    return _converted(builder, value)


def _to_places(builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """Cut sums of halfwords, half a step away from zero, cut to a halfword's places: whole steps of subnormal ones."""
    half_more = builder.add(bits, constant(bits.type, 1 << 12))
    return builder.and_(half_more, constant(bits.type, ~0x1FFF))


def _product(builder: ir.IRBuilder, x: ir.Value, y: ir.Value, shape: VectorShape) -> ir.Value:
    return _exact(builder, builder.fmul(x, y), shape)


def _choice(builder: ir.IRBuilder, x: ir.Value, y: ir.Value, shape: VectorShape, *, sign: str) -> ir.Value:
    return _exact(builder, builder.select(builder.fcmp_ordered(sign, x, y), x, y), shape)


_OPERATIONS: dict[str, Operation] = {
    "planar_add": partial(_sum, minus=False),
    "planar_subtract": partial(_sum, minus=True),
    "planar_multiply": _product,
    "planar_maximum": partial(_choice, sign=">"),
    "planar_minimum": partial(_choice, sign="<"),
}

_SHIFTS: dict[str, Operation] = {
    "planar_add_multiply": _OPERATIONS["planar_add"],
    "planar_subtract_multiply": _OPERATIONS["planar_subtract"],
}

NAMES = (*_OPERATIONS, *_SHIFTS)


def build(module: ir.Module, shape: VectorShape) -> None:
    """All operations on lines of n halfwords; ``out`` may be one of the operands.

    name(a, b, n, out, least), and name(a, shift + (scale << 16), n, out). ``least``: halfwords below it as signed
    integers become it; of a ReLU 0, else that of -0.
    """
    pointer = SHORT.as_pointer()
    for name, operation in _OPERATIONS.items():
        function = ir.Function(module, ir.FunctionType(VOID, [pointer, pointer, I64, pointer, I64]), name)
        _lines(function, shape, operation)
    for name, operation in _SHIFTS.items():
        function = ir.Function(module, ir.FunctionType(VOID, [pointer, I64, I64, pointer]), name)
        _shifted_lines(function, shape, operation)


def _lines(function: ir.Function, shape: VectorShape, operation: Operation) -> None:
    a, b, n, out, least = function.args

    def read(builder: ir.IRBuilder, i: ir.Value, lanes: int, mask: ir.Value | None = None) -> ir.Value:
        x, y = (_read(builder, _load(builder, p, i, lanes, mask), shape) for p in (a, b))
        result = _short(builder, operation(builder, x, y, shape))
        lowest = splat(builder, builder.trunc(least, SHORT), lanes)
        return builder.select(builder.icmp_signed(">", result, lowest), result, lowest)

    over_line(function, n, shape, read, partial(_store, out=out))


def _shifted_lines(function: ir.Function, shape: VectorShape, operation: Operation) -> None:
    a, shift_scale, n, out = function.args

    def read(builder: ir.IRBuilder, i: ir.Value, lanes: int, mask: ir.Value | None = None) -> ir.Value:
        by, factor = (
            _read(builder, splat(builder, builder.trunc(value, SHORT), lanes), shape)
            for value in (shift_scale, builder.lshr(shift_scale, ir.Constant(I64, 16)))
        )
        x = _read(builder, _load(builder, a, i, lanes, mask), shape)
        again = _read(builder, _short(builder, operation(builder, x, by, shape)), shape)
        return _short(builder, _product(builder, again, factor, shape))

    over_line(function, n, shape, read, partial(_store, out=out))


def _load(builder: ir.IRBuilder, pointer: ir.Value, i: ir.Value, lanes: int, mask: ir.Value | None) -> ir.Value:
    return load_lanes(builder, pointer, i, ir.VectorType(SHORT, lanes), 2, mask)


def _store(
    builder: ir.IRBuilder, halves: ir.Value, i: ir.Value, mask: ir.Value | None = None, *, out: ir.Value
) -> None:
    store_lanes(builder, halves, out, i, 2, mask)


def _short(builder: ir.IRBuilder, code: ir.Value) -> ir.Value:
    """Halfwords in int32 lanes as such; they may be so already."""
    halves = ir.VectorType(SHORT, code.type.count)
    return code if code.type == halves else builder.trunc(code, halves)
