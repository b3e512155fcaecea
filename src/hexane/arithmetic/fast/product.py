"""The blocked product on the vector code: which k need what, flushing, the sums at risk, and the way to fp16.

Both operands are read through one picture: the broadcast operand lies packed in panels of rows (`pack_rows`); the
vector
operand is a flat float32 array in which term k of output column j stands at base + offsets[k] + j. A matrix is that
with
offsets k * pitch; an image under a stride-1 kernel with offsets channel * plane + ky * pitch + kx. So a convolution
needs
no copy of its input per kernel position.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hexane.arithmetic.fast.call import (
    GATHER,
    HALVES,
    MAC32,
    MAC64,
    SPLIT,
    THRESHOLDS,
    bits_float,
    call_gather,
    call_halves,
    call_mac,
    call_split,
    call_three,
    double_bits,
)
from hexane.arithmetic.fast.packing import widen_columns, widen_rows
from hexane.arithmetic.fast.vector_code import DEPTH, DROP_SUM, SEGMENT

PARTIAL = np.float32(63.5)
"""Bound of a partial sum in the float32 accumulator: 64, less the rounding of products and of the bound itself."""

SAFE = 32700.0
"""Bound below which no order of terms can reach 2^15 (spec/numerics §11.9); the rest pays for rounding errors."""

LIMIT = 32768.0


@njit(nogil=True, cache=True)
def _aligned(size, kind):
    """A scratch array that starts at a cache line."""
    raw = np.empty(size + 64, kind)
    skip = (-raw.ctypes.data % 64) // raw.itemsize
    return raw[skip : skip + size]


@njit(nogil=True, cache=True)
def half_away(v):
    """One float64 as a halfword, half away; no NaN, never -0."""
    magnitude = abs(v)
    sign = 0x8000 if v < 0 else 0
    if magnitude >= 65520.0:
        return np.uint16(0x7C00 | sign)
    if magnitude < 2.0**-14:
        scaled = magnitude * 2.0**24
        whole = np.floor(scaled)
        if scaled - whole >= 0.5:
            whole += 1.0
        code = int(whole)
        return np.uint16(code | sign) if code else np.uint16(0)
    bits = double_bits(magnitude) + (1 << 41)
    return np.uint16(((bits >> 42) - (1008 << 10)) | sign)


@njit(nogil=True, cache=True)
def _walk(a, b, offsets, base, start, t, rows, columns, units, overflow):
    """One tile term by term, in order, with the sticky limit (spec/numerics §3.3), in float64 (§11.3).

    a, t: (K, rows) float32 values and thresholds; b: flat float32; start: (rows, columns) int64 units.
    """
    magic = 1.5 * 2.0**36
    sums = np.empty(columns, np.float64)
    met = np.empty(columns, np.int8)
    bits = b.view(np.int32)
    for r in range(rows):
        for j in range(columns):
            value = start[r, j] * 2.0**-16
            sums[j] = magic + value
            met[j] = 1 if value >= LIMIT else (-1 if value <= -LIMIT else 0)
        for k in range(offsets.size):
            x = np.float64(a[k, r])
            least = t[k, r]
            if x == 0.0:
                continue
            place = base + offsets[k]
            for j in range(columns):
                w = bits_float(np.int32(bits[place + j] & ~0x1FFF))
                y = np.float64(w) * (1.0 + 2.0**-40) if abs(w) >= least else 0.0
                total = sums[j] + x * y
                sums[j] = total
                value = total - magic
                crossed = 1 if value >= LIMIT else (-1 if value <= -LIMIT else 0)
                met[j] = crossed if met[j] == 0 else met[j]
        for j in range(columns):
            overflow[r, j] = met[j]
            units[r, j] = 0 if met[j] else np.int32((sums[j] - magic) * 65536.0)


@njit(nogil=True, cache=True)
def _store(halves, columns, count, column, pitch, width, height, out):
    """Write the columns of a tile that are outputs: column j is place j % pitch of output row j // pitch."""
    if height == 1 and column + count <= width:
        for r in range(out.shape[0]):
            out[r, column : column + count] = halves[r * columns : r * columns + count]
        return
    j = 0
    while j < count:
        line, x = divmod(column + j, pitch)
        run = min(pitch - x, count - j)
        if line < height and x < width:
            used = min(run, width - x)
            for r in range(out.shape[0]):
                for i in range(used):
                    out[r, line * width + x + i] = halves[r * columns + j + i]
        j += run


