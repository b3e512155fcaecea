"""The k of a tile that can drop a product and those that cannot, as vector code: lists that the products go through."""

from __future__ import annotations

from llvmlite import ir

from hexane.arithmetic.fast.vector_parts import (
    ALL_ZERO,
    DROP_SUM,
    I32,
    I64,
    VectorShape,
    close,
    constant,
    load,
    loop,
    splat,
    vector_pointer,
)

K_AT_ONCE = 16
"""k at a time."""

PART = 8
"""k whose places in a list are looked up at a time."""

BYTE, MASK = ir.IntType(8), ir.IntType(K_AT_ONCE)
BYTES, NUMBERS = ir.VectorType(BYTE, K_AT_ONCE), ir.VectorType(I32, K_AT_ONCE)


def build(module: ir.Module, shape: VectorShape) -> None:
    """split(a, b, first, n, plain, tested) -> number of plain entries + (number of tested entries << 32).

    a and b hold the smallest biased exponent of every k. Lists every k in first .. first + n - 1 where a product can
    drop as tested, where none can as plain, and leaves out those where all are zero. n > 0. `K_AT_ONCE` exponents
    are read and as many entries written at a time.
    """
    kind = ir.FunctionType(I64, [BYTE.as_pointer(), BYTE.as_pointer(), I64, I64, I32.as_pointer(), I32.as_pointer()])
    function = ir.Function(module, kind, "split")
    a, b, first, n, *lists = function.args
    masks = _masks if shape.masked else _integers
    append = _Compress(module) if shape.masked else _LookUp(module)
    before = function.append_basic_block()
    builder, i = loop(function, before, n, K_AT_ONCE)
    counters = [builder.phi(I64) for _ in lists]
    k = builder.add(first, i)
    of_a, of_b = (load(builder, vector_pointer(builder, p, k, BYTES), 1) for p in (a, b))
    ends = []
    for mask, entries, counter in zip(masks(builder, of_a, of_b, builder.sub(n, i)), lists, counters, strict=True):
        ends.append(builder.add(counter, append(builder, mask, k, entries, counter)))
    builder, end = close(builder, i, n, K_AT_ONCE)
    for counter, value in zip(counters, ends, strict=True):
        counter.add_incoming(ir.Constant(I64, 0), before)
        counter.add_incoming(value, end)
    builder.ret(builder.or_(ends[0], builder.shl(ends[1], ir.Constant(I64, 32))))


def _lanes() -> ir.Constant:
    return ir.Constant(NUMBERS, [ir.Constant(I32, j) for j in range(K_AT_ONCE)])


def _masks(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, n: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The plain ones of the first n k, and those to be tested."""
    total = builder.add(builder.zext(a, NUMBERS), builder.zext(b, NUMBERS))
    inside = builder.icmp_signed("<", _lanes(), splat(builder, builder.trunc(n, I32), K_AT_ONCE))
    small = builder.icmp_signed("<=", total, constant(NUMBERS, DROP_SUM))
    some = builder.icmp_signed("<", total, constant(NUMBERS, ALL_ZERO))
    return builder.and_(builder.and_(inside, some), builder.not_(small)), builder.and_(inside, small)


def _integers(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, n: ir.Value) -> tuple[ir.Value, ir.Value]:
    """As `_masks`, a bit for each k, where the processor has no masks."""
    add = builder.module.declare_intrinsic("llvm.uadd.sat.v16i8", (), ir.FunctionType(BYTES, [BYTES, BYTES]))
    total = builder.call(add, [a, b])
    small = builder.bitcast(builder.icmp_unsigned("<=", total, constant(BYTES, DROP_SUM)), MASK)
    zero = builder.bitcast(builder.icmp_unsigned(">=", total, constant(BYTES, ALL_ZERO)), MASK)
    count = builder.select(builder.icmp_signed("<", n, ir.Constant(I64, K_AT_ONCE)), n, ir.Constant(I64, K_AT_ONCE))
    inside = builder.trunc(builder.not_(builder.shl(ir.Constant(I64, -1), count)), MASK)
    return builder.and_(inside, builder.not_(builder.or_(small, zero))), builder.and_(inside, small)


class _Compress:
    """Append the k of a mask to a list, by AVX-512's own operation; gives how many they are."""

    def __init__(self, module: ir.Module) -> None:
        flags = ir.VectorType(ir.IntType(1), K_AT_ONCE)
        self.compress = module.declare_intrinsic(
            "llvm.x86.avx512.mask.compress.v16i32", (), ir.FunctionType(NUMBERS, [NUMBERS, NUMBERS, flags])
        )
        self.count = module.declare_intrinsic("llvm.ctpop.i16", (), ir.FunctionType(MASK, [MASK]))

    def __call__(
        self, builder: ir.IRBuilder, mask: ir.Value, k: ir.Value, entries: ir.Value, counter: ir.Value
    ) -> ir.Value:
        number = builder.add(splat(builder, builder.trunc(k, I32), K_AT_ONCE), _lanes())
        numbers = builder.call(self.compress, [number, number, mask])
        builder.store(numbers, vector_pointer(builder, entries, counter, NUMBERS)).align = 4
        return builder.zext(builder.call(self.count, [builder.bitcast(mask, MASK)]), I64)


class _LookUp:
    """The same with a table: which bits of a byte are set, from the lowest on."""

    def __init__(self, module: ir.Module) -> None:
        places = [[j for j in range(PART) if byte >> j & 1] for byte in range(1 << PART)]
        self.row = ir.VectorType(BYTE, PART)
        kind = ir.ArrayType(self.row, len(places))
        self.table = ir.GlobalVariable(module, kind, "places_of_bits")
        self.table.linkage, self.table.global_constant = "internal", True
        self.table.initializer = ir.Constant(kind, [ir.Constant(self.row, p + [0] * (PART - len(p))) for p in places])
        self.count = module.declare_intrinsic("llvm.ctpop.i64", (), ir.FunctionType(I64, [I64]))

    def __call__(
        self, builder: ir.IRBuilder, mask: ir.Value, k: ir.Value, entries: ir.Value, counter: ir.Value
    ) -> ir.Value:
        bits, total = builder.zext(mask, I64), ir.Constant(I64, 0)
        for begin in range(0, K_AT_ONCE, PART):
            byte = builder.and_(builder.lshr(bits, ir.Constant(I64, begin)), ir.Constant(I64, (1 << PART) - 1))
            places = load(builder, builder.gep(self.table, [ir.Constant(I64, 0), byte]), PART)
            base = splat(builder, builder.trunc(builder.add(k, ir.Constant(I64, begin)), I32), PART)
            numbers = builder.add(builder.zext(places, base.type), base)
            builder.store(numbers, vector_pointer(builder, entries, builder.add(counter, total), base.type)).align = 4
            total = builder.add(total, builder.call(self.count, [byte]))
        return total
