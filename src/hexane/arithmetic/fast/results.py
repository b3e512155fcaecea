"""From sums to halfwords in their place: scale, rounding, activation, and the lines of a result."""

from __future__ import annotations

import numpy as np
from numba import carray

from hexane.arithmetic.fast.call import HALVES, call_halves, copy_bytes, half_at, long_at, pointer
from hexane.arithmetic.fast.compiled import compiled
from hexane.arithmetic.fast.half import half_away


@compiled(inline="always")
def _copy_by(size, to, at, n):
    """n bytes, from the size to twice that, by two copies that overlap: faster than one of unknown size."""
    copy_bytes(to, at, size)
    copy_bytes(to + n - size, at + n - size, size)


@compiled(inner=True)
def copy_lines(target, apart, source, pitch, lines, n):
    """`lines` times n bytes, `apart` bytes from one to the next where they go and `pitch` where they are."""
    for i in range(lines):
        to, at = target + i * apart, source + i * pitch
        if n < 8 or n > 256:
            copy_bytes(to, at, n)
        elif n <= 16:
            _copy_by(8, to, at, n)
        elif n <= 32:
            _copy_by(16, to, at, n)
        elif n <= 64:
            _copy_by(32, to, at, n)
        elif n <= 128:
            _copy_by(64, to, at, n)
        else:
            _copy_by(128, to, at, n)


@compiled(inline="always")
def ends(relu, table, table_size):
    """Limits for `vector_parts.finished`: the least of sums, and the largest of halfwords."""
    cap = np.int64(half_at(table)) if table_size == 1 else np.int64(0xFFFF)
    return np.int64(0) if relu else np.int64(-1 << 31), cap


@compiled(inner=True)
def finish(kernels, units, n, scale, relu, table, table_size, halves):
    """n sums below the limit as halfwords: scale, half away, ReLU, table (docs/reference/numerics.md 3.4, 3.5).

    All but numbers are addresses. A table of one value is what nothing may exceed, behind a ReLU. n a multiple of the
    lanes, or room for as much.
    """
    lowest, cap = ends(relu, table, table_size)
    line = carray(pointer(halves), (n,), np.uint16)  # arrays, because loops over them become vectors
    if scale == 1.0:
        call_halves(long_at(kernels + 8 * HALVES), units, halves, n, lowest, cap)
    else:
        sums = carray(pointer(units), (n,), np.int32)
        for i in range(n):
            line[i] = half_away(sums[i] * 2.0**-16 * scale)
        if relu:
            for i in range(n):
                line[i] = line[i] if line[i] < 0x8000 else 0
        if table_size == 1:
            most = np.uint16(cap)
            for i in range(n):
                line[i] = min(line[i], most)
    if table_size > 1:
        results = carray(pointer(table), (1 << 16,), np.uint16)
        for i in range(n):
            line[i] = results[line[i]]


@compiled(inner=True)
def finish_units(kernels, units, n, scale, relu, table, halves):
    """The same with arrays."""
    table_at, halves_at = table.ctypes.data, halves.ctypes.data
    finish(kernels.ctypes.data, units.ctypes.data, n, scale, relu, table_at, table.size, halves_at)
