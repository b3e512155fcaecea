"""Calls from Numba code to the vector code of `vector_code.py`, by address.

The address is a number at run time, so that compiled Numba code can be cached on disk and serves every instruction set.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

MAC32, MAC64, GATHER, SPLIT, HALVES, DECODE_ROWS, DECODE_COLUMNS, THRESHOLDS, PACK_COLUMNS, INTERLEAVE = range(10)
TRANSFORM_INPUT, TRANSFORM_KERNEL, COMBINE = range(10, 13)
PLANAR_ADD, PLANAR_SUBTRACT, PLANAR_MULTIPLY, PLANAR_MAXIMUM, PLANAR_MINIMUM = range(13, 18)
PLANAR_ADD_MULTIPLY, PLANAR_SUBTRACT_MULTIPLY, DEPTHWISE, MAC_ROWS, DECODE_LINES, DECODE_PAIRS = range(18, 24)
BEGIN, WIDEN_ROWS, WIDEN_COLUMNS, FOLLOW, FOLLOW_ALL, SCALE_ROWS, DEPTHWISE_HALVES, MAC_ROWS_SMALL = range(24, 32)
"""Places in `Kernels.addresses`."""


def _call(result: Any, count: int) -> Any:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        word = ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType() if result is types.void else word, [word] * count)
        function = builder.inttoptr(arguments[0], kind.as_pointer())
        value = builder.call(function, list(arguments[1:]))
        return context.get_dummy_value() if result is types.void else value

    return result(types.int64, *[types.int64] * count), generate


@intrinsic
def call_mac(typing, address, a, t, b, plain, n_plain, tested, n_tested, c, stride):
    """mac32 or mac64: all pointers are addresses."""
    return _call(types.void, 9)


@intrinsic
def call_follow(typing, address, a, t, b, n, sums, met):
    """follow or follow_all."""
    return _call(types.void, 6)


@intrinsic
def call_gather(typing, address, source, offsets, n, packed, norms):
    return _call(types.void, 5)


@intrinsic
def call_pack_columns(typing, address, source, offsets, n, packed, exponents, norms):
    return _call(types.void, 6)


@intrinsic
def call_split(typing, address, a, b, first, n, plain, tested):
    return _call(types.int64, 6)


@intrinsic
def call_begin(typing, address, sums, starts, n):
    return _call(types.int64, 3)


@intrinsic
def call_mac_rows(typing, address, a, t, b, plain, n_plain, tested, n_tested, c, stride, out, rows, pitch, lowest, cap):
    """As `call_mac` for mac32, the results to halfwords in rows `pitch` bytes apart."""
    return _call(types.void, 14)


@intrinsic
def call_halves(typing, address, units, out, n, lowest, cap):
    return _call(types.void, 5)


@intrinsic
def call_decode_columns(typing, address, source, n, values, exponents):
    return _call(types.void, 4)


@intrinsic
def call_planar(typing, address, a, b, n, out, least):
    """One of the planar operations on a line."""
    return _call(types.void, 5)


@intrinsic
def call_shift(typing, address, a, shift_scale, n, out):
    """A planar shift and scale of a line, the two halfwords as one number, the shift in its low bits."""
    return _call(types.void, 4)


@intrinsic
def call_depthwise(
    typing, address, values, offsets, weights, limits, order, plain, terms, start, out, n, lowest, cap
):  # fmt: skip
    """depthwise or depthwise_halves."""
    return _call(types.void, 12)


@intrinsic
def call_decode_lines(typing, address, source, apart, lines, n, values, pitch, bounds):
    """decode_lines or decode_pairs."""
    return _call(types.void, 7)


@intrinsic
def call_decode_rows(typing, address, source, n, values, exponents, norms):
    return _call(types.void, 5)


@intrinsic
def call_three(typing, address, first, second, third):
    """thresholds, interleave, widen_rows, widen_columns or scale_rows."""
    return _call(types.void, 3)


@intrinsic
def call_transform(typing, address, source, n, first, second, third, fourth):
    """transform_input or transform_kernel."""
    return _call(types.void, 6)


@intrinsic
def call_combine(typing, address, m0, m1, m2, m3, start, n, out, bounds):
    return _call(types.void, 8)


@intrinsic
def call_body(typing, address, record, phase, first, last, room):
    """Units first .. last - 1 of one phase of a job (`jobs`), by a compiled callback."""
    return _call(types.void, 5)


@intrinsic
def call_pack(
    typing, address, kernels, x, m, depth, rows, first, last, values, exponents, norms, passes, pass_norms
):  # fmt: skip
    """`packing.pack_rows`."""
    return _call(types.void, 12)


@intrinsic
def call_pause(typing, address):
    """Address of the function that lets other threads run (`pause_address`)."""
    return _call(types.int64, 0)


@cache
def pause_address() -> int:
    """The address of the system's function with which a thread lets another run on its processor."""
    if sys.platform == "win32":
        name, library = "SwitchToThread", ctypes.WinDLL("kernel32")
    else:
        name, library = "sched_yield", ctypes.CDLL(None)
    return int(ctypes.cast(library[name], ctypes.c_void_p).value or 0)


