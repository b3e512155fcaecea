"""Operands made ready, as vector code: decoded, interleaved, with the exponents and thresholds of the drop rule."""

from __future__ import annotations

from llvmlite import ir

from hexane.arithmetic.fast.vector_parts import (
    I32,
    I64,
    ROW_PITCH,
    SEGMENT,
    VOID,
    VectorShape,
    close,
    constant,
    converted,
    decoded,
    for_lanes,
    for_range,
    load,
    load_lanes,
    loop,
    over_line,
    splat,
    store_lanes,
    vector_pointer,
)


def build_interleave(module: ir.Module, shape: VectorShape) -> None:
    """interleave(source, n, target): `rows` rows, ROW_PITCH apart, of n int32 each become n groups of `rows`."""
    pointers = I32.as_pointer()
    function = ir.Function(module, ir.FunctionType(VOID, [pointers, I64, pointers]), "interleave")
    source, n, target = function.args

    def body(builder: ir.IRBuilder, k: ir.Value) -> None:
        begin, end = builder.gep(source, [k]), builder.gep(target, [builder.mul(k, ir.Constant(I64, shape.rows))])
        values = [builder.load(builder.gep(begin, [ir.Constant(I64, r * ROW_PITCH)])) for r in range(shape.rows)]
        for r, value in enumerate(values):
            builder.store(value, builder.gep(end, [ir.Constant(I64, r)]))

    builder = ir.IRBuilder(function.append_basic_block())
    for_range(builder, ir.Constant(I64, 0), n, 1, body).ret_void()


def build_decode_columns(module: ir.Module, shape: VectorShape) -> None:
    """decode_columns(source, n, values, exponents): n halfwords to float32, a step from zero, and exponents (uint8)."""
    byte = ir.IntType(8)
    arguments = [ir.IntType(16).as_pointer(), I64, I32.as_pointer(), byte.as_pointer()]
    function = ir.Function(module, ir.FunctionType(VOID, arguments), "decode_columns")
    source, n, values, exponents = function.args

    def read(builder: ir.IRBuilder, i: ir.Value, lanes: int, mask: ir.Value | None = None) -> ir.Value:
        return load_lanes(builder, source, i, ir.VectorType(ir.IntType(16), lanes), 2, mask)

    def write(builder: ir.IRBuilder, halves: ir.Value, i: ir.Value, mask: ir.Value | None = None) -> None:
        bits, exponent = (converted if shape.converts else decoded)(builder, halves, step=1)
        store_lanes(builder, bits, values, i, 4, mask)
        store_lanes(builder, builder.trunc(exponent, ir.VectorType(byte, halves.type.count)), exponents, i, 1, mask)

    over_line(function, n, shape, read, write)


def build_decode_rows(module: ir.Module) -> None:
    """decode_rows(source, n, values, exponents, norms): n halfwords, whole segments, to float32.

    exponents (uint8) keep the least of what stood there and what is decoded; norms (one float32 per segment) the
    largest
    of what stood there and the sum of squares.
    """
    byte, f32 = ir.IntType(8), ir.FloatType()
    arguments = [ir.IntType(16).as_pointer(), I64, I32.as_pointer(), byte.as_pointer(), f32.as_pointer()]
    function = ir.Function(module, ir.FunctionType(VOID, arguments), "decode_rows")
    source, n, values, exponents, norms = function.args
    floats, bytes_ = ir.VectorType(f32, SEGMENT), ir.VectorType(byte, SEGMENT)
    add = module.declare_intrinsic(f"llvm.vector.reduce.fadd.v{SEGMENT}f32", (), ir.FunctionType(f32, [f32, floats]))

    def body(builder: ir.IRBuilder, i: ir.Value) -> None:
        halves = load(builder, vector_pointer(builder, source, i, ir.VectorType(ir.IntType(16), SEGMENT)), 2)
        bits, exponent = decoded(builder, halves, step=0)
        builder.store(bits, vector_pointer(builder, values, i, bits.type)).align = 4
        place = vector_pointer(builder, exponents, i, bytes_)
        old, new = load(builder, place, 1), builder.trunc(exponent, bytes_)
        builder.store(builder.select(builder.icmp_unsigned("<", old, new), old, new), place).align = 1
        number = builder.bitcast(bits, floats)
        squares = builder.call(add, [ir.Constant(f32, 0.0), builder.fmul(number, number)], fastmath=("reassoc",))
        norm = builder.gep(norms, [builder.lshr(i, ir.Constant(I64, SEGMENT.bit_length() - 1))])
        before = builder.load(norm)
        builder.store(builder.select(builder.fcmp_ordered(">", before, squares), before, squares), norm)

    builder = ir.IRBuilder(function.append_basic_block())
    for_range(builder, ir.Constant(I64, 0), n, SEGMENT, body).ret_void()


