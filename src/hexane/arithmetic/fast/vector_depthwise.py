"""Few terms per output as vector code: a channel decoded, and every term of a run of its outputs.

Source: docs/reference/numerics.md 11.3.
"""

from __future__ import annotations

from llvmlite import ir

from hexane.arithmetic.fast.vector_parts import (
    I32,
    I64,
    MAGIC32,
    VOID,
    VectorShape,
    close,
    constant,
    converted,
    decoded,
    load,
    load_lanes,
    loop,
    over_line,
    splat,
    store_lanes,
    vector_pointer,
)

UNROLLED = 4
"""Vectors of outputs at a time."""


LEAST_SEEN = 16
"""Halfwords from the largest magnitudes that were seen to the least: as many as any vector has lanes."""

CHAINS = 4
"""Places for what was seen, in turn: a vector that is written waits long before it can be read again."""


def build_decode(module: ir.Module, shape: VectorShape, name: str, *, step: int) -> None:
    """name(source, apart, lines, n, values, pitch, seen): `lines` times n halfwords to float32, a step from zero.

    source: lines `apart` bytes from one to the next, in which one in `step` (1 or 2) halfwords is taken, the first and
    the last among them. values: n in every `pitch`; up to a vector behind a line becomes zero before the next one is
    written. seen: magnitudes in lanes, the largest (uint16), and from `LEAST_SEEN` on the least, each less 1, so that
    zero is the largest there; behind these, room for `CHAINS` - 1 times as much. lines, n > 0.
    """
    byte, short = ir.IntType(8), ir.IntType(16)
    line = _decode_line(module, shape, f"{name}_line", step)
    kind = [byte.as_pointer(), I64, I64, I64, I32.as_pointer(), I64, short.as_pointer()]
    function = ir.Function(module, ir.FunctionType(VOID, kind), name)
    source, apart, lines, n, values, pitch, halfwords = function.args
    vector = ir.VectorType(short, shape.lanes)

    def seen(builder: ir.IRBuilder, chain: int, first: int) -> ir.Value:
        return vector_pointer(builder, halfwords, ir.Constant(I64, 2 * LEAST_SEEN * chain + first), vector)

    entry = ir.IRBuilder(function.append_basic_block())
    for chain in range(1, CHAINS):
        for first, neutral in ((0, 0), (LEAST_SEEN, 0xFFFF)):
            entry.store(constant(vector, neutral), seen(entry, chain, first)).align = 2
    builder, y = loop(function, entry.block, lines, 1)
    begin = builder.bitcast(builder.gep(source, [builder.mul(y, apart)]), short.as_pointer())
    builder.call(line, [begin, n, builder.gep(values, [builder.mul(y, pitch)]), halfwords, y])
    builder, _ = close(builder, y, lines, 1)
    for first, sign in ((0, ">"), (LEAST_SEEN, "<")):
        value, *others = (load(builder, seen(builder, chain, first), 2) for chain in range(CHAINS))
        for other in others:
            value = builder.select(builder.icmp_unsigned(sign, value, other), value, other)
        builder.store(value, seen(builder, 0, first)).align = 2
    builder.ret_void()