@intrinsic
def pointer(typing, address):
    """An address as what `numba.carray` takes."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


def _word(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


@intrinsic
def take_ticket(typing, address):
    """The int64 at an address, which becomes one more for the next who asks, on whatever thread."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        one = ir.Constant(ir.IntType(64), 1)
        return builder.atomic_rmw("add", _word(builder, arguments[0]), one, "seq_cst")

    return types.int64(types.int64), generate


@intrinsic
def look(typing, address):
    """The int64 at an address that other threads change."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return builder.load_atomic(_word(builder, arguments[0]), "seq_cst", 8)

    return types.int64(types.int64), generate


@intrinsic
def show(typing, address, value):
    """An int64 to an address where other threads look."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        builder.store_atomic(arguments[1], _word(builder, arguments[0]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def copy_bytes(typing, target, source, n):
    """n bytes from one address to another; they do not overlap."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        byte = ir.IntType(8).as_pointer()
        to, of = (builder.inttoptr(address, byte) for address in arguments[:2])
        cgutils.raw_memcpy(builder, to, of, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _element(kind: Any, llvm_type: ir.Type, *, write: bool, align: int | None = None) -> Any:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        place = builder.inttoptr(arguments[0], llvm_type.as_pointer())
        if not write:
            return builder.load(place, align=align)
        builder.store(arguments[1], place, align=align)
        return context.get_dummy_value()

    return (types.void(types.int64, kind) if write else kind(types.int64)), generate


@intrinsic
def float_at(typing, address):
    """The float32 at an address."""
    return _element(types.float32, ir.FloatType(), write=False)


@intrinsic
def put_float(typing, address, value):
    """A float32 to an address."""
    return _element(types.float32, ir.FloatType(), write=True)


@intrinsic
def double_at(typing, address):
    """The float64 at an address."""
    return _element(types.float64, ir.DoubleType(), write=False)


@intrinsic
def put_double(typing, address, value):
    """A float64 to an address."""
    return _element(types.float64, ir.DoubleType(), write=True)


@intrinsic
def byte_at(typing, address):
    """The uint8 at an address."""
    return _element(types.uint8, ir.IntType(8), write=False)


@intrinsic
def put_byte(typing, address, value):
    """A uint8 to an address."""
    return _element(types.uint8, ir.IntType(8), write=True)


@intrinsic
def half_at(typing, address):
    """The uint16 at an address."""
    return _element(types.uint16, ir.IntType(16), write=False)


@intrinsic
def put_half(typing, address, value):
    """A uint16 to an address."""
    return _element(types.uint16, ir.IntType(16), write=True)


@intrinsic
def int_at(typing, address):
    """The int32 at an address."""
    return _element(types.int32, ir.IntType(32), write=False)


@intrinsic
def put_int(typing, address, value):
    """An int32 to an address."""
    return _element(types.int32, ir.IntType(32), write=True)


@intrinsic
def long_at(typing, address):
    """The int64 at an address, at which a halfword may begin."""
    return _element(types.int64, ir.IntType(64), write=False, align=2)


@intrinsic
def put_long(typing, address, value):
    """An int64 to an address, at which a halfword may begin."""
    return _element(types.int64, ir.IntType(64), write=True, align=2)


def _bitcast(source: Any, result: Any, llvm_type: ir.Type) -> Any:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return builder.bitcast(arguments[0], llvm_type)

    return result(source), generate


@intrinsic
def bits_float(typing, value):
    """The float32 of an int32 bit pattern."""
    return _bitcast(types.int32, types.float32, ir.FloatType())


@intrinsic
def float_bits(typing, value):
    """The bit pattern of a float32 as int32."""
    return _bitcast(types.float32, types.int32, ir.IntType(32))


@intrinsic
def double_bits(typing, value):
    """The int64 bit pattern of a float64."""
    return _bitcast(types.float64, types.int64, ir.IntType(64))


@intrinsic
def bits_double(typing, value):
    """The float64 of an int64 bit pattern."""
    return _bitcast(types.int64, types.float64, ir.DoubleType())
