"""Parts of the vector code: the register tile, loops, loads, and decoded halfwords."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from llvmlite import ir

SEGMENT = 16
"""How many k share one bound of a partial sum."""

DEPTH = 256
"""k per pass: a panel of this depth stays in the first-level cache."""

ROW_PITCH = DEPTH + 16
"""From one decoded row of a panel to the next: an odd number of cache lines."""

MAGIC32 = 192.0
"""At 192 the float32 step is one unit of 2^-16: adding a product rounds it to a unit, up to sums of 64."""

DROP_SUM = 13
"""Biased exponents (subnormals as 1) that add up to this or less drop the product: -17 = 13 - 2 * 15 (numerics
§3.1)."""

ALL_ZERO = 128
"""Stands for the smallest exponent of operands that are all zero: no product at all."""

I32, I64, VOID = ir.IntType(32), ir.IntType(64), ir.VoidType()


@dataclass(frozen=True)
class VectorShape:
    """A register tile: `lanes` float32 lanes in a vector, `rows` by `vectors` accumulators."""

    lanes: int
    rows: int
    vectors: int
    masked: bool = False
    """Whether the processor leaves lanes of a result alone (AVX-512); else a dropped operand is made zero."""
    converts: bool = False
    """Whether the processor turns halfwords into float32 by itself."""
    cuts: bool = False
    """Whether it turns eight float32 into halfwords that are cut (F16C)."""

    @property
    def columns(self) -> int:
        return self.lanes * self.vectors


def vector_pointer(builder: ir.IRBuilder, pointer: ir.Value, index: ir.Value, vector: ir.VectorType) -> ir.Value:
    return builder.bitcast(builder.gep(pointer, [index]), vector.as_pointer())


def load(builder: ir.IRBuilder, pointer: ir.Value, align: int) -> ir.Value:
    value = builder.load(pointer)
    value.align = align
    return value


def constant(vector: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(vector, [ir.Constant(vector.element, value)] * vector.count)


def splat(builder: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    """A vector of one number."""
    vector = ir.VectorType(value.type, lanes)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(I32, 0))
    spread = ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), spread)


def loop(function: ir.Function, before: ir.Block, count: ir.Value, step: int) -> tuple[ir.IRBuilder, ir.PhiInstr]:
    """The body of `for i in range(0, count, step)`, count > 0; close it with `close`."""
    body = function.append_basic_block()
    ir.IRBuilder(before).branch(body)
    builder = ir.IRBuilder(body)
    i = builder.phi(I64)
    i.add_incoming(ir.Constant(I64, 0), before)
    return builder, i


def close(builder: ir.IRBuilder, i: ir.PhiInstr, count: ir.Value, step: int) -> tuple[ir.IRBuilder, ir.Block]:
    """Ends a loop; gives a builder behind it and the block that the loop's phis come from."""
    end = builder.block
    following = builder.add(i, ir.Constant(I64, step))
    after = end.function.append_basic_block()
    builder.cbranch(builder.icmp_signed("<", following, count), i.parent, after)
    i.add_incoming(following, end)
    return ir.IRBuilder(after), end


def for_range(
    builder: ir.IRBuilder, start: ir.Value, stop: ir.Value, step: int, body: Callable[[ir.IRBuilder, ir.Value], None]
) -> ir.IRBuilder:
    """`for i in range(start, stop, step): body(i)`, possibly empty, with a body of one block; a builder behind it."""
    before, function = builder.block, builder.block.function
    inside, after = function.append_basic_block(), function.append_basic_block()
    builder.cbranch(builder.icmp_signed("<", start, stop), inside, after)
    inner = ir.IRBuilder(inside)
    i = inner.phi(I64)
    i.add_incoming(start, before)
    body(inner, i)
    following = inner.add(i, ir.Constant(I64, step))
    i.add_incoming(following, inside)
    inner.cbranch(inner.icmp_signed("<", following, stop), inside, after)
    return ir.IRBuilder(after)


def for_lanes(function: ir.Function, n: ir.Value, lanes: int, body: Callable[..., None]) -> None:
    """body(i, lanes) over range(n): whole vectors, then fours, then one by one; ends the function."""
    builder = ir.IRBuilder(function.append_basic_block())
    start: ir.Value = ir.Constant(I64, 0)
    for width in sorted({lanes, 4, 1}, reverse=True):
        stop = builder.and_(n, ir.Constant(I64, -width))
        builder = for_range(builder, start, stop, width, partial(body, lanes=width))
        start = stop
    builder.ret_void()


