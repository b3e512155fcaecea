"""The blocked product on the vector code: which k need what, flushing, the sums at risk, and the way to fp16.

Both operands are read through one picture: the broadcast operand lies packed in panels of rows (`pack_rows`); the
vector operand is a flat float32 array in which term k of output column j stands at base + offsets[k] + j. A matrix is
that with offsets k * pitch, an image under a kernel with offsets channel * plane + ky * pitch + kx. So a convolution
needs no copy of its input per kernel position.

A block of tiles takes passes of `DEPTH` terms. In each pass and tile the terms of which none can be dropped run without
a test, and the accumulators are emptied into integers before a partial sum could leave their range. Bounds (Cauchy and
Schwarz, spec/numerics §11.9) say when; a tile whose sums could reach the limit is walked term by term.
"""

from __future__ import annotations

from typing import NamedTuple

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
)
from hexane.arithmetic.fast.half import half_away
from hexane.arithmetic.fast.packing import widen_columns, widen_rows
from hexane.arithmetic.fast.vector_parts import ALL_ZERO, DEPTH, DROP_SUM, SEGMENT

PARTIAL = np.float32(63.5)
"""Bound of a partial sum in the float32 accumulator: 64, less the rounding of products and of the bound itself."""

SAFE = 32700.0
"""Bound below which no order of terms can reach 2^15 (spec/numerics §11.9); the rest pays for rounding errors."""

LIMIT = 32768.0


class Rows(NamedTuple):
    """The broadcast operand, packed: see `packing.pack_rows`."""

    values: np.ndarray
    exponents: np.ndarray
    norms: np.ndarray
    passes: np.ndarray
    pass_norms: np.ndarray


class Columns(NamedTuple):
    """The vector operand: flat float32, and the least exponent (uint8) within one tile's width from every place on."""

    values: np.ndarray
    exponents: np.ndarray


class Terms(NamedTuple):
    """Term k of column j stands at base + offsets[k] + j; columns 0 .. extent - 1 are wanted."""

    offsets: np.ndarray
    base: int
    extent: int


class Start(NamedTuple):
    """Start values in units (int64): one per row, and one per column or none."""

    rows: np.ndarray
    columns: np.ndarray


class Target(NamedTuple):
    """Where results go.

    If raw has a size, sums (int32) and the sign of their overflow (int8) go to raw and overflow (M, >= extent). Else
    halfwords go to out (M, positions): column j is place j % pitch of output row j // pitch; `height` rows of `width`.
    The sum is multiplied by `scale`; then ReLU, then the table of 65536 results (uint16) if it has a size.
    """

    raw: np.ndarray
    overflow: np.ndarray
    out: np.ndarray
    pitch: int
    width: int
    height: int
    scale: float
    relu: bool
    table: np.ndarray


class Tiles(NamedTuple):
    """Rows and columns of a tile; panels and tiles across of a block."""

    rows: int
    columns: int
    panels: int
    across: int


class Scratch(NamedTuple):
    """One thread's memory: the sums of a block, the panel of columns and the lists of terms of a pass."""

    sums: np.ndarray
    bounds: np.ndarray
    packed: np.ndarray
    norms: np.ndarray
    least: np.ndarray
    every: np.ndarray
    plain: np.ndarray
    tested: np.ndarray
    limits: np.ndarray
    have_limits: np.ndarray
    wide_rows: np.ndarray
    wide_limits: np.ndarray
    wide_columns: np.ndarray


@njit(nogil=True, cache=True)
def _aligned(size, kind):
    """A scratch array that starts at a cache line."""
    raw = np.empty(size + 64, kind)
    skip = (-raw.ctypes.data % 64) // raw.itemsize
    return raw[skip : skip + size]


