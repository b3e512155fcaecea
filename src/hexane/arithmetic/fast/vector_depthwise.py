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
    finished,
    load,
    load_lanes,
    loop,
    over_line,
    splat,
    stepped,
    store_lanes,
    vector_pointer,
)

UNROLLED = 4
"""Vectors of outputs at a time, at least."""

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
    if shape.converts and not shape.masked:
        entry = _Quickly(function, shape, step).build(entry)
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
        if not masked:
            return _pairs(builder, source, i, lanes)
        halves, first = ir.VectorType(short, lanes), builder.shl(i, ir.Constant(I64, 1))
        bits_behind = builder.sub(builder.shl(builder.sub(n, i), ir.Constant(I64, 1)), ir.Constant(I64, 1))
        parts = []
        for begin in (0, lanes - 1):
            lane = ir.Constant(ir.VectorType(I64, lanes), [ir.Constant(I64, begin + j) for j in range(lanes)])
            mask = builder.icmp_signed("<", lane, splat(builder, bits_behind, lanes))
            parts.append(load_lanes(builder, source, builder.add(first, ir.Constant(I64, begin)), halves, 2, mask))
        return _second(builder, parts)

    def read(builder: ir.IRBuilder, i: ir.Value, lanes: int, mask: ir.Value | None = None) -> ir.Value:
        vector = ir.VectorType(short, lanes)
        if step == 1:
            return load_lanes(builder, source, i, vector, 2, mask)
        if lanes == 1:
            return load_lanes(builder, source, builder.shl(i, ir.Constant(I64, 1)), vector, 2, None)
        return every(builder, i, lanes, mask is not None)

    def write(builder: ir.IRBuilder, halves: ir.Value, i: ir.Value, mask: ir.Value | None = None) -> None:
        vector = halves.type
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

    over_line(function, n, shape, read, write)
    return function