def over_line(
    function: ir.Function, n: ir.Value, shape: VectorShape, read: Callable[..., ir.Value], write: Callable[..., None]
) -> None:
    """write(read(i, lanes), i) over range(n), in vectors; ends the function. What is written may be what is read.

    The rest of a line is one vector: with a mask where the processor has them, which goes with `load_lanes` and
    `store_lanes`; else one that ends where the line does, read before anything is written. Lines shorter than four
    elements go one by one.
    """
    builder, nothing = ir.IRBuilder(function.append_basic_block()), ir.Constant(I64, 0)

    def each(builder: ir.IRBuilder, i: ir.Value, lanes: int) -> None:
        write(builder, read(builder, i, lanes), i)

    if shape.masked:
        whole = builder.and_(n, ir.Constant(I64, -shape.lanes))
        builder = for_range(builder, nothing, whole, shape.lanes, partial(each, lanes=shape.lanes))

        def rest(builder: ir.IRBuilder, i: ir.Value) -> None:
            remaining = splat(builder, builder.sub(n, i), shape.lanes)
            lane = ir.Constant(remaining.type, [ir.Constant(I64, j) for j in range(shape.lanes)])
            mask = builder.icmp_signed("<", lane, remaining)
            write(builder, read(builder, i, shape.lanes, mask), i, mask)

        for_range(builder, whole, n, shape.lanes, rest).ret_void()
        return
    for width in sorted({shape.lanes, 4}, reverse=True):
        wide, narrow = function.append_basic_block(), function.append_basic_block()
        builder.cbranch(builder.icmp_signed(">=", n, ir.Constant(I64, width)), wide, narrow)
        builder = ir.IRBuilder(wide)
        last = builder.sub(n, ir.Constant(I64, width))
        end = read(builder, last, width)
        whole = builder.and_(builder.sub(n, ir.Constant(I64, 1)), ir.Constant(I64, -width))
        builder = for_range(builder, nothing, whole, width, partial(each, lanes=width))
        write(builder, end, last)
        builder.ret_void()
        builder = ir.IRBuilder(narrow)
    for_range(builder, nothing, n, 1, partial(each, lanes=1)).ret_void()


def load_lanes(
    builder: ir.IRBuilder, pointer: ir.Value, i: ir.Value, vector: ir.VectorType, align: int, mask: ir.Value | None
) -> ir.Value:
    """A vector of integers from place i on; lanes that a mask leaves out are 0 and are not touched."""
    place = vector_pointer(builder, pointer, i, vector)
    if mask is None:
        return load(builder, place, align)
    kind = ir.FunctionType(vector, [vector.as_pointer(), I32, mask.type, vector])
    masked = _intrinsic(builder, "load", vector, kind)
    return builder.call(masked, [place, ir.Constant(I32, align), mask, constant(vector, 0)])


def store_lanes(
    builder: ir.IRBuilder, value: ir.Value, pointer: ir.Value, i: ir.Value, align: int, mask: ir.Value | None
) -> None:
    """A vector of integers to place i on, but for the lanes that a mask leaves out."""
    place = vector_pointer(builder, pointer, i, value.type)
    if mask is None:
        builder.store(value, place).align = align
        return
    kind = ir.FunctionType(VOID, [value.type, value.type.as_pointer(), I32, mask.type])
    builder.call(_intrinsic(builder, "store", value.type, kind), [value, place, ir.Constant(I32, align), mask])


def _intrinsic(builder: ir.IRBuilder, verb: str, vector: ir.VectorType, kind: ir.FunctionType) -> ir.Function:
    lanes, width = vector.count, vector.element.width
    name = f"llvm.masked.{verb}.v{lanes}i{width}.p0v{lanes}i{width}"
    module = builder.module
    return module.globals[name] if name in module.globals else ir.Function(module, kind, name)


def decoded(builder: ir.IRBuilder, halves: ir.Value, step: int) -> tuple[ir.Value, ...]:
    """A vector of halfwords: their float32 bit patterns, exponent 31 as a binade, and biased exponents.

    With `step`, values other than zero are moved that many float32 steps away from zero.
    """
    lanes = halves.type.count
    integers = ir.VectorType(I32, lanes)
    floats = ir.VectorType(ir.FloatType(), lanes)

    def every(value: int) -> ir.Constant:
        return constant(integers, value)

    half = builder.zext(halves, integers)
    magnitude = builder.and_(half, every(0x7FFF))
    normal = builder.add(builder.shl(magnitude, every(13)), every(112 << 23))
    small = builder.fmul(builder.uitofp(magnitude, floats), constant(floats, 2.0**-24))
    is_small = builder.icmp_signed("<", magnitude, every(1024))
    bits = builder.select(is_small, builder.bitcast(small, integers), normal)
    zero = builder.icmp_signed("==", magnitude, every(0))
    if step:
        bits = builder.select(zero, every(0), builder.add(bits, every(step)))
    bits = builder.or_(bits, builder.shl(builder.and_(half, every(0x8000)), every(16)))
    exponent = builder.select(is_small, every(1), builder.lshr(magnitude, every(10)))
    return bits, builder.select(zero, every(ALL_ZERO), exponent)


