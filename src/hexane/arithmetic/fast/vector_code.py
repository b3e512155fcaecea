"""The inner loops as LLVM vector code, for any vector width (docs/reference/numerics.md 11.3).

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

from collections.abc import Sequence

from llvmlite import ir

from hexane.arithmetic.fast import (
    vector_depthwise,
    vector_follow,
    vector_gather,
    vector_operands,
    vector_planar,
    vector_split,
    vector_winograd,
)
from hexane.arithmetic.fast.vector_parts import (
    I32,
    I64,
    MAGIC32,
    VOID,
    VectorShape,
    close,
    finished,
    load,
    loop,
    splat,
    vector_pointer,
)

MAGIC64 = 1.5 * 2.0**36


_FINISH = (ir.IntType(8).as_pointer(), I64, I64, I64, I64)
"""What `mac_rows` takes beside what `mac32` does."""


class _Builder:
    """One kernel: k-loops over accumulators in registers."""

    def __init__(
        self,
        module: ir.Module,
        name: str,
        shape: VectorShape,
        scalar: ir.Type,
        magic: float,
        more: tuple[ir.Type, ...] = (),
    ) -> None:
        self.shape = shape
        self.rows, self.scalar, self.masked = shape.rows, scalar, shape.masked
        wide = isinstance(scalar, ir.DoubleType)
        self.lanes = shape.lanes // 2 if wide else shape.lanes
        self.vectors = shape.vectors
        self.stride = shape.columns  # of the packed second operand, in elements
        self.vector = ir.VectorType(scalar, self.lanes)
        self.module = module
        pointer, indices = scalar.as_pointer(), I32.as_pointer()
        operands = [pointer, pointer, pointer, indices, I64, indices, I64, I32.as_pointer(), I64]
        kind = ir.FunctionType(VOID, [*operands, *more])
        self.function = ir.Function(module, kind, name)
        self.a, self.t, self.b, self.plain, self.n_plain, self.tested, self.n_tested, self.c, self.c_stride = (
            self.function.args[:9]
        )
        self.more = self.function.args[9:]
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

    def loop(
        self, before: ir.Block, start: list[ir.Value], vectors: Sequence[int], *, test: bool
    ) -> tuple[ir.Block, list[ir.Value]]:
        """A loop over the listed k for some vectors of each row, whose accumulators `start` has row by row; gives the
        block after it and the accumulators there."""
        indices, count = (self.tested, self.n_tested) if test else (self.plain, self.n_plain)
        body, after = (self.function.append_basic_block() for _ in range(2))
        builder = ir.IRBuilder(before)
        builder.cbranch(builder.icmp_signed(">", count, ir.Constant(I64, 0)), body, after)
        builder = ir.IRBuilder(body)
        i = builder.phi(I64)
        i.add_incoming(ir.Constant(I64, 0), before)
        phis = []
        for value in start:
            phi = builder.phi(self.vector)
            phi.add_incoming(value, before)
            phis.append(phi)
        k = builder.sext(builder.load(builder.gep(indices, [i])), I64)
        first = builder.mul(k, ir.Constant(I64, self.rows))
        a, t = builder.gep(self.a, [first]), builder.gep(self.t, [first])
        b = builder.gep(self.b, [builder.mul(k, ir.Constant(I64, self.stride))])
        w = []
        for v in vectors:
            pointer = builder.bitcast(builder.gep(b, [ir.Constant(I64, v * self.lanes)]), self.vector.as_pointer())
            w.append(load(builder, pointer, 4))
        zero = ir.Constant(self.vector, [ir.Constant(self.scalar, 0.0)] * self.lanes)
        magnitude = [builder.call(self.fabs, [value]) for value in w] if test else []
        ends = []
        for row in range(self.rows):
            place = [ir.Constant(I64, row)]
            x = splat(builder, builder.load(builder.gep(a, place)), self.lanes)
            limit = splat(builder, builder.load(builder.gep(t, place)), self.lanes) if test else None
            for v in range(len(vectors)):
                old = phis[row * len(vectors) + v]
                if test and self.masked:
                    new = builder.call(self.fma, [x, w[v], old])
                    new = builder.select(builder.fcmp_ordered(">=", magnitude[v], limit), new, old)
                elif test:
                    exact_value = builder.select(builder.fcmp_ordered(">=", magnitude[v], limit), w[v], zero)
                    new = builder.call(self.fma, [x, exact_value, old])
                else:
                    new = builder.call(self.fma, [x, w[v], old])
                ends.append(new)
        following = builder.add(i, ir.Constant(I64, 1))
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

    def products(self, block: ir.Block) -> tuple[ir.IRBuilder, list[ir.Value]]:
        """All loops; gives a builder behind them and the accumulators.

        Without masks what a test needs has no room in the registers beside all accumulators: a loop for each vector.
        """
        every = range(self.vectors)
        accumulators: list[ir.Value] = [self.magic] * (self.rows * self.vectors)
        block, accumulators = self.loop(block, accumulators, every, test=False)
        for some in [every] if self.masked else [[v] for v in every]:
            places = [row * self.vectors + v for row in range(self.rows) for v in some]
            block, ends = self.loop(block, [accumulators[i] for i in places], some, test=True)
            for i, end in zip(places, ends, strict=True):
                accumulators[i] = end
        return ir.IRBuilder(block), accumulators

    def total(self, builder: ir.IRBuilder, row: int, v: int, accumulator: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Places of the sums of a vector of the tile, and what they are with the products."""
        integers = ir.VectorType(I32, self.lanes)
        offset = builder.add(builder.mul(self.c_stride, ir.Constant(I64, row)), ir.Constant(I64, v * self.lanes))
        pointer = builder.bitcast(builder.gep(self.c, [offset]), integers.as_pointer())
        return pointer, builder.add(load(builder, pointer, 4), self.units(builder, accumulator, integers))

    def build(self) -> None:
        """mac(a, t, b, plain, n_plain, tested, n_tested, c, stride): the products are added to the sums at c."""
        builder, accumulators = self.products(self.function.append_basic_block())
        for i, accumulator in enumerate(accumulators):
            pointer, total = self.total(builder, *divmod(i, self.vectors), accumulator)
            builder.store(total, pointer).align = 4
        builder.ret_void()

    def build_rows(self, *, small: bool = False) -> None:
        """mac_rows(..., out, rows, pitch, lowest, cap): the sums at c and the products go to fp16 as by `halves`,
        a row every `pitch` bytes.

        The sums stay as they are. rows > 0. small: see `finished`.
        """
        out, rows, pitch, lowest, cap = self.more
        before = self.function.append_basic_block()
        ends = _ends(ir.IRBuilder(before), lowest, cap, self.shape)
        builder, accumulators = self.products(before)
        for row in range(self.rows):
            line = builder.gep(out, [builder.mul(pitch, ir.Constant(I64, row))])
            for v in range(self.vectors):
                _, total = self.total(builder, row, v, accumulators[row * self.vectors + v])
                halves = finished(builder, total, ends, self.shape, small=small)
                target = vector_pointer(builder, line, ir.Constant(I64, 2 * v * self.lanes), halves.type)
                builder.store(halves, target).align = 2
            following, end = (self.function.append_basic_block() for _ in range(2))
            builder.cbranch(builder.icmp_signed(">", rows, ir.Constant(I64, row + 1)), following, end)
            ir.IRBuilder(end).ret_void()
            builder = ir.IRBuilder(following)
        builder.ret_void()

    def units(self, builder: ir.IRBuilder, value: ir.Value, integers: ir.VectorType) -> ir.Value:
        """The accumulator without its magic number, as integers; of sums beyond 32 bits the low ones."""
        if isinstance(self.scalar, ir.FloatType):
            magic = builder.bitcast(self.magic, integers)
            return builder.sub(builder.bitcast(value, integers), magic)
        return builder.trunc(builder.bitcast(value, ir.VectorType(I64, self.lanes)), integers)


