"""The columns of a tile brought together, term by term, with the norms that bounds of a product need: vector code."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from hexane.arithmetic.fast.vector_parts import (
    ALL_ZERO,
    I32,
    I64,
    SEGMENT,
    VOID,
    VectorShape,
    close,
    constant,
    decoded,
    load,
    loop,
    stepped,
    vector_pointer,
)

BYTE, SHORT, F32 = ir.IntType(8), ir.IntType(16), ir.FloatType()

Read = Callable[[ir.IRBuilder, ir.Value], list[ir.Value]]
"""The vectors of one term's columns, by the number of the term."""


def build(module: ir.Module, shape: VectorShape) -> None:
    """Both kernels."""
    build_gather(module, shape)
    build_pack(module, shape)


def build_gather(module: ir.Module, shape: VectorShape) -> None:
    """gather(source, offsets, n, packed, norms): `columns` floats at every offset, one after the other.

    norms[s] is the largest sum of squares that a column has over segment s of `SEGMENT` k. n > 0.
    """
    arguments = [F32.as_pointer(), I64.as_pointer(), I64, F32.as_pointer(), F32.as_pointer()]
    function = ir.Function(module, ir.FunctionType(VOID, arguments), "gather")
    source, offsets, n, packed, norms = function.args
    vector = ir.VectorType(F32, shape.lanes)

    def read(builder: ir.IRBuilder, k: ir.Value) -> list[ir.Value]:
        start = builder.gep(source, [load(builder, builder.gep(offsets, [k]), 8)])
        places = (vector_pointer(builder, start, ir.Constant(I64, i), vector) for i in _begins(shape))
        return [load(builder, place, 4) for place in places]

    def segment(outer: ir.IRBuilder, s: ir.Value, count: ir.Value) -> tuple[ir.IRBuilder, list[ir.Value]]:
        return _terms(outer.block, s, count, shape, packed, read)

    _segments(function, n, shape, norms, segment)


def build_pack(module: ir.Module, shape: VectorShape) -> None:
    """pack_columns(source, offsets, n, packed, exponents, norms): as gather with halfwords, which become float32 a step
    from zero; exponents[k] (uint8) is the least among the columns of k. n > 0."""
    arguments = [SHORT.as_pointer(), I64.as_pointer(), I64, F32.as_pointer(), BYTE.as_pointer(), F32.as_pointer()]
    function = ir.Function(module, ir.FunctionType(VOID, arguments), "pack_columns")
    source, offsets, n, packed, exponents, norms = function.args
    halves, vector = ir.VectorType(SHORT, shape.lanes), ir.VectorType(F32, shape.lanes)
    least = module.declare_intrinsic(f"llvm.vector.reduce.umin.v{shape.lanes}i16", (), ir.FunctionType(SHORT, [halves]))
    prefetch = module.declare_intrinsic(
        "llvm.prefetch.p0i8", (), ir.FunctionType(VOID, [BYTE.as_pointer(), I32, I32, I32])
    )

    def reader(*, finite: bool) -> Read:
        def read(builder: ir.IRBuilder, k: ir.Value) -> list[ir.Value]:
            start = builder.gep(source, [load(builder, builder.gep(offsets, [k]), 8)])
            ahead = builder.bitcast(builder.gep(start, [ir.Constant(I64, 2 * shape.columns)]), BYTE.as_pointer())
            builder.call(prefetch, [ahead, *(ir.Constant(I32, i) for i in (0, 3, 1))])  # for the tile after the next
            values, fewest = [], constant(halves, 0xFFFF)
            for i in _begins(shape):
                half = load(builder, vector_pointer(builder, start, ir.Constant(I64, i), halves), 2)
                value = stepped(builder, half) if finite else decoded(builder, half, step=1)[0]
                values.append(builder.bitcast(value, vector))
                less = builder.sub(builder.and_(half, constant(halves, 0x7FFF)), constant(halves, 1))
                fewest = builder.select(builder.icmp_unsigned("<", less, fewest), less, fewest)  # zero is the largest
            smallest = builder.add(builder.zext(builder.call(least, [fewest]), I32), ir.Constant(I32, 1))
            one = ir.Constant(I32, 1)
            exponent = builder.lshr(smallest, ir.Constant(I32, 10))
            exponent = builder.select(builder.icmp_unsigned("<", exponent, one), one, exponent)
            none = builder.icmp_unsigned(">", smallest, ir.Constant(I32, 0x7FFF))
            exponent = builder.select(none, ir.Constant(I32, ALL_ZERO), exponent)
            builder.store(builder.trunc(exponent, BYTE), builder.gep(exponents, [k]))
            return values

        return read

    def segment(outer: ir.IRBuilder, s: ir.Value, count: ir.Value) -> tuple[ir.IRBuilder, list[ir.Value]]:
        if not shape.converts:
            return _terms(outer.block, s, count, shape, packed, reader(finite=False))
        builder, squares = _terms(outer.block, s, count, shape, packed, reader(finite=True))
        infinite = builder.fcmp_unordered(">=", squares[0], constant(vector, float("inf")))
        for square in squares[1:]:
            infinite = builder.or_(infinite, builder.fcmp_unordered(">=", square, constant(vector, float("inf"))))
        mask = builder.bitcast(infinite, ir.IntType(shape.lanes))
        again, behind = (function.append_basic_block() for _ in range(2))
        builder.cbranch(builder.icmp_unsigned("!=", mask, ir.Constant(mask.type, 0)), again, behind)
        slow, others = _terms(again, s, count, shape, packed, reader(finite=False))
        slow.branch(behind)
        merged = []
        after = ir.IRBuilder(behind)
        for square, other in zip(squares, others, strict=True):
            phi = after.phi(vector)
            phi.add_incoming(square, builder.block)
            phi.add_incoming(other, slow.block)
            merged.append(phi)
        return after, merged

    _segments(function, n, shape, norms, segment)