@njit(nogil=True, cache=True)
def _walk(a, t, b, terms, column, tile, start, units, overflow):
    """One tile term by term, in order, with the sticky limit (spec/numerics §3.3), in float64 (§11.3).

    a, t: (K, rows) float32 values and thresholds; b: flat int32 bit patterns; start, units, overflow: one tile, flat.
    """
    magic = 1.5 * 2.0**36
    rows, columns = tile
    sums = np.empty(columns, np.float64)
    met = np.empty(columns, np.int8)
    for r in range(rows):
        for j in range(columns):
            value = start[r * columns + j] * 2.0**-16
            sums[j] = magic + value
            met[j] = 1 if value >= LIMIT else (-1 if value <= -LIMIT else 0)
        for k in range(terms.offsets.size):
            x = np.float64(a[k, r])
            least = t[k, r]
            if x == 0.0:
                continue
            place = terms.base + terms.offsets[k] + column
            for j in range(columns):
                w = bits_float(np.int32(b[place + j] & ~0x1FFF))
                y = np.float64(w) * (1.0 + 2.0**-40) if abs(w) >= least else 0.0
                total = sums[j] + x * y
                sums[j] = total
                value = total - magic
                crossed = 1 if value >= LIMIT else (-1 if value <= -LIMIT else 0)
                met[j] = crossed if met[j] == 0 else met[j]
        for j in range(columns):
            overflow[r * columns + j] = met[j]
            units[r * columns + j] = 0 if met[j] else np.int32((sums[j] - magic) * 65536.0)