def _ends(builder: ir.IRBuilder, lowest: ir.Value, cap: ir.Value, shape: VectorShape) -> tuple[ir.Value, ir.Value]:
    """Limits for `finished`, from two int64."""
    return (
        splat(builder, builder.trunc(lowest, I32), shape.lanes),
        splat(builder, builder.trunc(cap, ir.IntType(16)), shape.lanes),
    )


def build_halves(module: ir.Module, shape: VectorShape) -> None:
    """halves(units, out, n, lowest, cap): sums to fp16, as `finished` says.

    Takes whole vectors, so that there is room for n rounded up.
    """
    short = ir.IntType(16)
    kind = ir.FunctionType(VOID, [I32.as_pointer(), short.as_pointer(), I64, I64, I64])
    function = ir.Function(module, kind, "halves")
    units, out, n, lowest, cap = function.args
    integers, shorts = ir.VectorType(I32, shape.lanes), ir.VectorType(short, shape.lanes)
    before = function.append_basic_block()
    ends = _ends(ir.IRBuilder(before), lowest, cap, shape)
    builder, i = loop(function, before, n, shape.lanes)
    value = load(builder, vector_pointer(builder, units, i, integers), 4)
    builder.store(finished(builder, value, ends, shape), vector_pointer(builder, out, i, shorts)).align = 2
    builder, _ = close(builder, i, n, shape.lanes)
    builder.ret_void()


