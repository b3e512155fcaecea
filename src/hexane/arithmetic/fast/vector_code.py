"""The inner loops as LLVM vector code, for any vector width (spec/numerics §11.3).

One kernel works on a tile of `rows` by `columns` outputs and a list of k. Its accumulators are float vectors that start
at a magic number: at 192 the float32 step is one unit of 2^-16, so that one fused multiply-add per product both rounds
the product to a unit and adds it, exactly, as long as the partial sum stays below 64 in magnitude. Ties go away from
zero because the packed second operand was moved one float32 step away from zero. The float64 kernel is the same with
the
magic number 1.5 * 2^36, for sums up to 2^35.

A product is dropped by leaving its lane of the accumulator alone: the list of k comes in two parts, those that cannot
drop a product in this tile and those that must be tested, one compare per vector with the threshold of the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

MAGIC32 = 192.0
MAGIC64 = 1.5 * 2.0**36

SEGMENT = 16
"""How many k share one bound of a partial sum."""

DEPTH = 256
"""k per pass: a panel of this depth stays in the first-level cache."""

ROW_PITCH = DEPTH + 16
"""From one decoded row of a panel to the next: an odd number of cache lines."""

DROP_SUM = 13
"""Biased exponents (subnormals as 1) that add up to this or less drop the product: -17 = 13 - 2 * 15 (numerics
§3.1)."""

ALL_ZERO = 128
"""Stands for the smallest exponent of operands that are all zero: no product at all."""

_I32, _I64, _VOID = ir.IntType(32), ir.IntType(64), ir.VoidType()


@dataclass(frozen=True)
class Shape:
    """A register tile: `lanes` float32 lanes in a vector, `rows` by `vectors` accumulators."""

    lanes: int
    rows: int
    vectors: int
    masked: bool = False
    """Whether the processor leaves lanes of a result alone (AVX-512); else a dropped operand is made zero."""

    @property
    def columns(self) -> int:
        return self.lanes * self.vectors


class _Builder:
    """One kernel: k-loops over accumulators in registers."""

    def __init__(self, module: ir.Module, name: str, shape: Shape, scalar: ir.Type, magic: float) -> None:
        self.rows, self.scalar, self.masked = shape.rows, scalar, shape.masked
        wide = isinstance(scalar, ir.DoubleType)
        self.lanes = shape.lanes // 2 if wide else shape.lanes
        self.vectors = shape.vectors
        self.stride = shape.columns  # of the packed second operand, in elements
        self.vector = ir.VectorType(scalar, self.lanes)
        self.module = module
        pointer, indices = scalar.as_pointer(), _I32.as_pointer()
        kind = ir.FunctionType(
            _VOID, [pointer, pointer, pointer, indices, _I64, indices, _I64, _I32.as_pointer(), _I64]
        )
        self.function = ir.Function(module, kind, name)
        self.a, self.t, self.b, self.plain, self.n_plain, self.tested, self.n_tested, self.c, self.c_stride = (
            self.function.args
        )
        for argument in (self.a, self.t, self.b, self.plain, self.tested):
            argument.add_attribute("noalias")
        self.magic = ir.Constant(self.vector, [ir.Constant(scalar, magic)] * self.lanes)
        bits = "f64" if wide else "f32"
        self.fma = module.declare_intrinsic(
            f"llvm.fma.v{self.lanes}{bits}", (), ir.FunctionType(self.vector, [self.vector] * 3)
        )
        self.fabs = module.declare_intrinsic(
            f"llvm.fabs.v{self.lanes}{bits}", (), ir.FunctionType(self.vector, [self.vector])
        )

    def splat(self, builder: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
        value = builder.load(pointer)
        one = builder.insert_element(ir.Constant(self.vector, ir.Undefined), value, ir.Constant(_I32, 0))
        mask = ir.Constant(ir.VectorType(_I32, self.lanes), [0] * self.lanes)
        return builder.shuffle_vector(one, ir.Constant(self.vector, ir.Undefined), mask)

    def loop(
        self, before: ir.Block, start: list[ir.Value], indices: ir.Value, count: ir.Value, test: bool
    ) -> tuple[ir.Block, list[ir.Value]]:
        """A loop over `count` listed k; gives the block after it and the accumulators there."""
        body, after = (self.function.append_basic_block() for _ in range(2))
        builder = ir.IRBuilder(before)
        builder.cbranch(builder.icmp_signed(">", count, ir.Constant(_I64, 0)), body, after)
        builder = ir.IRBuilder(body)
        i = builder.phi(_I64)
        i.add_incoming(ir.Constant(_I64, 0), before)
        phis = []
        for value in start:
            phi = builder.phi(self.vector)
            phi.add_incoming(value, before)
            phis.append(phi)
        k = builder.sext(builder.load(builder.gep(indices, [i])), _I64)
        first = builder.mul(k, ir.Constant(_I64, self.rows))
        a, t = builder.gep(self.a, [first]), builder.gep(self.t, [first])
        b = builder.gep(self.b, [builder.mul(k, ir.Constant(_I64, self.stride))])
        w = []
        for v in range(self.vectors):
            pointer = builder.bitcast(builder.gep(b, [ir.Constant(_I64, v * self.lanes)]), self.vector.as_pointer())
            load = builder.load(pointer)
            load.align = 4
            w.append(load)
        zero = ir.Constant(self.vector, [ir.Constant(self.scalar, 0.0)] * self.lanes)
        magnitude = [builder.call(self.fabs, [value]) for value in w] if test else []
        ends = []
        for row in range(self.rows):
            place = [ir.Constant(_I64, row)]
            x = self.splat(builder, builder.gep(a, place))
            limit = self.splat(builder, builder.gep(t, place)) if test else None
            for v in range(self.vectors):
                old = phis[row * self.vectors + v]
                if test and self.masked:
                    new = builder.call(self.fma, [x, w[v], old])
                    new = builder.select(builder.fcmp_ordered(">=", magnitude[v], limit), new, old)
                elif test:
                    kept = builder.select(builder.fcmp_ordered(">=", magnitude[v], limit), w[v], zero)
                    new = builder.call(self.fma, [x, kept, old])
                else:
                    new = builder.call(self.fma, [x, w[v], old])
                ends.append(new)
        following = builder.add(i, ir.Constant(_I64, 1))
        builder.cbranch(builder.icmp_signed("<", following, count), body, after)
        i.add_incoming(following, body)
        for phi, end in zip(phis, ends, strict=True):
            phi.add_incoming(end, body)
        builder = ir.IRBuilder(after)
        merged = []
        for value, end in zip(start, ends, strict=True):
            phi = builder.phi(self.vector)
            phi.add_incoming(value, before)
            phi.add_incoming(end, body)
            merged.append(phi)
        return after, merged

    def build(self) -> None:
        block = self.function.append_basic_block()
        accumulators: list[ir.Value] = [self.magic] * (self.rows * self.vectors)
        block, accumulators = self.loop(block, accumulators, self.plain, self.n_plain, test=False)
        block, accumulators = self.loop(block, accumulators, self.tested, self.n_tested, test=True)
        builder = ir.IRBuilder(block)
        integers = ir.VectorType(_I32, self.lanes)
        for row in range(self.rows):
            for v in range(self.vectors):
                value = accumulators[row * self.vectors + v]
                offset = builder.add(
                    builder.mul(self.c_stride, ir.Constant(_I64, row)), ir.Constant(_I64, v * self.lanes)
                )
                pointer = builder.bitcast(builder.gep(self.c, [offset]), integers.as_pointer())
                load = builder.load(pointer)
                load.align = 4
                store = builder.store(builder.add(load, self.units(builder, value, integers)), pointer)
                store.align = 4
        builder.ret_void()

    def units(self, builder: ir.IRBuilder, value: ir.Value, integers: ir.VectorType) -> ir.Value:
        """The accumulator without its magic number, as integers."""
        if isinstance(self.scalar, ir.FloatType):
            magic = builder.bitcast(self.magic, integers)
            return builder.sub(builder.bitcast(value, integers), magic)
        scale = ir.Constant(self.vector, [ir.Constant(self.scalar, 65536.0)] * self.lanes)
        return builder.fptosi(builder.fmul(builder.fsub(value, self.magic), scale), integers)


def _loop(function: ir.Function, before: ir.Block, count: ir.Value, step: int) -> tuple[ir.IRBuilder, ir.PhiInstr]:
    """The body of `for i in range(0, count, step)`, count > 0; close it with `_close`."""
    body = function.append_basic_block()
    ir.IRBuilder(before).branch(body)
    builder = ir.IRBuilder(body)
    i = builder.phi(_I64)
    i.add_incoming(ir.Constant(_I64, 0), before)
    return builder, i


def _close(builder: ir.IRBuilder, i: ir.PhiInstr, count: ir.Value, step: int) -> tuple[ir.IRBuilder, ir.Block]:
    """Ends a loop; gives a builder behind it and the block that the loop's phis come from."""
    end = builder.block
    following = builder.add(i, ir.Constant(_I64, step))
    after = end.function.append_basic_block()
    builder.cbranch(builder.icmp_signed("<", following, count), i.parent, after)
    i.add_incoming(following, end)
    return ir.IRBuilder(after), end