def _second(builder: ir.IRBuilder, parts: list[ir.Value]) -> ir.Value:
    """Every second of two vectors, the other one of which ends with one that is wanted."""
    lanes = parts[0].type.count
    even = [2 * j for j in range(lanes // 2)]
    odd = [lanes + 2 * j + 1 for j in range(lanes // 2)]
    return builder.shuffle_vector(*parts, ir.Constant(ir.VectorType(I32, lanes), even + odd))


def _pairs(builder: ir.IRBuilder, source: ir.Value, i: ir.Value, lanes: int) -> ir.Value:
    """Every second halfword from the i-th of them on, without a look behind the last."""
    halves, first = ir.VectorType(ir.IntType(16), lanes), builder.shl(i, ir.Constant(I64, 1))
    places = [builder.add(first, ir.Constant(I64, begin)) for begin in (0, lanes - 1)]
    return _second(builder, [load(builder, vector_pointer(builder, source, p, halves), 2) for p in places])


class _Quickly:
    """`build_decode` where the processor converts halfwords, for lines of a vector or more and no infinities or NaN.

    What is seen stays in registers.
    """

    LANES = (8, 4)

    def __init__(self, function: ir.Function, shape: VectorShape, step: int) -> None:
        self.function, self.shape, self.step = function, shape, step

    def build(self, before: ir.IRBuilder) -> ir.IRBuilder:
        """Returns from the function where all is well; a builder for the other cases."""
        n = self.function.args[3]
        slow = self.function.append_basic_block()
        for lanes in self.LANES:
            inside, other = self.function.append_basic_block(), self.function.append_basic_block()
            before.cbranch(before.icmp_signed(">=", n, ir.Constant(I64, lanes)), inside, other)
            self.lines(ir.IRBuilder(inside), lanes, slow)
            before = ir.IRBuilder(other)
        before.branch(slow)
        return ir.IRBuilder(slow)

    def lines(self, before: ir.IRBuilder, lanes: int, slow: ir.Block) -> None:
        """All lines, so many lanes at a time; the last vector of a line ends where it does."""
        source, apart, lines, n, values, pitch, extremes = self.function.args
        short = ir.VectorType(ir.IntType(16), lanes)
        width = ir.Constant(I64, lanes)
        last_vector = before.sub(n, width)
        builder, y = loop(self.function, before.block, lines, 1)
        largest, least = builder.phi(short), builder.phi(short)
        begin = builder.bitcast(builder.gep(source, [builder.mul(y, apart)]), ir.IntType(16).as_pointer())
        target = builder.gep(values, [builder.mul(y, pitch)])
        line = builder.block
        inner = ir.IRBuilder(self.function.append_basic_block())
        builder.branch(inner.block)
        i, most, fewest = inner.phi(I64), inner.phi(short), inner.phi(short)
        one = self.step == 1
        halves = load(inner, vector_pointer(inner, begin, i, short), 2) if one else _pairs(inner, begin, i, lanes)
        floats = ir.VectorType(ir.FloatType(), lanes)
        inner.store(stepped(inner, halves), vector_pointer(inner, target, i, floats)).align = 4
        magnitude = inner.and_(halves, constant(short, 0x7FFF))
        less = inner.sub(magnitude, constant(short, 1))
        more = inner.select(inner.icmp_unsigned(">", magnitude, most), magnitude, most)
        fewer = inner.select(inner.icmp_unsigned("<", less, fewest), less, fewest)
        following = inner.add(i, width)
        near = inner.select(inner.icmp_signed("<", following, last_vector), following, last_vector)
        after = self.function.append_basic_block()
        inner.cbranch(inner.icmp_signed("<", i, last_vector), inner.block, after)
        for phi, first, again in ((i, ir.Constant(I64, 0), near), (most, largest, more), (fewest, least, fewer)):
            phi.add_incoming(first, line)
            phi.add_incoming(again, inner.block)
        builder, last = close(ir.IRBuilder(after), y, lines, 1)
        for phi, neutral, value in ((largest, 0, more), (least, 0xFFFF, fewer)):
            phi.add_incoming(constant(short, neutral), before.block)
            phi.add_incoming(value, last)
        special = builder.icmp_unsigned(">=", more, constant(short, 0x7C00))
        none = builder.icmp_unsigned(
            "==", builder.bitcast(special, ir.IntType(lanes)), ir.Constant(ir.IntType(lanes), 0)
        )
        end = ir.IRBuilder(self.function.append_basic_block())
        builder.cbranch(none, end.block, slow)
        for first, sign, value in ((0, ">", more), (LEAST_SEEN, "<", fewer)):
            place = vector_pointer(end, extremes, ir.Constant(I64, first), short)
            earlier = load(end, place, 2)
            end.store(end.select(end.icmp_unsigned(sign, value, earlier), value, earlier), place).align = 2
        end.ret_void()


class _Channel:
    """name(values, offsets, weights, limits, order, plain, terms, start, out, n, lowest, cap): n outputs of a channel.

    values: float32, a step from zero; term t of output j stands at offsets[t] (int64, bytes are not meant) + j.
    weights, limits: float32, a product with a value below the limit is dropped. order: all t (int64), the `plain` first
    of which drop nothing. out: int32 units, start (int64) added, or with `finish` halfwords, as `vector_parts.finished`
    says for small sums; room for n rounded up to whole steps of `UNROLLED` vectors, and as much readable behind the
    values. n > 0.
    """

    def __init__(self, module: ir.Module, shape: VectorShape, name: str, *, finish: bool) -> None:
        numbers, places = ir.FloatType().as_pointer(), I64.as_pointer()
        result = ir.IntType(16 if finish else 32).as_pointer()
        kind = [numbers, places, numbers, numbers, places, I64, I64, I64, result, I64, I64, I64]
        self.function = ir.Function(module, ir.FunctionType(VOID, kind), name)
        self.shape, self.finish = shape, finish
        self.vector = ir.VectorType(ir.FloatType(), shape.lanes)
        operation, bits = self.vector, f"v{shape.lanes}f32"
        self.fma = module.declare_intrinsic(f"llvm.fma.{bits}", (), ir.FunctionType(operation, [operation] * 3))
        self.fabs = module.declare_intrinsic(f"llvm.fabs.{bits}", (), ir.FunctionType(operation, [operation]))

    def build(self) -> None:
        """Twice `UNROLLED` vectors at a time, but for a rest that fits once."""
        n = self.function.args[9]
        builder = ir.IRBuilder(self.function.append_basic_block())
        few = UNROLLED * self.shape.lanes
        whole = builder.sdiv(builder.add(n, ir.Constant(I64, few - 1)), ir.Constant(I64, 2 * few))
        stop = builder.mul(whole, ir.Constant(I64, 2 * few))
        builder = self.outputs(builder, ir.Constant(I64, 0), stop, 2 * UNROLLED)
        self.outputs(builder, stop, n, UNROLLED).ret_void()

    def outputs(self, before: ir.IRBuilder, first: ir.Value, last: ir.Value, vectors: int) -> ir.IRBuilder:
        """Outputs first .. last - 1, some vectors at a time; a builder behind them."""
        _, _, _, _, _, plain, terms, start, out, _, lowest, cap = self.function.args
        lanes, integers = self.shape.lanes, ir.VectorType(I32, self.shape.lanes)
        magic = constant(self.vector, MAGIC32)
        begin = splat(before, before.trunc(start, I32), lanes)
        begin = before.sub(begin, before.bitcast(magic, integers))
        ends = splat(before, before.trunc(lowest, I32), lanes), splat(before, before.trunc(cap, ir.IntType(16)), lanes)
        inside, after = self.function.append_basic_block(), self.function.append_basic_block()
        before.cbranch(before.icmp_signed("<", first, last), inside, after)
        builder = ir.IRBuilder(inside)
        i = builder.phi(I64)
        i.add_incoming(first, before.block)
        sums: list[ir.Value] = [magic] * vectors
        for places, test in (((ir.Constant(I64, 0), plain), False), ((plain, terms), True)):
            builder, sums = self.terms(builder, places, i, sums, test=test)
        for v, value in enumerate(sums):
            units = builder.add(builder.bitcast(value, integers), begin)
            units = finished(builder, units, ends, self.shape, small=True) if self.finish else units
            target = vector_pointer(builder, out, builder.add(i, ir.Constant(I64, v * lanes)), units.type)
            builder.store(units, target).align = 2 if self.finish else 4
        following = builder.add(i, ir.Constant(I64, vectors * lanes))
        i.add_incoming(following, builder.block)
        builder.cbranch(builder.icmp_signed("<", following, last), inside, after)
        return ir.IRBuilder(after)

    def terms(
        self, before: ir.IRBuilder, places: tuple[ir.Value, ir.Value], i: ir.Value, sums: list[ir.Value], *, test: bool
    ) -> tuple[ir.IRBuilder, list[ir.Value]]:
        """The terms at some places of the order, added to the sums of the outputs from i on; a builder behind them."""
        values, offsets, weights, limits, order = self.function.args[:5]
        inside, after = self.function.append_basic_block(), self.function.append_basic_block()
        before.cbranch(before.icmp_signed("<", *places), inside, after)
        builder = ir.IRBuilder(inside)
        at = builder.phi(I64)
        at.add_incoming(places[0], before.block)
        totals = [builder.phi(self.vector) for _ in sums]
        t = load(builder, builder.gep(order, [at]), 8)
        place = builder.gep(values, [builder.add(load(builder, builder.gep(offsets, [t]), 8), i)])
        weight = splat(builder, load(builder, builder.gep(weights, [t]), 4), self.shape.lanes)
        limit = splat(builder, load(builder, builder.gep(limits, [t]), 4), self.shape.lanes) if test else None
        results = []
        for v, total in enumerate(totals):
            x = load(builder, vector_pointer(builder, place, ir.Constant(I64, v * self.shape.lanes), self.vector), 4)
            stays = builder.fcmp_ordered(">=", builder.call(self.fabs, [x]), limit) if test else None
            if test and not self.shape.masked:
                x = builder.select(stays, x, constant(self.vector, 0.0))
            result = builder.call(self.fma, [x, weight, total])
            results.append(builder.select(stays, result, total) if test and self.shape.masked else result)
        following = builder.add(at, ir.Constant(I64, 1))
        at.add_incoming(following, inside)
        builder.cbranch(builder.icmp_signed("<", following, places[1]), inside, after)
        builder = ir.IRBuilder(after)
        merged = []
        for total, value, result in zip(totals, sums, results, strict=True):
            phi = builder.phi(self.vector)
            for target in (total, phi):
                target.add_incoming(value, before.block)
                target.add_incoming(result, inside)
            merged.append(phi)
        return builder, merged


def build(module: ir.Module, shape: VectorShape) -> None:
    """Both forms of `_Channel`."""
    _Channel(module, shape, "depthwise", finish=False).build()
    _Channel(module, shape, "depthwise_halves", finish=True).build()
