"""Sums and maxima of long rows, compiled: the bits of `reduction` under its default hypothesis."""

from __future__ import annotations

import numpy as np

from hexane.arithmetic.fast.call import bits_float, copy_bytes, float_bits
from hexane.arithmetic.fast.compiled import compiled
from hexane.arithmetic.fast.half import half_away, planar_double, planar_single
from hexane.arithmetic.fast.workers import share

GRAIN = 1 << 15
"""Elements per piece of work."""


GROUPS = 64
"""Groups of four terms that are added side by side."""

SIGN = 1 << 15
"""The bit of a halfword."""

VECTOR = 8
"""Groups are filled with zeros to a multiple of this, so that no term goes by itself."""


@compiled(inner=True)
def _cut_add(a, b, n):
    """a[:n] += b[:n], all cut towards zero to multiples of 2^(e - 11), e the larger exponent: exact in float32.

    Source: docs/reference/numerics.md 7.2.
    """
    for i in range(n):
        largest = max(abs(a[i]), abs(b[i]))
        usual = (largest > np.float32(0.0)) & (largest < np.float32(np.inf))
        field = float_bits(largest if usual else np.float32(1.0)) >> np.int32(23)
        step = bits_float(np.int32((field - np.int32(11)) << np.int32(23)))
        inverse = bits_float(np.int32((np.int32(254 + 11) - field) << np.int32(23)))
        total = np.trunc(a[i] * inverse) * step + np.trunc(b[i] * inverse) * step
        total = total if usual else a[i] + b[i]
        a[i] = total if total == total else np.float32(0.0)


@compiled()
def total(rows, first, last, out):
    """Groups of four by `_cut_add`, the last one filled with zeros; the groups exactly."""
    length = rows.shape[1]
    halves = np.empty(4 * GROUPS, np.uint16)
    block, lanes = np.empty(4 * GROUPS, np.float32), np.empty((4, GROUPS), np.float32)
    for r in range(first, last):
        whole = 0.0
        for k in range(0, length, 4 * GROUPS):
            count = min(4 * GROUPS, length - k)
            groups = -(-count // (4 * VECTOR)) * VECTOR
            halves[count : 4 * groups] = 0
            copy_bytes(halves.ctypes.data, rows.ctypes.data + r * rows.strides[0] + 2 * k, 2 * count)
            for i in range(4 * groups):
                block[i] = planar_single(halves[i])
            for lane in range(4):
                for i in range(groups):
                    lanes[lane, i] = block[4 * i + lane]
            for lane in range(1, 4):
                _cut_add(lanes[0], lanes[lane], groups)
            for i in range(groups):
                whole += lanes[0, i]
        out[r] = whole if whole == whole else 0.0


@compiled()
def maximum(rows, first, last, out):
    """The largest of each row; halfwords with a sign are as far below zero as their magnitude."""
    for r in range(first, last):
        row, largest = rows[r], np.int32(-SIGN)
        for k in range(row.size):
            magnitude = np.int32(row[k] & 0x7FFF)
            negative = row[k] >= SIGN and magnitude <= 0x7C00
            largest = max(largest, -magnitude if negative else min(magnitude, np.int32(0x7C00)))
        out[r] = planar_double(np.uint16(largest if largest >= 0 else SIGN - largest))


def reduce_rows(rows: np.ndarray, mode: str) -> np.ndarray:
    """Sum or maximum (float64, not rounded) of each row of halfwords (R, K)."""
    rows = np.ascontiguousarray(rows)
    out = np.empty(rows.shape[0], np.float64)
    function = maximum if mode == "max" else total
    share(lambda first, last: function(rows, first, last, out), rows.shape[0], max(1, GRAIN // rows.shape[1]))
    return out


PLAIN, RECIPROCAL, RECIPROCAL_ROOT, SQUARE_ROOT = range(4)


@compiled(error_model="numpy")
def finish(totals, scale, epsilon, function, out):
    """Totals (float64, as `reduce_rows` gives them) to halfwords: h(* scale), h(+ epsilon), h(function)."""
    for i in range(totals.size):
        value = totals[i] * scale
        half = half_away(value if value == value else 0.0)
        if epsilon != 0.0:
            half = half_away(planar_double(half) + epsilon)
        if function != PLAIN:
            value = planar_double(half)
            if function == RECIPROCAL:
                half = half_away(1.0 / value)
            elif function == SQUARE_ROOT:
                half = half_away(0.0 if value < 0.0 else np.sqrt(value))
            else:
                half = half_away(0.0 if value < 0.0 else 1.0 / np.sqrt(value))
        out[i] = half
