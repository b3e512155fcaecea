"""Operands made ready for the vector code: decoded to float32, with the exponents that the drop rule asks for."""

from __future__ import annotations

import numpy as np
from numba import njit

from hexane.arithmetic.fast.call import bits_float, float_bits
from hexane.arithmetic.fast.vector_code import ALL_ZERO, DEPTH, SEGMENT


@njit(nogil=True, cache=True)
def pack_rows(x, first, last, rows, a, exponents, norms, passes, pass_norms):
    """Panels first .. last - 1 of the broadcast operand.

    x: uint16 halfwords (M, K), any strides. a: float32 (panels, K, rows); exponents: uint8 (panels, K + 16), the
    smallest
    biased exponent of the non-zero values, subnormals as 1; norms: float32 (panels, segments), the largest norm of a
    row.
    passes: uint8 (panels, passes of DEPTH), the least exponent of a pass, 0 where some k of it is all zero; pass_norms:
    float32 (panels, passes).
    """
    m, depth = x.shape
    values = np.empty((rows, depth), np.float32)
    bits = values.view(np.int32)
    smallest = np.empty(depth, np.uint16)
    for panel in range(first, last):
        smallest[:] = 0xFFFF
        norms[panel, :] = 0
        for r in range(rows):
            row = panel * rows + r
            if row >= m:
                bits[r, :] = 0
                continue
            for k in range(depth):
                h = np.int32(x[row, k])
                magnitude = np.int32(h & 0x7FFF)
                small = float_bits(np.float32(magnitude) * np.float32(2.0**-24))
                normal = np.int32((magnitude << 13) + (112 << 23))
                decoded = small if magnitude < np.int32(1024) else normal
                bits[r, k] = np.int32(decoded | ((h & 0x8000) << 16))
                seen = np.uint16(magnitude) if magnitude != 0 else np.uint16(0xFFFF)
                smallest[k] = min(smallest[k], seen)
            for s in range(norms.shape[1]):
                total = np.float32(0)
                for k in range(s * SEGMENT, min((s + 1) * SEGMENT, depth)):
                    total += values[r, k] * values[r, k]
                norms[panel, s] = max(norms[panel, s], total)
        for s in range(norms.shape[1]):
            norms[panel, s] = np.sqrt(norms[panel, s])
        for k in range(depth):
            for r in range(rows):
                a[panel, k, r] = values[r, k]
        for k in range(depth):
            e = smallest[k] >> 10
            exponents[panel, k] = ALL_ZERO if smallest[k] == 0xFFFF else max(e, 1)
        for c in range(passes.shape[1]):
            least = np.uint8(255)
            largest = np.uint8(0)
            for k in range(c * DEPTH, min((c + 1) * DEPTH, depth)):
                least = min(least, exponents[panel, k])
                largest = max(largest, exponents[panel, k])
            passes[panel, c] = 0 if largest >= ALL_ZERO else least
            total = np.float32(0)
            for s in range(c * (DEPTH // SEGMENT), min((c + 1) * (DEPTH // SEGMENT), norms.shape[1])):
                total += norms[panel, s] * norms[panel, s]
            pass_norms[panel, c] = np.sqrt(total)


@njit(nogil=True, cache=True)
def decode_planes(x, first, last, base, plane, pitch, aligned, out, exponents):
    """Planes first .. last - 1 of the vector operand: x[p, y, :], uint16 contiguous, goes to base + p * plane + y *
    pitch.

    out: int32 bit patterns of float32, moved one step away from zero. exponents: uint8, biased, subnormals as 1,
    `ALL_ZERO` for zero. With `aligned` (a tile's width) every aligned-th place of a row gets the least exponent of the
    places that follow it up to the next; otherwise `window_minimum` has to be called.
    """
    height, width = x.shape[1:]
    for p in range(first, last):
        for y in range(height):
            place = base + p * plane + y * pitch
            row = out[place : place + width]
            seen = exponents[place : place + width]
            source = x[p, y]
            for j in range(width):
                h = np.int32(source[j])
                magnitude = np.int32(h & 0x7FFF)
                small = float_bits(np.float32(magnitude) * np.float32(2.0**-24))
                normal = np.int32((magnitude << 13) + (112 << 23))
                decoded = (small if magnitude < np.int32(1024) else normal) + 1
                value = np.int32(decoded | ((h & 0x8000) << 16))
                row[j] = value if magnitude != np.int32(0) else np.int32(0)
                e = max(np.int32(magnitude >> 10), np.int32(1))
                seen[j] = np.uint8(e) if magnitude != np.int32(0) else np.uint8(ALL_ZERO)
            if aligned:
                for start in range(0, width, aligned):
                    least = np.uint8(ALL_ZERO)
                    for j in range(start, min(start + aligned, width)):
                        least = min(least, seen[j])
                    seen[start] = least


def window_minimum(exponents: np.ndarray, width: int) -> np.ndarray:
    """In place: every element becomes the least of itself and the `width - 1` that follow; width a power of two."""
    reach = 1
    while reach < width:
        np.minimum(exponents[:-reach], exponents[reach:], out=exponents[:-reach])
        reach *= 2
    return exponents


@njit(nogil=True, cache=True)
def thresholds(a, t):
    """For every broadcast value the magnitude below which the other operand is dropped (spec/numerics §11.3).

    a, t: int32 bit patterns of float32 of one shape, flat. 2^(-16 - e), and 0 from exponent -2 on.
    """
    for i in range(a.size):
        field = max(np.int32((a[i] >> 23) & 255), np.int32(113))
        t[i] = np.int32((238 - field) << 23) if field <= np.int32(124) else np.int32(0)


@njit(nogil=True, cache=True)
def widen_rows(a, t, a64, t64):
    """Broadcast values and thresholds as float64."""
    for i in range(a.size):
        a64[i] = a[i]
        t64[i] = t[i]


@njit(nogil=True, cache=True)
def widen_columns(b, b64):
    """The vector operand as float64: the float32 step away from zero becomes a factor 1 + 2^-40 (spec/numerics §11.3).

    b: int32 bit patterns.
    """
    for i in range(b.size):
        value = bits_float(np.int32(b[i] & ~0x1FFF))
        b64[i] = np.float64(value) * (1.0 + 2.0**-40)