def _vector_pointer(builder: ir.IRBuilder, pointer: ir.Value, index: ir.Value, vector: ir.VectorType) -> ir.Value:
    return builder.bitcast(builder.gep(pointer, [index]), vector.as_pointer())


def _load(builder: ir.IRBuilder, pointer: ir.Value, align: int) -> ir.Value:
    value = builder.load(pointer)
    value.align = align
    return value


def _constant(vector: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(vector, [ir.Constant(vector.element, value)] * vector.count)


def _build_gather(module: ir.Module, shape: Shape) -> None:
    """gather(source, offsets, n, packed, norms): `columns` floats at every offset, one after the other.

    norms[s] is the largest sum of squares that a column has over segment s of `SEGMENT` k. n > 0.
    """
    f32 = ir.FloatType()
    vector = ir.VectorType(f32, shape.lanes)
    pointers = f32.as_pointer()
    kind = ir.FunctionType(_VOID, [pointers, _I64.as_pointer(), _I64, pointers, pointers])
    function = ir.Function(module, kind, "gather")
    source, offsets, n, packed, norms = function.args
    fma = module.declare_intrinsic(f"llvm.fma.v{shape.lanes}f32", (), ir.FunctionType(vector, [vector] * 3))
    largest = module.declare_intrinsic(f"llvm.maxnum.v{shape.lanes}f32", (), ir.FunctionType(vector, [vector] * 2))
    across = module.declare_intrinsic(f"llvm.vector.reduce.fmax.v{shape.lanes}f32", (), ir.FunctionType(f32, [vector]))

    outer, s = _loop(function, function.append_basic_block(), n, SEGMENT)
    left = outer.sub(n, s)
    full = ir.Constant(_I64, SEGMENT)
    count = outer.select(outer.icmp_signed("<", left, full), left, full)
    before = outer.block
    inner, i = _loop(function, before, count, 1)
    squares = [inner.phi(vector) for _ in range(shape.vectors)]
    k = inner.add(s, i)
    start = inner.gep(source, [_load(inner, inner.gep(offsets, [k]), 8)])
    row = inner.mul(k, ir.Constant(_I64, shape.columns))
    ends = []
    for v, square in enumerate(squares):
        value = _load(inner, _vector_pointer(inner, start, ir.Constant(_I64, v * shape.lanes), vector), 4)
        place = _vector_pointer(inner, packed, inner.add(row, ir.Constant(_I64, v * shape.lanes)), vector)
        inner.store(value, place).align = 4
        ends.append(inner.call(fma, [value, value, square]))
    outer, end = _close(inner, i, count, 1)
    for square, value in zip(squares, ends, strict=True):
        square.add_incoming(_constant(vector, 0.0), before)
        square.add_incoming(value, end)
    total = ends[0]
    for value in ends[1:]:
        total = outer.call(largest, [total, value], fastmath=("nnan",))
    norm = outer.call(across, [total], fastmath=("nnan",))
    outer.store(norm, outer.gep(norms, [outer.sdiv(s, full)]))
    builder, _ = _close(outer, s, n, SEGMENT)
    builder.ret_void()


def _build_split(module: ir.Module, shape: Shape) -> None:
    """split(a, b, first, n, plain, tested) -> number of plain entries + (number of tested entries << 32).

    a and b hold the smallest biased exponent of every k. Lists every k in first .. first + n - 1 where a product can
    drop as tested, where none can as plain, and leaves out those where all are zero. n > 0.
    """
    byte = ir.IntType(8)
    kind = ir.FunctionType(
        _I64, [byte.as_pointer(), byte.as_pointer(), _I64, _I64, _I32.as_pointer(), _I32.as_pointer()]
    )
    function = ir.Function(module, kind, "split")
    a, b, first, n, plain, tested = function.args
    lanes = 16 if shape.masked else 1
    before = function.append_basic_block()
    builder, i = _loop(function, before, n, lanes)
    n_plain, n_tested = builder.phi(_I64), builder.phi(_I64)
    k = builder.add(first, i)
    if lanes == 1:
        integer: ir.Type = ir.IntType(32)
        exponents = [builder.zext(_load(builder, builder.gep(p, [k]), 1), integer) for p in (a, b)]
        total = builder.add(*exponents)
        number = builder.trunc(k, _I32)
        drops = builder.icmp_signed("<=", total, ir.Constant(_I32, DROP_SUM))
        keeps = builder.and_(builder.not_(drops), builder.icmp_signed("<", total, ir.Constant(_I32, ALL_ZERO)))
        ends = []
        for chosen, entries, used in ((keeps, plain, n_plain), (drops, tested, n_tested)):
            builder.store(number, builder.gep(entries, [used])).align = 4
            ends.append(builder.add(used, builder.zext(chosen, _I64)))
    else:
        bytes_, integers = ir.VectorType(byte, lanes), ir.VectorType(_I32, lanes)
        flags = ir.VectorType(ir.IntType(1), lanes)
        compress = module.declare_intrinsic(
            "llvm.x86.avx512.mask.compress.v16i32", (), ir.FunctionType(integers, [integers, integers, flags])
        )
        count = module.declare_intrinsic("llvm.ctpop.i16", (), ir.FunctionType(ir.IntType(16), [ir.IntType(16)]))
        exponents = [builder.zext(_load(builder, _vector_pointer(builder, p, k, bytes_), 1), integers) for p in (a, b)]
        total = builder.add(*exponents)
        lane = ir.Constant(integers, [ir.Constant(_I32, j) for j in range(lanes)])
        spread = ir.Constant(integers, [ir.Constant(_I32, 0)] * lanes)

        def splat(value: ir.Value) -> ir.Value:
            one = builder.insert_element(ir.Constant(integers, ir.Undefined), value, ir.Constant(_I32, 0))
            return builder.shuffle_vector(one, ir.Constant(integers, ir.Undefined), spread)

        number = builder.add(splat(builder.trunc(k, _I32)), lane)
        inside = builder.icmp_signed("<", lane, splat(builder.trunc(builder.sub(n, i), _I32)))
        small = builder.icmp_signed("<=", total, _constant(integers, DROP_SUM))
        drops = builder.and_(inside, small)
        some = builder.icmp_signed("<", total, _constant(integers, ALL_ZERO))
        keeps = builder.and_(builder.and_(inside, some), builder.not_(small))
        ends = []
        for chosen, entries, used in ((keeps, plain, n_plain), (drops, tested, n_tested)):
            close = builder.call(compress, [number, number, chosen])
            builder.store(close, _vector_pointer(builder, entries, used, integers)).align = 4
            ones = builder.call(count, [builder.bitcast(chosen, ir.IntType(16))])
            ends.append(builder.add(used, builder.zext(ones, _I64)))
    builder, end = _close(builder, i, n, lanes)
    for phi, value in ((n_plain, ends[0]), (n_tested, ends[1])):
        phi.add_incoming(ir.Constant(_I64, 0), before)
        phi.add_incoming(value, end)
    builder.ret(builder.or_(ends[0], builder.shl(ends[1], ir.Constant(_I64, 32))))


def _build_halves(module: ir.Module, shape: Shape) -> None:
    """halves(units, out, n): sums below the limit to fp16, half away (spec/numerics §3.4); n a multiple of the lanes.

    Seven low bits of a sum from 2^24 on lie below the place that decides the rounding; without them it is exact in
    float32, where adding half a step to the bit pattern and cutting rounds half away.
    """
    short = ir.IntType(16)
    function = ir.Function(module, ir.FunctionType(_VOID, [_I32.as_pointer(), short.as_pointer(), _I64]), "halves")
    units, out, n = function.args
    integers, floats = ir.VectorType(_I32, shape.lanes), ir.VectorType(ir.FloatType(), shape.lanes)
    builder, i = _loop(function, function.append_basic_block(), n, shape.lanes)

    def constant(value: int) -> ir.Constant:
        return _constant(integers, value)

    value = _load(builder, _vector_pointer(builder, units, i, integers), 4)
    negative = builder.icmp_signed("<", value, constant(0))
    magnitude = builder.select(negative, builder.neg(value), value)
    cut = builder.and_(magnitude, constant(~127))
    exact = builder.select(builder.icmp_signed(">=", magnitude, constant(1 << 24)), cut, magnitude)
    bits = builder.bitcast(builder.sitofp(exact, floats), integers)
    rounded = builder.lshr(builder.add(bits, constant(1 << 12)), constant(13))
    normal = builder.sub(rounded, constant(128 << 10))
    subnormal = builder.shl(magnitude, constant(8))
    half = builder.select(builder.icmp_signed("<", magnitude, constant(4)), subnormal, normal)
    signed = builder.or_(half, builder.select(negative, constant(0x8000), constant(0)))
    shorts = ir.VectorType(short, shape.lanes)
    builder.store(builder.trunc(signed, shorts), _vector_pointer(builder, out, i, shorts)).align = 2
    builder, _ = _close(builder, i, n, shape.lanes)
    builder.ret_void()


def _decoded(builder: ir.IRBuilder, source: ir.Value, i: ir.Value, lanes: int, step: int) -> tuple[ir.Value, ...]:
    """`lanes` halfwords from source[i]: their float32 bit patterns, exponent 31 as a binade, and biased exponents.

    With `step`, values other than zero are moved that many float32 steps away from zero.
    """
    shorts, integers = ir.VectorType(ir.IntType(16), lanes), ir.VectorType(_I32, lanes)
    floats = ir.VectorType(ir.FloatType(), lanes)

    def constant(value: int) -> ir.Constant:
        return _constant(integers, value)

    half = builder.zext(_load(builder, _vector_pointer(builder, source, i, shorts), 2), integers)
    magnitude = builder.and_(half, constant(0x7FFF))
    normal = builder.add(builder.shl(magnitude, constant(13)), constant(112 << 23))
    small = builder.fmul(builder.uitofp(magnitude, floats), _constant(floats, 2.0**-24))
    is_small = builder.icmp_signed("<", magnitude, constant(1024))
    bits = builder.select(is_small, builder.bitcast(small, integers), normal)
    zero = builder.icmp_signed("==", magnitude, constant(0))
    if step:
        bits = builder.select(zero, constant(0), builder.add(bits, constant(step)))
    bits = builder.or_(bits, builder.shl(builder.and_(half, constant(0x8000)), constant(16)))
    exponent = builder.select(is_small, constant(1), builder.lshr(magnitude, constant(10)))
    return bits, builder.select(zero, constant(ALL_ZERO), exponent)


def _for(
    builder: ir.IRBuilder, start: ir.Value, stop: ir.Value, step: int, body: Callable[[ir.IRBuilder, ir.Value], None]
) -> ir.IRBuilder:
    """`for i in range(start, stop, step): body(i)`, possibly empty, with a body of one block; a builder behind it."""
    before, function = builder.block, builder.block.function
    inside, after = function.append_basic_block(), function.append_basic_block()
    builder.cbranch(builder.icmp_signed("<", start, stop), inside, after)
    inner = ir.IRBuilder(inside)
    i = inner.phi(_I64)
    i.add_incoming(start, before)
    body(inner, i)
    following = inner.add(i, ir.Constant(_I64, step))
    i.add_incoming(following, inside)
    inner.cbranch(inner.icmp_signed("<", following, stop), inside, after)
    return ir.IRBuilder(after)


def _for_lanes(
    function: ir.Function, n: ir.Value, lanes: int, body: Callable[[ir.IRBuilder, ir.Value, int], None]
) -> None:
    """body(i, lanes) over range(n): whole vectors first, then one by one; ends the function."""
    builder = ir.IRBuilder(function.append_basic_block())
    whole = builder.and_(n, ir.Constant(_I64, -lanes))
    builder = _for(builder, ir.Constant(_I64, 0), whole, lanes, lambda b, i: body(b, i, lanes))
    builder = _for(builder, whole, n, 1, lambda b, i: body(b, i, 1))
    builder.ret_void()


def _build_interleave(module: ir.Module, shape: Shape) -> None:
    """interleave(source, n, target): `rows` rows, ROW_PITCH apart, of n int32 each become n groups of `rows`."""
    pointers = _I32.as_pointer()
    function = ir.Function(module, ir.FunctionType(_VOID, [pointers, _I64, pointers]), "interleave")
    source, n, target = function.args

    def body(builder: ir.IRBuilder, k: ir.Value) -> None:
        begin, end = builder.gep(source, [k]), builder.gep(target, [builder.mul(k, ir.Constant(_I64, shape.rows))])
        values = [builder.load(builder.gep(begin, [ir.Constant(_I64, r * ROW_PITCH)])) for r in range(shape.rows)]
        for r, value in enumerate(values):
            builder.store(value, builder.gep(end, [ir.Constant(_I64, r)]))

    builder = ir.IRBuilder(function.append_basic_block())
    _for(builder, ir.Constant(_I64, 0), n, 1, body).ret_void()


def _build_decode_columns(module: ir.Module, shape: Shape) -> None:
    """decode_columns(source, n, values, exponents): n halfwords to float32, a step from zero, and exponents (uint8)."""
    byte = ir.IntType(8)
    arguments = [ir.IntType(16).as_pointer(), _I64, _I32.as_pointer(), byte.as_pointer()]
    function = ir.Function(module, ir.FunctionType(_VOID, arguments), "decode_columns")
    source, n, values, exponents = function.args

    def body(builder: ir.IRBuilder, i: ir.Value, lanes: int) -> None:
        bits, exponent = _decoded(builder, source, i, lanes, step=1)
        builder.store(bits, _vector_pointer(builder, values, i, bits.type)).align = 4
        bytes_ = ir.VectorType(byte, lanes)
        place = _vector_pointer(builder, exponents, i, bytes_)
        builder.store(builder.trunc(exponent, bytes_), place).align = 1

    _for_lanes(function, n, shape.lanes, body)


def _build_decode_rows(module: ir.Module) -> None:
    """decode_rows(source, n, values, exponents, norms): n halfwords, whole segments, to float32.

    exponents (uint8) keep the least of what stood there and what is decoded; norms (one float32 per segment) the
    largest
    of what stood there and the sum of squares.
    """
    byte, f32 = ir.IntType(8), ir.FloatType()
    arguments = [ir.IntType(16).as_pointer(), _I64, _I32.as_pointer(), byte.as_pointer(), f32.as_pointer()]
    function = ir.Function(module, ir.FunctionType(_VOID, arguments), "decode_rows")
    source, n, values, exponents, norms = function.args
    floats, bytes_ = ir.VectorType(f32, SEGMENT), ir.VectorType(byte, SEGMENT)
    add = module.declare_intrinsic(f"llvm.vector.reduce.fadd.v{SEGMENT}f32", (), ir.FunctionType(f32, [f32, floats]))

    def body(builder: ir.IRBuilder, i: ir.Value) -> None:
        bits, exponent = _decoded(builder, source, i, SEGMENT, step=0)
        builder.store(bits, _vector_pointer(builder, values, i, bits.type)).align = 4
        place = _vector_pointer(builder, exponents, i, bytes_)
        old, new = _load(builder, place, 1), builder.trunc(exponent, bytes_)
        builder.store(builder.select(builder.icmp_unsigned("<", old, new), old, new), place).align = 1
        number = builder.bitcast(bits, floats)
        squares = builder.call(add, [ir.Constant(f32, 0.0), builder.fmul(number, number)], fastmath=("reassoc",))
        norm = builder.gep(norms, [builder.lshr(i, ir.Constant(_I64, SEGMENT.bit_length() - 1))])
        before = builder.load(norm)
        builder.store(builder.select(builder.fcmp_ordered(">", before, squares), before, squares), norm)

    builder = ir.IRBuilder(function.append_basic_block())
    _for(builder, ir.Constant(_I64, 0), n, SEGMENT, body).ret_void()


def _build_thresholds(module: ir.Module, shape: Shape) -> None:
    """thresholds(values, n, limits): below which magnitude the other operand of a product with each value is dropped.

    2^(-16 - e), and 0 from exponent e = -2 on, because the other operand's exponent is -14 at least (numerics §11.3).
    """
    pointers = _I32.as_pointer()
    function = ir.Function(module, ir.FunctionType(_VOID, [pointers, _I64, pointers]), "thresholds")
    values, n, limits = function.args

    def body(builder: ir.IRBuilder, i: ir.Value, lanes: int) -> None:
        integers = ir.VectorType(_I32, lanes)
        bits = _load(builder, _vector_pointer(builder, values, i, integers), 4)
        field = builder.and_(builder.lshr(bits, _constant(integers, 23)), _constant(integers, 255))
        subnormal = _constant(integers, 113)
        field = builder.select(builder.icmp_signed("<", field, subnormal), subnormal, field)
        limit = builder.shl(builder.sub(_constant(integers, 238), field), _constant(integers, 23))
        can_drop = builder.icmp_signed("<=", field, _constant(integers, 124))
        limit = builder.select(can_drop, limit, _constant(integers, 0))
        builder.store(limit, _vector_pointer(builder, limits, i, integers)).align = 4

    _for_lanes(function, n, shape.lanes, body)


def _build_least(module: ir.Module, shape: Shape) -> None:
    """least(exponents, n): the first of every `columns` exponents (uint8) becomes the least of them; may read past
    n."""
    byte = ir.IntType(8)
    bytes_ = ir.VectorType(byte, shape.columns)
    function = ir.Function(module, ir.FunctionType(_VOID, [byte.as_pointer(), _I64]), "least")
    exponents, n = function.args
    across = module.declare_intrinsic(
        f"llvm.vector.reduce.umin.v{shape.columns}i8", (), ir.FunctionType(byte, [bytes_])
    )

    def body(builder: ir.IRBuilder, i: ir.Value) -> None:
        value = _load(builder, _vector_pointer(builder, exponents, i, bytes_), 1)
        builder.store(builder.call(across, [value]), builder.gep(exponents, [i]))

    builder = ir.IRBuilder(function.append_basic_block())
    _for(builder, ir.Constant(_I64, 0), n, shape.columns, body).ret_void()


FUNCTIONS = (
    "mac32",
    "mac64",
    "gather",
    "split",
    "halves",
    "decode_rows",
    "decode_columns",
    "thresholds",
    "least",
    "interleave",
)
"""Names of the kernels, in the order of their addresses."""


def build_module(shape: Shape) -> ir.Module:
    """All kernels for one shape; `mac64` works on half of the columns at a time."""
    module = ir.Module("hexane")
    _Builder(module, "mac32", shape, ir.FloatType(), MAGIC32).build()
    _Builder(module, "mac64", shape, ir.DoubleType(), MAGIC64).build()
    _build_gather(module, shape)
    _build_split(module, shape)
    _build_halves(module, shape)
    _build_decode_rows(module)
    _build_decode_columns(module, shape)
    _build_thresholds(module, shape)
    _build_least(module, shape)
    _build_interleave(module, shape)
    return module