@njit(nogil=True, cache=True)
def _scratch(tiles):
    tile = tiles.rows * tiles.columns
    every = np.empty(DEPTH, np.int32)
    for k in range(DEPTH):
        every[k] = k
    return Scratch(
        _aligned(tiles.panels * tiles.across * tile, np.int32),
        np.empty((tiles.panels, tiles.across), np.float64),
        _aligned(DEPTH * tiles.columns, np.float32),
        np.empty(DEPTH // SEGMENT, np.float32),
        np.empty(DEPTH + 16, np.uint8),
        every,
        np.empty(DEPTH + 16, np.int32),
        np.empty(DEPTH + 16, np.int32),
        _aligned(tiles.panels * DEPTH * tiles.rows, np.float32),
        np.zeros(tiles.panels, np.bool_),
        _aligned(DEPTH * tiles.rows, np.float64),
        _aligned(DEPTH * tiles.rows, np.float64),
        _aligned(DEPTH * tiles.columns, np.float64),
    )


@njit(nogil=True, cache=True)
def _begin(start, tiles, panel, column, sums, place):
    """The start values of one tile, and the largest of them in magnitude."""
    largest = np.int64(0)
    for r in range(tiles.rows):
        row = panel * tiles.rows + r
        of_row = start.rows[row] if row < start.rows.size else np.int64(0)
        target = sums[place + r * tiles.columns : place + (r + 1) * tiles.columns]
        target[:] = of_row
        largest = max(largest, abs(of_row))
        if start.columns.size:
            for j in range(min(tiles.columns, start.columns.size - column)):
                target[j] = of_row + start.columns[column + j]
                largest = max(largest, abs(of_row + start.columns[column + j]))
    return largest * 2.0**-16


@njit(nogil=True, cache=True)
def _enter(kernels, columns, terms, place, k0, n, scratch):
    """Bring one pass of a panel of columns into the cache; gives its norm, and its least exponent, 0 for zeros."""
    call_gather(
        kernels[GATHER],
        columns.values.ctypes.data + 4 * place,
        terms.offsets.ctypes.data + 8 * k0,
        n,
        scratch.packed.ctypes.data,
        scratch.norms.ctypes.data,
    )
    smallest, zeros = np.uint8(255), False
    for k in range(n):
        e = columns.exponents[place + terms.offsets[k0 + k]]
        scratch.least[k] = e
        smallest = min(smallest, e)
        zeros |= e >= ALL_ZERO
    whole = np.float32(0)
    for s in range(-(-n // SEGMENT)):
        whole += scratch.norms[s]
        scratch.norms[s] = np.sqrt(scratch.norms[s])
    return np.sqrt(whole), np.uint8(0) if zeros else smallest


@njit(nogil=True, cache=True)
def _listed(kernels, address, a, t, b, exponents, first, n, c, columns, scratch):
    """Terms first .. first + n - 1 of a pass, each the way it needs, or not at all if it is all zero."""
    plain, tested = scratch.plain.ctypes.data, scratch.tested.ctypes.data
    counts = call_split(kernels[SPLIT], exponents, scratch.least.ctypes.data, first, n, plain, tested)
    call_mac(address, a, t, b, plain, counts & 0xFFFFFFFF, tested, counts >> 32, c, columns)


@njit(nogil=True, cache=True)
def _wide(kernels, values, place, panel, exponents, first, n, c, tiles, widen, scratch):
    """Terms from `first` on of a pass of n in float64, half of the columns at a time, for large partial sums.

    The rows' values stand at values[place], their thresholds in the scratch of panel `panel` of the block.
    """
    if widen:
        widen_columns(scratch.packed.view(np.int32), n * tiles.columns, scratch.wide_columns)
    widen_rows(values, place, n * tiles.rows, scratch.wide_rows)
    widen_rows(scratch.limits, panel * DEPTH * tiles.rows, n * tiles.rows, scratch.wide_limits)
    for half in range(2):
        _listed(
            kernels,
            kernels[MAC64],
            np.int64(scratch.wide_rows.ctypes.data),
            np.int64(scratch.wide_limits.ctypes.data),
            scratch.wide_columns.ctypes.data + 4 * tiles.columns * half,
            exponents,
            first,
            n - first,
            c + 2 * tiles.columns * half,
            tiles.columns,
            scratch,
        )


@njit(nogil=True, cache=True)
def _store(halves, tiles, first_row, column, count, target):
    """Write the columns of a tile that are outputs."""
    j = 0
    while j < count:
        line = (column + j) // target.pitch
        x = column + j - line * target.pitch
        run = min(target.pitch - x, count - j)
        if line < target.height:
            for r in range(min(tiles.rows, target.out.shape[0] - first_row)):
                for i in range(min(run, target.width - x)):
                    target.out[first_row + r, line * target.width + x + i] = halves[r * tiles.columns + j + i]
        j += run


@njit(nogil=True, cache=True)
def _finish(kernels, sums, overflow, risky, halves, target):
    """The sums of a tile as halfwords: scale, half away, ReLU, table (spec/numerics §3.4, §3.5)."""
    if target.scale == 1.0:
        call_halves(kernels[HALVES], sums.ctypes.data, halves.ctypes.data, halves.size)
    else:
        for i in range(halves.size):
            halves[i] = half_away(sums[i] * 2.0**-16 * target.scale)
    if risky:
        for i in range(halves.size):
            if overflow[i]:
                up = overflow[i] * target.scale
                halves[i] = 0x7C00 if up > 0 else (0xFC00 if up < 0 else 0)
    if target.relu:
        for i in range(halves.size):
            halves[i] = halves[i] if halves[i] < 0x8000 else 0
    if target.table.size:
        for i in range(halves.size):
            halves[i] = target.table[halves[i]]


@njit(nogil=True, cache=True)
def multiply(kernels, tiles, first, last, rows, columns, terms, start, target):
    """Blocks first .. last - 1 of the outputs of one product; `kernels` are the addresses of the vector code."""
    panels, depth = rows.values.shape[0], terms.offsets.size
    tile = tiles.rows * tiles.columns
    scratch = _scratch(tiles)
    bounds, sums = scratch.bounds, scratch.sums
    flat, bits = rows.values.reshape(rows.values.size), columns.values.view(np.int32)
    halves, overflow = _aligned(tile, np.uint16), np.zeros(tile, np.int8)
    walk_start, whole_limits = np.empty(tile, np.int64), np.empty((depth, tiles.rows), np.float32)
    blocks_across = -(-terms.extent // (tiles.across * tiles.columns))
    for block in range(first, last):
        p0 = (block // blocks_across) * tiles.panels
        p1 = min(p0 + tiles.panels, panels)
        j0 = (block % blocks_across) * tiles.across * tiles.columns
        across = min(tiles.across, -(-(terms.extent - j0) // tiles.columns))
        for p in range(p0, p1):
            for q in range(across):
                place = ((p - p0) * tiles.across + q) * tile
                largest = _begin(start, tiles, p, j0 + q * tiles.columns, sums, place)
                bounds[p - p0, q] = largest + depth * 2.0**-17
        for k0 in range(0, depth, DEPTH):
            n = min(DEPTH, depth - k0)
            scratch.have_limits[:] = False
            for q in range(across):
                norm, smallest = _enter(kernels, columns, terms, terms.base + j0 + q * tiles.columns, k0, n, scratch)
                widen = n > 0  # not True: a constant would be compiled for by itself
                for p in range(p0, p1):
                    c = sums.ctypes.data + 4 * ((p - p0) * tiles.across + q) * tile
                    a = rows.values.ctypes.data + 4 * tiles.rows * (p * depth + k0)
                    t = scratch.limits.ctypes.data + 4 * tiles.rows * (p - p0) * DEPTH
                    b = np.int64(scratch.packed.ctypes.data)
                    reach = rows.pass_norms[p, k0 // DEPTH] * norm
                    bounds[p - p0, q] += reach
                    # Whether every term of this tile and pass goes the plain way: none drops, none is all zero.
                    least = rows.passes[p, k0 // DEPTH]
                    listed = least == 0 or smallest == 0 or least + smallest <= DROP_SUM
                    if not listed and reach < PARTIAL:
                        call_mac(kernels[MAC32], a, 0, b, scratch.every.ctypes.data, n, 0, 0, c, tiles.columns)
                        continue
                    if not scratch.have_limits[p - p0]:
                        call_three(kernels[THRESHOLDS], a, n * tiles.rows, t)
                        scratch.have_limits[p - p0] = True
                    exponents = rows.exponents.ctypes.data + p * rows.exponents.shape[1] + k0
                    s, segments, first_segment = 0, -(-n // SEGMENT), k0 // SEGMENT
                    while s < segments:
                        begin = s
                        running = rows.norms[p, first_segment + s] * scratch.norms[s]
                        if running >= PARTIAL:
                            break
                        s += 1
                        while s < segments:
                            running += rows.norms[p, first_segment + s] * scratch.norms[s]
                            if running >= PARTIAL:
                                break
                            s += 1
                        k = begin * SEGMENT
                        _listed(
                            kernels,
                            kernels[MAC32],
                            a,
                            t,
                            b,
                            exponents,
                            k,
                            min(s * SEGMENT, n) - k,
                            c,
                            tiles.columns,
                            scratch,
                        )
                    if s < segments:
                        place = tiles.rows * (p * depth + k0)
                        _wide(kernels, flat, place, p - p0, exponents, s * SEGMENT, n, c, tiles, widen, scratch)
                        widen = False
        for p in range(p0, p1):
            for q in range(across):
                place = ((p - p0) * tiles.across + q) * tile
                column = j0 + q * tiles.columns
                own = sums[place : place + tile]
                risky = not bounds[p - p0, q] < SAFE
                if risky:
                    a = rows.values.ctypes.data + 4 * tiles.rows * p * depth
                    call_three(kernels[THRESHOLDS], a, depth * tiles.rows, whole_limits.ctypes.data)
                    _begin(start, tiles, p, column, walk_start, 0)
                    shape = (tiles.rows, tiles.columns)
                    _walk(rows.values[p], whole_limits, bits, terms, column, shape, walk_start, own, overflow)
                count = min(tiles.columns, terms.extent - column)
                first_row = p * tiles.rows
                if target.raw.size:
                    for r in range(min(tiles.rows, target.raw.shape[0] - first_row)):
                        for j in range(count):
                            target.raw[first_row + r, column + j] = own[r * tiles.columns + j]
                        if risky:
                            for j in range(count):
                                target.overflow[first_row + r, column + j] = overflow[r * tiles.columns + j]
                        else:
                            target.overflow[first_row + r, column : column + count] = 0
                else:
                    _finish(kernels, own, overflow, risky, halves, target)
                    _store(halves, tiles, first_row, column, count, target)