def _begins(shape: VectorShape) -> range:
    """Begins of the vectors of a tile's width."""
    return range(0, shape.columns, shape.lanes)


def _terms(
    before: ir.Block, s: ir.Value, count: ir.Value, shape: VectorShape, packed: ir.Value, read: Read
) -> tuple[ir.IRBuilder, list[ir.Value]]:
    """Terms s .. s + count - 1 to where they are packed; a builder behind them, and the sums of squares."""
    vector = ir.VectorType(F32, shape.lanes)
    function = before.function
    kind = ir.FunctionType(vector, [vector] * 3)
    fma = function.module.declare_intrinsic(f"llvm.fma.v{shape.lanes}f32", (), kind)
    builder, i = loop(function, before, count, 1)
    squares = [builder.phi(vector) for _ in _begins(shape)]
    k = builder.add(s, i)
    row, values = builder.mul(k, ir.Constant(I64, shape.columns)), read(builder, k)
    ends = []
    for begin, square, value in zip(_begins(shape), squares, values, strict=True):
        place = vector_pointer(builder, packed, builder.add(row, ir.Constant(I64, begin)), vector)
        builder.store(value, place).align = 4
        ends.append(builder.call(fma, [value, value, square]))
    after, end = close(builder, i, count, 1)
    for square, value in zip(squares, ends, strict=True):
        square.add_incoming(constant(vector, 0.0), before)
        square.add_incoming(value, end)
    return after, ends


def _segments(
    function: ir.Function,
    n: ir.Value,
    shape: VectorShape,
    norms: ir.Value,
    segment: Callable[[ir.IRBuilder, ir.Value, ir.Value], tuple[ir.IRBuilder, list[ir.Value]]],
) -> None:
    """The whole of a kernel: segment by segment, and the largest sum of squares of each."""
    vector = ir.VectorType(F32, shape.lanes)
    module = function.module
    largest = module.declare_intrinsic(f"llvm.maxnum.v{shape.lanes}f32", (), ir.FunctionType(vector, [vector] * 2))
    across = module.declare_intrinsic(f"llvm.vector.reduce.fmax.v{shape.lanes}f32", (), ir.FunctionType(F32, [vector]))
    outer, s = loop(function, function.append_basic_block(), n, SEGMENT)
    remaining, full = outer.sub(n, s), ir.Constant(I64, SEGMENT)
    count = outer.select(outer.icmp_signed("<", remaining, full), remaining, full)
    outer, squares = segment(outer, s, count)
    total = squares[0]
    for value in squares[1:]:
        total = outer.call(largest, [total, value], fastmath=("nnan",))
    norm = outer.call(across, [total], fastmath=("nnan",))
    outer.store(norm, outer.gep(norms, [outer.sdiv(s, full)]))
    builder, _ = close(outer, s, n, SEGMENT)
    builder.ret_void()