def build_thresholds(module: ir.Module, shape: VectorShape) -> None:
    """thresholds(values, n, limits): below which magnitude the other operand of a product with each value is dropped.

    2^(-16 - e), and 0 from exponent e = -2 on, because the other operand's exponent is -14 at least:
    docs/reference/numerics.md 11.3.
    """
    pointers = I32.as_pointer()
    function = ir.Function(module, ir.FunctionType(VOID, [pointers, I64, pointers]), "thresholds")
    values, n, limits = function.args

    def body(builder: ir.IRBuilder, i: ir.Value, lanes: int) -> None:
        integers = ir.VectorType(I32, lanes)
        bits = load(builder, vector_pointer(builder, values, i, integers), 4)
        field = builder.and_(builder.lshr(bits, constant(integers, 23)), constant(integers, 255))
        subnormal = constant(integers, 113)
        field = builder.select(builder.icmp_signed("<", field, subnormal), subnormal, field)
        limit = builder.shl(builder.sub(constant(integers, 238), field), constant(integers, 23))
        can_drop = builder.icmp_signed("<=", field, constant(integers, 124))
        limit = builder.select(can_drop, limit, constant(integers, 0))
        builder.store(limit, vector_pointer(builder, limits, i, integers)).align = 4

    for_lanes(function, n, shape.lanes, body)


def build_begin(module: ir.Module, shape: VectorShape) -> None:
    """begin(sums, starts, n) -> the largest magnitude: a tile's sums (int32) become those of n rows (int64), else 0."""
    function = ir.Function(module, ir.FunctionType(I64, [I32.as_pointer(), I64.as_pointer(), I64]), "begin")
    sums, starts, n = function.args
    integers = ir.VectorType(I32, shape.lanes)
    before = function.append_basic_block()
    builder = ir.IRBuilder(before)
    none = builder.alloca(I64)  # what rows that there are not begin with
    builder.store(ir.Constant(I64, 0), none)
    builder, r = loop(function, before, ir.Constant(I64, shape.rows), 1)
    largest = builder.phi(I64)
    in_range = builder.icmp_signed("<", r, n)
    value = load(builder, builder.select(in_range, builder.gep(starts, [r]), none), 8)
    magnitude = builder.select(builder.icmp_signed("<", value, ir.Constant(I64, 0)), builder.neg(value), value)
    most = builder.select(builder.icmp_signed(">", magnitude, largest), magnitude, largest)
    every = splat(builder, builder.trunc(value, I32), shape.lanes)
    for v in range(shape.vectors):
        column = builder.add(builder.mul(r, ir.Constant(I64, shape.columns)), ir.Constant(I64, v * shape.lanes))
        builder.store(every, vector_pointer(builder, sums, column, integers)).align = 4
    builder, end = close(builder, r, ir.Constant(I64, shape.rows), 1)
    largest.add_incoming(ir.Constant(I64, 0), before)
    largest.add_incoming(most, end)
    builder.ret(most)


def build_widen(module: ir.Module, shape: VectorShape, name: str, *, exact: bool = False, scale: float = 1.0) -> None:
    """widen(values, n, out): n float32 as float64, by `scale`.

    ``exact``: values of the vector operand, whose step away from zero becomes a factor 1 + 2^-40
    (docs/reference/numerics.md 11.3).
    """
    double = ir.DoubleType()
    function = ir.Function(module, ir.FunctionType(VOID, [I32.as_pointer(), I64, double.as_pointer()]), name)
    values, n, out = function.args

    def body(builder: ir.IRBuilder, i: ir.Value, lanes: int) -> None:
        integers, wide = ir.VectorType(I32, lanes), ir.VectorType(double, lanes)
        bits = load(builder, vector_pointer(builder, values, i, integers), 4)
        if exact:
            bits = builder.and_(bits, constant(integers, ~0x1FFF))
        number = builder.fpext(builder.bitcast(bits, ir.VectorType(ir.FloatType(), lanes)), wide)
        factor = 1.0 + 2.0**-40 if exact else scale
        if factor != 1.0:
            number = builder.fmul(number, constant(wide, factor))
        builder.store(number, vector_pointer(builder, out, i, wide)).align = 8

    for_lanes(function, n, shape.lanes, body)
