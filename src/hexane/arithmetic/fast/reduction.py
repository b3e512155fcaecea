"""Sums and maxima of long rows, compiled: the bits of `reduction` under its default hypothesis."""

from __future__ import annotations

import numpy as np
from numba import njit

from hexane.arithmetic.fast.call import bits_double, double_bits
from hexane.arithmetic.fast.half import planar_double
from hexane.arithmetic.fast.workers import share

GRAIN = 1 << 16
"""Elements per piece of work."""


@njit(nogil=True, cache=True)
def _cut_add(a, b):
    """a + b, both cut towards zero to multiples of 2^(e - 11), e the larger exponent (spec/numerics §7.2)."""
    largest = max(abs(a), abs(b))
    if largest == 0.0 or largest == np.inf:
        total = a + b
        return total if total == total else 0.0
    field = double_bits(largest) >> 52
    step, inverse = bits_double((field - 11) << 52), bits_double((2046 + 11 - field) << 52)
    return np.trunc(a * inverse) * step + np.trunc(b * inverse) * step


@njit(nogil=True, cache=True)
def _sum(rows, first, last, out):
    """Groups of four by `_cut_add`, the last one filled with zeros; the groups exactly."""
    length = rows.shape[1]
    for r in range(first, last):
        row = rows[r]
        total = 0.0
        for k in range(0, length, 4):
            group = planar_double(row[k])
            for lane in range(k + 1, k + 4):
                group = _cut_add(group, planar_double(row[lane]) if lane < length else 0.0)
            total += group
        out[r] = total if total == total else 0.0


@njit(nogil=True, cache=True)
def _maximum(rows, first, last, out):
    for r in range(first, last):
        row = rows[r]
        largest = planar_double(row[0])
        for k in range(1, row.size):
            largest = max(largest, planar_double(row[k]))
        out[r] = largest


def reduce_rows(rows: np.ndarray, mode: str) -> np.ndarray:
    """Sum or maximum (float64, not rounded) of each row of halfwords (R, K)."""
    rows = np.ascontiguousarray(rows)
    out = np.empty(rows.shape[0], np.float64)
    function = _maximum if mode == "max" else _sum
    share(lambda first, last: function(rows, first, last, out), rows.shape[0], max(1, GRAIN // rows.shape[1]))
    return out