def units_to_halves(builder: ir.IRBuilder, value: ir.Value, shape: VectorShape) -> ir.Value:
    """A vector of sums (int32 units) below the limit as halfwords, half away (docs/reference/numerics.md 3.4).

    Seven low bits of a sum from 2^24 on lie below the place that decides the rounding; without them it is exact in
    float32, where adding half a step to the bit pattern and cutting rounds half away.
    """
    if shape.masked and value.type.count == 16:
        return _units_to_halves_cut(builder, value)
    if shape.cuts and value.type.count == 8:
        return _units_to_halves_signed(builder, value)
    integers, floats = value.type, ir.VectorType(ir.FloatType(), value.type.count)

    def every(number: int) -> ir.Constant:
        return constant(integers, number)

    negative = builder.icmp_signed("<", value, every(0))
    magnitude = builder.select(negative, builder.neg(value), value)
    truncated = builder.and_(magnitude, every(~127))
    exact = builder.select(builder.icmp_signed(">=", magnitude, every(1 << 24)), truncated, magnitude)
    bits = builder.bitcast(builder.sitofp(exact, floats), integers)
    rounded = builder.lshr(builder.add(bits, every(1 << 12)), every(13))
    normal = builder.sub(rounded, every(128 << 10))
    subnormal = builder.shl(magnitude, every(8))
    half = builder.select(builder.icmp_signed("<", magnitude, every(4)), subnormal, normal)
    signed = builder.or_(half, builder.select(negative, every(0x8000), every(0)))
    return builder.trunc(signed, ir.VectorType(ir.IntType(16), value.type.count))


def converted(builder: ir.IRBuilder, halves: ir.Value, step: int) -> tuple[ir.Value, ir.Value]:
    """As `decoded` on a processor that converts halfwords, but for infinities and NaN; the exponents in int16 lanes."""
    lanes = halves.type.count
    integers, floats = ir.VectorType(I32, lanes), ir.VectorType(ir.FloatType(), lanes)

    def short(value: int) -> ir.Constant:
        return constant(halves.type, value)

    magnitude = builder.and_(halves, short(0x7FFF))
    number = builder.fpext(builder.bitcast(halves, ir.VectorType(ir.HalfType(), lanes)), floats)
    shifted = builder.shl(builder.sext(halves, integers), constant(integers, 13))
    binade = builder.add(builder.and_(shifted, constant(integers, 0x8FFFE000)), constant(integers, 112 << 23))
    special = builder.icmp_unsigned(">=", magnitude, short(0x7C00))
    bits = builder.select(special, binade, builder.bitcast(number, integers))
    zero = builder.icmp_unsigned("==", magnitude, short(0))
    bits = builder.select(zero, bits, builder.add(bits, constant(integers, step)))
    exponent = builder.lshr(magnitude, short(10))
    exponent = builder.select(builder.icmp_unsigned("<", exponent, short(1)), short(1), exponent)
    return bits, builder.select(zero, short(ALL_ZERO), exponent)


def stepped(builder: ir.IRBuilder, halves: ir.Value) -> ir.Value:
    """A vector of halfwords, none infinite or NaN, as float32 a step away from zero, if they are not zero.

    What is added is more than half a step and less than one and a half.
    """
    lanes = halves.type.count
    floats = ir.VectorType(ir.FloatType(), lanes)
    fma = builder.module.declare_intrinsic(f"llvm.fma.v{lanes}f32", (), ir.FunctionType(floats, [floats] * 3))
    number = builder.fpext(builder.bitcast(halves, ir.VectorType(ir.HalfType(), lanes)), floats)
    return builder.call(fma, [number, constant(floats, 0.6875 * 2.0**-23), number])


TO_NEAREST, TOWARDS_ZERO = ir.Constant(I32, 8), ir.Constant(I32, 11)
"""How an AVX-512 operation rounds, without exceptions: to nearest, or it cuts."""