def _decode_line(module: ir.Module, shape: VectorShape, name: str, step: int) -> ir.Function:
    short = ir.IntType(16)
    kind = [short.as_pointer(), I64, I32.as_pointer(), short.as_pointer(), I64]
    function = ir.Function(module, ir.FunctionType(VOID, kind), name)
    source, n, values, halfwords, y = function.args

    def every(builder: ir.IRBuilder, i: ir.Value, lanes: int, masked: bool) -> ir.Value:
        """Every second halfword, without a look behind the last."""
        halves, first = ir.VectorType(short, lanes), builder.shl(i, ir.Constant(I64, 1))
        bits_behind = builder.sub(builder.shl(builder.sub(n, i), ir.Constant(I64, 1)), ir.Constant(I64, 1))
        parts = []
        for begin in (0, lanes - 1):
            lane = ir.Constant(ir.VectorType(I64, lanes), [ir.Constant(I64, begin + j) for j in range(lanes)])
            mask = builder.icmp_signed("<", lane, splat(builder, bits_behind, lanes)) if masked else None
            parts.append(load_lanes(builder, source, builder.add(first, ir.Constant(I64, begin)), halves, 2, mask))
        even = [2 * j for j in range(lanes // 2)]
        odd = [lanes + 2 * j + 1 for j in range(lanes // 2)]
        return builder.shuffle_vector(*parts, ir.Constant(ir.VectorType(I32, lanes), even + odd))

    def body(builder: ir.IRBuilder, i: ir.Value, lanes: int, mask: ir.Value | None = None) -> None:
        vector = ir.VectorType(short, lanes)
        if step == 1:
            halves = load_lanes(builder, source, i, vector, 2, mask)
        elif lanes == 1:
            halves = load_lanes(builder, source, builder.shl(i, ir.Constant(I64, 1)), vector, 2, None)
        else:
            halves = every(builder, i, lanes, mask is not None)
        bits, _ = (converted if shape.converts else decoded)(builder, halves, step=1)
        store_lanes(builder, bits, values, i, 4, None)
        magnitude = builder.and_(halves, constant(vector, 0x7FFF))
        less = builder.sub(magnitude, constant(vector, 1))
        turn = builder.add(y, builder.udiv(i, ir.Constant(I64, shape.lanes)))
        chain = builder.mul(builder.and_(turn, ir.Constant(I64, CHAINS - 1)), ir.Constant(I64, 2 * LEAST_SEEN))
        for first, value, sign in ((0, magnitude, ">"), (LEAST_SEEN, less, "<")):
            place = vector_pointer(builder, halfwords, builder.add(chain, ir.Constant(I64, first)), vector)
            before = load(builder, place, 2)
            builder.store(builder.select(builder.icmp_unsigned(sign, value, before), value, before), place).align = 2

    over_line(function, n, shape, body, again=True)
    return function


def build(module: ir.Module, shape: VectorShape) -> None:
    """depthwise(values, offsets, weights, limits, least, terms, start, units, n): n outputs of one channel.

    values: float32, a step from zero; term t of output j stands at offsets[t] (int64, bytes are not meant) + j.
    weights, limits: float32, a product with a value below the limit is dropped. least: float32, no value but zero is
    below it. units: int32, start (int64) added; room for n rounded up to whole steps of `UNROLLED` vectors, and as much
    readable behind the values. n > 0, terms > 0.
    """
    f32 = ir.FloatType()
    vector, integers = ir.VectorType(f32, shape.lanes), ir.VectorType(I32, shape.lanes)
    numbers = f32.as_pointer()
    kind = ir.FunctionType(
        VOID, [numbers, I64.as_pointer(), numbers, numbers, numbers, I64, I64, I32.as_pointer(), I64]
    )
    function = ir.Function(module, kind, "depthwise")
    values, offsets, weights, limits, least, terms, start, units, n = function.args
    fma = module.declare_intrinsic(f"llvm.fma.v{shape.lanes}f32", (), ir.FunctionType(vector, [vector] * 3))
    fabs = module.declare_intrinsic(f"llvm.fabs.v{shape.lanes}f32", (), ir.FunctionType(vector, [vector]))
    magic = constant(vector, MAGIC32)

    step = UNROLLED * shape.lanes
    entry = function.append_basic_block()
    smallest = load(ir.IRBuilder(entry), least, 4)
    outer, i = loop(function, entry, n, step)
    before = outer.block
    inner, t = loop(function, before, terms, 1)
    sums = [inner.phi(vector) for _ in range(UNROLLED)]
    place = inner.gep(values, [inner.add(load(inner, inner.gep(offsets, [t]), 8), i)])
    weight = splat(inner, load(inner, inner.gep(weights, [t]), 4), shape.lanes)
    bound = load(inner, inner.gep(limits, [t]), 4)
    limit = splat(inner, bound, shape.lanes)
    xs = [
        load(inner, vector_pointer(inner, place, ir.Constant(I64, v * shape.lanes), vector), 4) for v in range(UNROLLED)
    ]
    plain, tested, both = (ir.IRBuilder(function.append_basic_block()) for _ in range(3))
    inner.cbranch(inner.fcmp_ordered(">", bound, smallest), tested.block, plain.block)
    without = [plain.call(fma, [x, weight, total]) for x, total in zip(xs, sums, strict=True)]
    limits_read = []
    for x, total in zip(xs, sums, strict=True):
        stays = tested.fcmp_ordered(">=", tested.call(fabs, [x]), limit)
        if shape.masked:
            limits_read.append(tested.select(stays, tested.call(fma, [x, weight, total]), total))
        else:
            limits_read.append(tested.call(fma, [tested.select(stays, x, constant(vector, 0.0)), weight, total]))
    ends = [both.phi(vector) for _ in range(UNROLLED)]
    for builder, results in ((plain, without), (tested, limits_read)):
        builder.branch(both.block)
        for end, result in zip(ends, results, strict=True):
            end.add_incoming(result, builder.block)
    outer, end = close(both, t, terms, 1)
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