@njit(nogil=True, cache=True)
def multiply(
    kernels,
    shape,
    block,
    first,
    last,
    a,
    a_exponents,
    a_norms,
    a_passes,
    a_pass_norms,
    b,
    b_exponents,
    offsets,
    base,
    extent,
    row_start,
    column_start,
    raw,
    raw_overflow,
    out,
    window,
    finish,
    table,
):
    """Blocks first .. last - 1 of the outputs of one product.

    kernels: addresses. shape: rows and columns of a tile. block: row panels and columns of a block.
    a and what follows it: from `pack_rows`. b, b_exponents: flat, decoded; b_exponents already least over a tile's
    width.
    offsets: int64 (K). base: where column 0 stands. extent: columns to compute, a multiple of nothing.
    row_start, column_start: int64 units, start values; one of them holds the bias.
    raw, raw_overflow: int32 and int8 (M, >= extent), the sums themselves, if raw has a size; else
    out: uint16 (M, positions); window = (pitch, width, height): column j is output row j // pitch, place j % pitch.
    finish = (scale, ReLU or not); table: uint16 of 65536, or empty.
    """
    rows, columns = shape
    block_panels, block_columns = block
    m = row_start.size
    panels, depth = a.shape[0], offsets.size
    panel_size = rows * DEPTH
    pitch, width, height = window
    scale, relu = finish
    column_blocks = -(-extent // block_columns)
    per_panel = DEPTH // SEGMENT

    packed = _aligned(DEPTH * columns, np.float32)
    part = np.empty(per_panel, np.float32)
    limits = _aligned(block_panels * panel_size, np.float32)
    have_limits = np.zeros(block_panels, np.bool_)
    least = np.empty(DEPTH + 16, np.uint8)
    plain = np.empty(DEPTH + 16, np.int32)
    tested = np.empty(DEPTH + 16, np.int32)
    every = np.arange(DEPTH).astype(np.int32)
    tile = rows * columns
    tiles_across = block_columns // columns
    sums = _aligned(block_panels * tiles_across * tile, np.int32)
    bounds = np.empty((block_panels, tiles_across), np.float64)
    a64 = _aligned(panel_size, np.float64)
    t64 = _aligned(panel_size, np.float64)
    b64 = _aligned(DEPTH * columns, np.float64)
    halves = _aligned(tile, np.uint16)
    overflow = np.zeros((rows, columns), np.int8)
    units = np.empty((rows, columns), np.int32)
    start = np.empty((rows, columns), np.int64)
    biggest_start = 0.0
    for value in row_start:
        biggest_start = max(biggest_start, abs(float(value)))
    for value in column_start:
        biggest_start = max(biggest_start, abs(float(value)))
    whole_limits = np.empty((depth, rows), np.float32)

    for number in range(first, last):
        p0 = (number // column_blocks) * block_panels
        p1 = min(p0 + block_panels, panels)
        j0 = (number % column_blocks) * block_columns
        j1 = min(j0 + block_columns, extent)
        across = -(-(j1 - j0) // columns)
        bounds[:] = biggest_start * 2.0**-16 + depth * 2.0**-17
        for p in range(p0, p1):
            place = (p - p0) * tiles_across * tile
            if biggest_start == 0:
                sums[place : place + across * tile] = 0
                continue
            for q in range(across):
                for r in range(rows):
                    row = p * rows + r
                    line = sums[place + r * columns : place + (r + 1) * columns]
                    line[:] = np.int32(row_start[row] if row < m else 0)
                    column = j0 + q * columns
                    for j in range(min(columns, column_start.size - column)):
                        line[j] += np.int32(column_start[column + j])
                place += tile

        for k0 in range(0, depth, DEPTH):
            n = min(DEPTH, depth - k0)
            s0 = k0 // SEGMENT
            ns = -(-n // SEGMENT)
            have_limits[:] = False
            for q in range(across):
                column = base + j0 + q * columns
                call_gather(
                    kernels[GATHER],
                    b.ctypes.data + 4 * column,
                    offsets.ctypes.data + 8 * k0,
                    n,
                    packed.ctypes.data,
                    part.ctypes.data,
                )
                smallest = np.uint8(255)
                zeros = False
                for k in range(n):
                    e = b_exponents[column + offsets[k0 + k]]
                    least[k] = e
                    smallest = min(smallest, e)
                    zeros |= e >= 128
                if zeros:
                    smallest = np.uint8(0)
                whole = np.float32(0)
                for s in range(ns):
                    whole += part[s]
                    part[s] = np.sqrt(part[s])
                whole = np.sqrt(whole)
                have_wide = False
                for p in range(p0, p1):
                    c = sums.ctypes.data + 4 * (((p - p0) * tiles_across + q) * tile)
                    panel = a.ctypes.data + 4 * rows * (p * depth + k0)
                    exponents = a_exponents.ctypes.data + p * a_exponents.shape[1] + k0
                    total = a_pass_norms[p, k0 // DEPTH] * whole
                    bounds[p - p0, q] += total
                    # Whether every k of this tile and pass goes the plain way: none drops, none is all zero.
                    low = a_passes[p, k0 // DEPTH]
                    listed = low == 0 or smallest == 0 or low + smallest <= DROP_SUM
                    if not listed and total < PARTIAL:
                        call_mac(kernels[MAC32], panel, 0, packed.ctypes.data, every.ctypes.data, n, 0, 0, c, columns)
                        continue
                    worst = np.float32(0)
                    for s in range(ns):
                        worst = max(worst, a_norms[p, s0 + s] * part[s])
                    t = limits.ctypes.data + 4 * (p - p0) * panel_size
                    if listed and not have_limits[p - p0]:
                        call_three(kernels[THRESHOLDS], panel, n * rows, t)
                        have_limits[p - p0] = True
                    if worst >= PARTIAL:
                        # A partial sum may leave the float32 accumulator: the float64 one, half of the columns at a
                        # time.
                        if not listed:
                            call_three(kernels[THRESHOLDS], panel, n * rows, t)
                            have_limits[p - p0] = True
                        if not have_wide:
                            widen_columns(packed[: n * columns].view(np.int32), b64)
                            have_wide = True
                        widen_rows(
                            a[p, k0 : k0 + n].reshape(n * rows),
                            limits[(p - p0) * panel_size : (p - p0) * panel_size + n * rows],
                            a64,
                            t64,
                        )
                        counts = call_split(
                            kernels[SPLIT],
                            exponents,
                            least.ctypes.data,
                            0,
                            n,
                            plain.ctypes.data,
                            tested.ctypes.data,
                        )
                        for half in range(2):
                            call_mac(
                                kernels[MAC64],
                                a64.ctypes.data,
                                t64.ctypes.data,
                                b64.ctypes.data + 4 * columns * half,
                                plain.ctypes.data,
                                counts & 0xFFFFFFFF,
                                tested.ctypes.data,
                                counts >> 32,
                                c + 2 * columns * half,
                                columns,
                            )
                        continue
                    s = 0
                    while s < ns:
                        k = s * SEGMENT
                        running = a_norms[p, s0 + s] * part[s]
                        s += 1
                        while s < ns and running + a_norms[p, s0 + s] * part[s] < PARTIAL:
                            running += a_norms[p, s0 + s] * part[s]
                            s += 1
                        count = min(s * SEGMENT, n) - k
                        if listed:
                            counts = call_split(
                                kernels[SPLIT],
                                exponents,
                                least.ctypes.data,
                                k,
                                count,
                                plain.ctypes.data,
                                tested.ctypes.data,
                            )
                            call_mac(
                                kernels[MAC32],
                                panel,
                                t,
                                packed.ctypes.data,
                                plain.ctypes.data,
                                counts & 0xFFFFFFFF,
                                tested.ctypes.data,
                                counts >> 32,
                                c,
                                columns,
                            )
                        else:
                            call_mac(
                                kernels[MAC32],
                                panel,
                                t,
                                packed.ctypes.data,
                                every.ctypes.data + 4 * k,
                                count,
                                tested.ctypes.data,
                                0,
                                c,
                                columns,
                            )

        for p in range(p0, p1):
            for q in range(across):
                place = ((p - p0) * tiles_across + q) * tile
                risky = not bounds[p - p0, q] < SAFE
                if risky:
                    call_three(
                        kernels[THRESHOLDS],
                        a.ctypes.data + 4 * rows * p * depth,
                        rows * depth,
                        whole_limits.ctypes.data,
                    )
                    for r in range(rows):
                        row = p * rows + r
                        for j in range(columns):
                            column = j0 + q * columns + j
                            start[r, j] = (row_start[row] if row < m else 0) + (
                                column_start[column] if column < column_start.size else 0
                            )
                    _walk(
                        a[p], b, offsets, base + j0 + q * columns, start, whole_limits, rows, columns, units, overflow
                    )
                    for r in range(rows):
                        for j in range(columns):
                            sums[place + r * columns + j] = units[r, j]
                count = min(columns, extent - (j0 + q * columns))
                if raw.size:
                    for r in range(min(rows, m - p * rows)):
                        for j in range(count):
                            raw[p * rows + r, j0 + q * columns + j] = sums[place + r * columns + j]
                            raw_overflow[p * rows + r, j0 + q * columns + j] = overflow[r, j] if risky else 0
                    continue
                if scale == 1.0:
                    call_halves(kernels[HALVES], sums.ctypes.data + 4 * place, halves.ctypes.data, tile)
                else:
                    for i in range(tile):
                        halves[i] = half_away(sums[place + i] * 2.0**-16 * scale)
                if risky:
                    for r in range(rows):
                        for j in range(columns):
                            if overflow[r, j]:
                                up = overflow[r, j] * scale
                                halves[r * columns + j] = 0x7C00 if up > 0 else (0xFC00 if up < 0 else 0)
                if relu:
                    for i in range(tile):
                        halves[i] = halves[i] if halves[i] < 0x8000 else 0
                if table.size:
                    for i in range(tile):
                        halves[i] = table[halves[i]]
                column = j0 + q * columns
                _store(halves, columns, count, column, pitch, width, height, out[p * rows : min((p + 1) * rows, m)])
