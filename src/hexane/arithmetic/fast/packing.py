"""Operands made ready for the vector code: decoded to float32, with the exponents that the drop rule asks for."""

from __future__ import annotations

import numpy as np
from numba import types

from hexane.arithmetic.fast.call import (
    DECODE_COLUMNS,
    DECODE_ROWS,
    INTERLEAVE,
    LEAST,
    bits_float,
    call_decode_columns,
    call_decode_rows,
    call_least,
    call_three,
    float_at,
    float_bits,
    put_double,
)
from hexane.arithmetic.fast.compiled import compiled
from hexane.arithmetic.fast.vector_parts import ALL_ZERO, DEPTH, ROW_PITCH, SEGMENT


@compiled()
def pack_rows(kernels, x, first, last, a, exponents, norms, passes, pass_norms):
    """Panels first .. last - 1 of the broadcast operand.

    x: uint16 halfwords (M, K), rows contiguous. a: float32 (panels, K, rows). exponents: uint8 (panels, K + 16), the
    smallest biased exponent of the non-zero values of the rows, subnormals as 1. norms: float32 (panels, segments), the
    largest norm of a row. passes: uint8 (panels, passes), the least exponent of a pass, 0 where some k of it is all
    zero. pass_norms: float32 (panels, passes).
    """
    m, depth = x.shape
    rows = a.shape[2]
    decoded = np.empty((rows, ROW_PITCH), np.float32)
    rest = np.zeros(SEGMENT, np.uint16)
    for panel in range(first, last):
        exponents[panel, :] = ALL_ZERO
        norms[panel, :] = 0
        for c in range(passes.shape[1]):
            begin = c * DEPTH
            whole = min(DEPTH, depth - begin) & -SEGMENT
            over = min(DEPTH, depth - begin) - whole
            for r in range(rows):
                row = panel * rows + r
                target = decoded[r]
                if row >= m:
                    target[:] = 0
                    continue
                source = x.ctypes.data + 2 * (row * depth + begin)
                values = target.ctypes.data
                least = exponents.ctypes.data + panel * exponents.shape[1] + begin
                bounds = norms.ctypes.data + 4 * (panel * norms.shape[1] + begin // SEGMENT)
                call_decode_rows(kernels[DECODE_ROWS], source, whole, values, least, bounds)
                if over:
                    rest[over:] = 0
                    for i in range(over):
                        rest[i] = x[row, begin + whole + i]
                    call_decode_rows(
                        kernels[DECODE_ROWS],
                        rest.ctypes.data,
                        SEGMENT,
                        values + 4 * whole,
                        least + whole,
                        bounds + 4 * (whole // SEGMENT),
                    )
            packed = a.ctypes.data + 4 * rows * (panel * depth + begin)
            call_three(kernels[INTERLEAVE], decoded.ctypes.data, whole + over, packed)
        for s in range(norms.shape[1]):
            norms[panel, s] = np.sqrt(norms[panel, s])
        for c in range(passes.shape[1]):
            low = np.uint8(255)
            high = np.uint8(0)
            for k in range(c * DEPTH, min((c + 1) * DEPTH, depth)):
                low = min(low, exponents[panel, k])
                high = max(high, exponents[panel, k])
            passes[panel, c] = 0 if high >= ALL_ZERO else low
            total = np.float32(0)
            for s in range(c * (DEPTH // SEGMENT), min((c + 1) * (DEPTH // SEGMENT), norms.shape[1])):
                total += norms[panel, s] * norms[panel, s]
            pass_norms[panel, c] = np.sqrt(total)


@compiled(
    types.void(
        types.int64[::1],
        types.Array(types.uint16, 3, "A", readonly=True),
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int32[::1],
        types.uint8[::1],
    )
)
def decode_planes(kernels, x, first, last, base, plane, pitch, matrix, out, exponents):
    """Planes first .. last - 1 of the vector operand: x[p, y, :] goes to base + p * plane + y * pitch.

    x: uint16, lines without gaps. out: int32 bit patterns of float32, moved one step away from zero. exponents: uint8,
    biased, subnormals as 1, `ALL_ZERO` for zero. If `matrix` is not 0, a plane is one row of so many places, the rest
    of which is filled with zeros, and tiles start at multiples of their width: the first place of each gets the least
    exponent of the tile. Otherwise `window_minimum` has to be called.
    """
    height, width = x.shape[1:]
    together = x.strides[1] == 2 * width and pitch == width
    for p in range(first, last):
        for y in range(1 if together else height):
            place = base + p * plane + y * pitch
            call_decode_columns(
                kernels[DECODE_COLUMNS],
                x.ctypes.data + p * x.strides[0] + y * x.strides[1],
                height * width if together else width,
                out.ctypes.data + 4 * place,
                exponents.ctypes.data + place,
            )
        if matrix:
            row = base + p * plane
            for i in range(row + height * width, row + matrix):
                out[i] = 0
                exponents[i] = ALL_ZERO
            call_least(kernels[LEAST], exponents.ctypes.data + row, height * width)


CHUNK = 1 << 12
"""Exponents that `window_minimum` takes at a time: they stay in the first-level cache."""


@compiled()
def _least_of_two(source, distance, target):
    """target[i] becomes the lesser of source[i] and source[i + distance], if there is one."""
    both = max(0, source.size - distance)
    ahead = source[distance:]
    for i in range(both):
        target[i] = min(source[i], ahead[i])
    for i in range(both, source.size):
        target[i] = source[i]


@compiled()
def window_minimum(exponents, width):
    """In place: exponents become the least of themselves and the `width - 1` that follow; nothing follows the end.

    The least of n and the least of the next n are the least of 2 n. Going forward, all that is read still stands there.
    """
    first_room, second_room = np.empty(CHUNK + width, np.uint8), np.empty(CHUNK + width, np.uint8)
    for first in range(0, exponents.size, CHUNK):
        wanted, count = min(CHUNK, exponents.size - first), min(CHUNK + width - 1, exponents.size - first)
        source, target = first_room[:count], second_room[:count]
        source[:] = exponents[first : first + count]
        reach = 1
        while reach < width:
            distance = min(reach, width - reach)
            _least_of_two(source, distance, target)
            source, target = target, source
            reach += distance
        exponents[first : first + wanted] = source[:wanted]


@compiled()
def widen_rows(values, n, out):
    """n broadcast values or thresholds as float64; both are addresses."""
    for i in range(n):
        put_double(out + 8 * i, np.float64(float_at(values + 4 * i)))


@compiled()
def widen_columns(bits, n, out):
    """n values of the vector operand as float64: the step away from zero becomes a factor 1 + 2^-40.

    bits: address of float32, out: of float64. See docs/reference/numerics.md 11.3.
    """
    for i in range(n):
        pattern = float_bits(float_at(bits + 4 * i)) & ~0x1FFF
        put_double(out + 8 * i, np.float64(bits_float(np.int32(pattern))) * (1.0 + 2.0**-40))