def _units_to_halves_cut(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """`units_to_halves` with conversions that cut, both to float32 and to halfwords, subnormal ones too."""
    integers, floats = value.type, ir.VectorType(ir.FloatType(), value.type.count)
    shorts, mask = ir.VectorType(ir.IntType(16), value.type.count), ir.IntType(16)
    module = builder.module
    single = module.declare_intrinsic(
        "llvm.x86.avx512.sitofp.round.v16f32.v16i32", (), ir.FunctionType(floats, [integers, I32])
    )
    halved = module.declare_intrinsic(
        "llvm.x86.avx512.mask.vcvtps2ph.512", (), ir.FunctionType(shorts, [floats, I32, shorts, mask])
    )
    number = builder.fmul(builder.call(single, [value, TOWARDS_ZERO]), constant(floats, 2.0**-16))
    bits = builder.bitcast(number, integers)
    some = builder.icmp_signed("!=", value, constant(integers, 0))  # else it were a subnormal float, which is slow
    bits = builder.select(some, builder.add(bits, constant(integers, 1 << 12)), bits)
    number = builder.bitcast(bits, floats)
    return builder.call(halved, [number, TOWARDS_ZERO, constant(shorts, 0), ir.Constant(mask, -1)])


def _units_to_halves_signed(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """`units_to_halves` where only the conversion to halfwords can cut."""
    integers, floats = value.type, ir.VectorType(ir.FloatType(), 8)
    sign = builder.module.declare_intrinsic(
        "llvm.x86.avx2.psign.d", (), ir.FunctionType(integers, [integers, integers])
    )
    magnitude = builder.select(builder.icmp_signed("<", value, constant(integers, 0)), builder.neg(value), value)
    large = builder.sext(builder.icmp_signed(">=", magnitude, constant(integers, SMALL)), integers)
    exact = builder.and_(magnitude, builder.not_(builder.and_(large, constant(integers, (1 << 7) - 1))))
    return _halved(builder, builder.sitofp(builder.call(sign, [exact, value]), floats))


def _halved(builder: ir.IRBuilder, number: ir.Value) -> ir.Value:
    """Exact sums (float32, in units) as halfwords, half away, by a conversion that cuts.

    Half a step of the result, 2^-11 of the power of two below the number, is added as a number: exact, or the next
    power of two is near and what is lost lies below the cut.
    """
    integers, floats = ir.VectorType(I32, 8), number.type
    module = builder.module
    fma = module.declare_intrinsic("llvm.fma.v8f32", (), ir.FunctionType(floats, [floats] * 3))
    halved = module.declare_intrinsic(
        "llvm.x86.vcvtps2ph.256", (), ir.FunctionType(ir.VectorType(ir.IntType(16), 8), [floats, I32])
    )
    power = builder.and_(builder.bitcast(number, integers), constant(integers, -1 << 23))
    scaled = builder.fmul(number, constant(floats, 2.0**-16))
    rounded = builder.call(fma, [builder.bitcast(power, floats), constant(floats, 2.0**-27), scaled])
    return builder.call(halved, [rounded, ir.Constant(I32, 3)])


SMALL = 1 << 24
"""Sums below, in units, are exact in float32."""


def finished(
    builder: ir.IRBuilder, units: ir.Value, ends: tuple[ir.Value, ir.Value], shape: VectorShape, *, small: bool = False
) -> ir.Value:
    """A vector of sums below the limit as halfwords: sums below the lowest (ends[0], a vector of int32) are that, and
    halfwords above the cap (ends[1], of int16, unsigned) are that.

    A ReLU is a lowest of 0, and there is a cap only behind one; without them the lowest is the least int32, the cap
    0xFFFF. small: all sums are below `SMALL` in magnitude.
    """
    lowest, cap = ends
    value = builder.select(builder.icmp_signed(">", units, lowest), units, lowest)
    if small and shape.cuts and value.type.count == 8:
        half = _halved(builder, builder.sitofp(value, ir.VectorType(ir.FloatType(), 8)))
    else:
        half = units_to_halves(builder, value, shape)
    return builder.select(builder.icmp_unsigned("<", half, cap), half, cap)


def magnitudes_to_halves(builder: ir.IRBuilder, bits: ir.Value, negative: ir.Value) -> ir.Value:
    """Magnitudes (bit patterns of float32) as halfwords in int32 lanes, half away.

    A magnitude is an exact result, or lies on the same side of every tie. From 65520 on infinity; zero has no sign.
    Below the normal numbers, half a step is added as a number, which is exact, and the steps are counted.
    """
    integers, singles = bits.type, ir.VectorType(ir.FloatType(), bits.type.count)

    def whole(number: int) -> ir.Constant:
        return constant(integers, number)

    normal = builder.sub(builder.lshr(builder.add(bits, whole(1 << 12)), whole(13)), whole(112 << 10))
    normal = builder.select(builder.icmp_signed("<", normal, whole(0x7C00)), normal, whole(0x7C00))
    small = builder.icmp_signed("<", bits, whole(113 << 23))
    value = builder.bitcast(builder.select(small, bits, whole(0)), singles)
    steps = builder.fmul(builder.fadd(value, constant(singles, 2.0**-25)), constant(singles, 2.0**24))
    code = builder.select(small, builder.fptosi(steps, integers), normal)
    signed = builder.and_(negative, builder.icmp_signed("!=", code, whole(0)))
    return builder.or_(code, builder.select(signed, whole(0x8000), whole(0)))