FUNCTIONS = (
    "mac32",
    "mac64",
    "gather",
    "split",
    "halves",
    "decode_rows",
    "decode_columns",
    "thresholds",
    "pack_columns",
    "interleave",
    "transform_input",
    "transform_kernel",
    "combine",
    *vector_planar.NAMES,
    "depthwise",
    "mac_rows",
    "decode_lines",
    "decode_pairs",
    "begin",
    "widen_rows",
    "widen_columns",
    "follow",
    "follow_all",
    "scale_rows",
    "depthwise_halves",
    "mac_rows_small",
)
"""Names of the kernels, in the order of their addresses."""


def build_module(shape: VectorShape) -> ir.Module:
    """All kernels for one shape; `mac64` works on half of the columns at a time."""
    module = ir.Module("hexane")
    _Builder(module, "mac32", shape, ir.FloatType(), MAGIC32).build()
    _Builder(module, "mac64", shape, ir.DoubleType(), MAGIC64).build()
    _Builder(module, "mac_rows", shape, ir.FloatType(), MAGIC32, _FINISH).build_rows()
    _Builder(module, "mac_rows_small", shape, ir.FloatType(), MAGIC32, _FINISH).build_rows(small=True)
    vector_follow.build(module, shape, "follow", test=True)
    vector_follow.build(module, shape, "follow_all", test=False)
    vector_gather.build(module, shape)
    vector_split.build(module, shape)
    build_halves(module, shape)
    vector_operands.build_decode_rows(module)
    vector_operands.build_decode_columns(module, shape)
    vector_operands.build_thresholds(module, shape)
    vector_operands.build_interleave(module, shape)
    vector_operands.build_begin(module, shape)
    vector_operands.build_widen(module, shape, "widen_rows")
    vector_operands.build_widen(module, shape, "scale_rows", scale=vector_follow.SCALE)
    vector_operands.build_widen(module, shape, "widen_columns", exact=True)
    vector_winograd.build_transform_input(module, shape)
    vector_winograd.build_transform_kernel(module, shape)
    vector_winograd.build_combine(module, shape)
    vector_planar.build(module, shape)
    vector_depthwise.build(module, shape)
    vector_depthwise.build_decode(module, shape, "decode_lines", step=1)
    vector_depthwise.build_decode(module, shape, "decode_pairs", step=2)
    return module
