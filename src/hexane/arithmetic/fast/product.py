"""The blocked product on the vector code: which k need what, flushing, the sums at risk, and the way to fp16.

Both operands are read through one picture: the broadcast operand lies packed in panels of rows (`pack_rows`); the
vector operand is a flat float32 array in which term k of output column j stands at base + offsets[k] + j. A matrix is
that with offsets k * pitch, an image under a kernel with offsets channel * plane + ky * pitch + kx. So a convolution
needs no copy of its input per kernel position.

A block of tiles takes passes of `DEPTH` terms. In each pass and tile the terms of which none can be dropped run without
a test, and the accumulators are emptied into integers before a partial sum could leave their range. Bounds (Cauchy and
Schwarz, docs/reference/numerics.md 11.9) say when. A tile whose sums could reach the limit is done again, with care:
the bound is
asked anew before every segment, and only the segments in which a sum could get there are walked term by term.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hexane.arithmetic.fast.call import (
    GATHER,
    HALVES,
    HALVES_RELU,
    MAC32,
    MAC64,
    ROWS,
    ROWS_RELU,
    SPLIT,
    THRESHOLDS,
    bits_float,
    byte_at,
    call_gather,
    call_halves,
    call_mac,
    call_rows,
    call_split,
    call_three,
    copy_bytes,
    float_at,
    long_at,
    put_byte,
    put_float,
    put_int,
)
from hexane.arithmetic.fast.compiled import compiled
from hexane.arithmetic.fast.half import half_away
from hexane.arithmetic.fast.packing import widen_columns, widen_rows
from hexane.arithmetic.fast.vector_parts import ALL_ZERO, DEPTH, DROP_SUM, SEGMENT

PARTIAL = np.float32(63.5)
"""Bound of a partial sum in the float32 accumulator: 64, less the rounding of products and of the bound itself."""

SAFE = 32700.0
"""Bound below which no order of terms can reach 2^15 (docs/reference/numerics.md 11.9); the rest pays for rounding
errors."""

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
    """Where halfwords go: `channels` planes that begin at the address `out` and are `plane` bytes apart.

    Column j is place j % pitch of row j // pitch; `height` rows of `width`, `line` bytes apart.
    """

    out: int
    channels: int
    plane: int
    line: int
    pitch: int
    width: int
    height: int


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


class At(NamedTuple):
    """Addresses of the operands and of a thread's memory, for the inner functions.

    Numba counts references to every array that a function gets, with operations that threads wait for; numbers are
    free.
    """

    rows: int
    row_exponents: int
    exponent_pitch: int
    row_norms: int
    segments: int
    depth: int
    columns: int
    column_exponents: int
    offsets: int
    packed: int
    norms: int
    least: int
    plain: int
    tested: int
    limits: int
    wide_rows: int
    wide_limits: int
    wide_columns: int


@compiled()
def _at(rows, columns, terms, scratch):
    return At(
        rows.values.ctypes.data,
        rows.exponents.ctypes.data,
        rows.exponents.shape[1],
        rows.norms.ctypes.data,
        rows.norms.shape[1],
        terms.offsets.size,
        columns.values.ctypes.data,
        columns.exponents.ctypes.data,
        terms.offsets.ctypes.data,
        scratch.packed.ctypes.data,
        scratch.norms.ctypes.data,
        scratch.least.ctypes.data,
        scratch.plain.ctypes.data,
        scratch.tested.ctypes.data,
        scratch.limits.ctypes.data,
        scratch.wide_rows.ctypes.data,
        scratch.wide_limits.ctypes.data,
        scratch.wide_columns.ctypes.data,
    )


@compiled()
def _hold(scratch):
    """Last use of memory that is known by its addresses: before it, Numba must not let it go."""
    return scratch.bounds.size


@compiled()
def _aligned(size, kind):
    """A scratch array that starts at a cache line."""
    raw = np.empty(size + 64, kind)
    skip = (-raw.ctypes.data % 64) // raw.itemsize
    return raw[skip : skip + size]


@compiled()
def _walk(a, t, b, first, last, rows, columns, wanted, units, met):
    """Terms first .. last - 1 of a pass, in order, with the sticky limit (docs/reference/numerics.md 3.3, 11.3), in
    float64.

    a, t: (terms, rows) float32 values and thresholds, flat; b: the packed columns of the pass as int32 bit patterns;
    units, met: the sums of one tile and the sign of those that met the limit, whose units are 0 from then on; only
    the first `wanted` columns.
    """
    magic = 1.5 * 2.0**36
    sums = np.empty(wanted, np.float64)
    for r in range(rows):
        for j in range(wanted):
            sums[j] = magic + units[r * columns + j] * 2.0**-16
        for k in range(first, last):
            x = np.float64(a[k * rows + r])
            least = t[k * rows + r]
            if x == 0.0:
                continue
            for j in range(wanted):
                w = bits_float(np.int32(b[k * columns + j] & ~0x1FFF))
                y = np.float64(w) * (1.0 + 2.0**-40) if abs(w) >= least else 0.0
                total = sums[j] + x * y
                value = total - magic
                crossed = 1 if value >= LIMIT else (-1 if value <= -LIMIT else 0)
                sums[j] = magic if crossed else total
                place = r * columns + j
                met[place] = crossed if met[place] == 0 else met[place]
        for j in range(wanted):
            units[r * columns + j] = np.int32((sums[j] - magic) * 65536.0)


@compiled()
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


@compiled()
def _start_of(rows, n_rows, columns, n_columns, row, column):
    """The start value of one output, in units: rows and columns are addresses of int64 values."""
    value = long_at(rows + 8 * row) if row < n_rows else np.int64(0)
    return value + long_at(columns + 8 * column) if column < n_columns else value


@compiled()
def _begin(rows, n_rows, columns, n_columns, tiles, panel, column, sums):
    """The start values of one tile to the int32 at address `sums`; gives the largest of them in magnitude."""
    largest = np.int64(0)
    for r in range(tiles.rows):
        of_row = _start_of(rows, n_rows, columns, 0, panel * tiles.rows + r, 0)
        line = sums + 4 * r * tiles.columns
        for j in range(tiles.columns):
            put_int(line + 4 * j, np.int32(of_row))
        largest = max(largest, abs(of_row))
        for j in range(min(tiles.columns, n_columns - column)):
            value = of_row + long_at(columns + 8 * (column + j))
            put_int(line + 4 * j, np.int32(value))
            largest = max(largest, abs(value))
    return largest * 2.0**-16


@compiled()
def _enter(kernels, at, place, k0, n):
    """Bring one pass of a panel of columns into the cache; gives its norm, and its least exponent, 0 for zeros."""
    call_gather(kernels[GATHER], at.columns + 4 * place, at.offsets + 8 * k0, n, at.packed, at.norms)
    smallest, zeros = np.uint8(255), False
    for k in range(n):
        e = byte_at(at.column_exponents + place + long_at(at.offsets + 8 * (k0 + k)))
        put_byte(at.least + k, e)
        smallest = min(smallest, e)
        zeros |= e >= ALL_ZERO
    whole = np.float32(0)
    for s in range(-(-n // SEGMENT)):
        square = float_at(at.norms + 4 * s)
        whole += square
        put_float(at.norms + 4 * s, np.sqrt(square))
    return np.sqrt(whole), np.uint8(0) if zeros else smallest


@compiled()
def _listed(kernels, address, a, t, b, exponents, first, n, c, columns, at):
    """Terms first .. first + n - 1 of a pass, each the way it needs, or not at all if it is all zero."""
    counts = call_split(kernels[SPLIT], exponents, at.least, first, n, at.plain, at.tested)
    call_mac(address, a, t, b, at.plain, counts & 0xFFFFFFFF, at.tested, counts >> 32, c, columns)


@compiled()
def _wide(kernels, a, t, exponents, first, last, n, c, tiles, widen, at):
    """Terms first .. last - 1 of a pass of n in float64, half of the columns at a time, for large partial sums.

    a, t: addresses of the rows' values and of their thresholds.
    """
    if widen:
        widen_columns(at.packed, n * tiles.columns, at.wide_columns)
    widen_rows(a, n * tiles.rows, at.wide_rows)
    widen_rows(t, n * tiles.rows, at.wide_limits)
    for half in range(2):
        columns, sums = at.wide_columns + 4 * tiles.columns * half, c + 2 * tiles.columns * half
        address, count = kernels[MAC64], last - first
        _listed(
            kernels, address, at.wide_rows, at.wide_limits, columns, exponents, first, count, sums, tiles.columns, at
        )


@compiled()
def _add(kernels, at, panel, slot, k0, n, first, last, c, tiles, widen):
    """Segments first .. last - 1 of a pass of n terms from k0 on, for one tile; no sum may leave 32 bits on the way.

    In float32 as long as the bound of a partial sum allows. The thresholds stand in slot `slot` of the scratch. Gives
    whether the columns are still to be widened.
    """
    a = at.rows + 4 * tiles.rows * (panel * at.depth + k0)
    t = at.limits + 4 * tiles.rows * slot * DEPTH
    exponents = at.row_exponents + panel * at.exponent_pitch + k0
    norms = at.row_norms + 4 * (panel * at.segments + k0 // SEGMENT)
    s = first
    while s < last:
        begin, running = s, float_at(norms + 4 * s) * float_at(at.norms + 4 * s)
        if running >= PARTIAL:
            end = min(last * SEGMENT, n)
            _wide(kernels, a, t, exponents, s * SEGMENT, end, n, c, tiles, widen, at)
            return False
        s += 1
        while s < last:
            running += float_at(norms + 4 * s) * float_at(at.norms + 4 * s)
            if running >= PARTIAL:
                break
            s += 1
        k = begin * SEGMENT
        count = min(s * SEGMENT, n) - k
        _listed(kernels, kernels[MAC32], a, t, at.packed, exponents, k, count, c, tiles.columns, at)
    return widen


@compiled()
def _careful(kernels, at, flat, limits, packed, panel, place, tiles, wanted, own, met):
    """A tile whose sums may reach the limit: as always where they cannot yet, and in order where they may.

    own: the start values of the tile, already without those that are beyond the limit; `met` says which. Columns from
    `wanted` on are no outputs. flat, limits, packed: rows and scratch as arrays, for `_walk`.
    """
    c = own.ctypes.data
    for k0 in range(0, at.depth, DEPTH):
        n = min(DEPTH, at.depth - k0)
        _enter(kernels, at, place, k0, n)
        base = tiles.rows * (panel * at.depth + k0)
        call_three(kernels[THRESHOLDS], at.rows + 4 * base, n * tiles.rows, at.limits)
        norms = at.row_norms + 4 * (panel * at.segments + k0 // SEGMENT)
        widen, segments, s = n > 0, -(-n // SEGMENT), 0
        while s < segments:
            largest = np.int64(0)
            for i in range(own.size):
                largest = max(largest, abs(np.int64(own[i])))
            begin, reach = s, largest * 2.0**-16
            while s < segments:
                reach += float_at(norms + 4 * s) * float_at(at.norms + 4 * s) + SEGMENT * 2.0**-17
                if not reach < SAFE:
                    break
                s += 1
            if s > begin:
                widen = _add(kernels, at, panel, 0, k0, n, begin, s, c, tiles, widen)
            else:
                end = min((s + 1) * SEGMENT, n)
                values = flat[base : base + n * tiles.rows]
                _walk(values, limits, packed, s * SEGMENT, end, tiles.rows, tiles.columns, wanted, own, met)
                s += 1


@compiled()
def _within(start, tiles, panel, column, own, met):
    """The start values of a tile as sums, without those that are at the limit from the first."""
    rows, columns = start.rows.ctypes.data, start.columns.ctypes.data
    for r in range(tiles.rows):
        for j in range(tiles.columns):
            value = _start_of(rows, start.rows.size, columns, start.columns.size, panel * tiles.rows + r, column + j)
            i = r * tiles.columns + j
            met[i] = 1 if value >= LIMIT * 65536 else (-1 if value <= -LIMIT * 65536 else 0)
            own[i] = 0 if met[i] else np.int32(value)


@compiled()
def _store(halves, tiles, first_row, column, count, to):
    """Write the columns of a tile that are outputs; `halves` is their address."""
    rows, out = min(tiles.rows, to.channels - first_row), to.out + first_row * to.plane
    j = 0
    while j < count:
        line = (column + j) // to.pitch
        x = column + j - line * to.pitch
        run = min(to.pitch - x, count - j)
        wanted = min(run, to.width - x)
        if line < to.height and wanted > 0:
            place = out + line * to.line + 2 * x
            for r in range(rows):
                copy_bytes(place + r * to.plane, halves + 2 * (r * tiles.columns + j), 2 * wanted)
        j += run


@compiled()
def finish_units(kernels, units, n, scale, relu, table, halves):
    """n sums below the limit as halfwords: scale, half away, ReLU, table (docs/reference/numerics.md 3.4, 3.5).

    A table of one value is what nothing may exceed, behind a ReLU.

    n a multiple of the lanes, or room for as much.
    """
    if scale == 1.0:
        call_halves(kernels[HALVES_RELU if relu else HALVES], units.ctypes.data, halves.ctypes.data, n)
    else:
        for i in range(n):
            halves[i] = half_away(units[i] * 2.0**-16 * scale)
        if relu:
            for i in range(n):
                halves[i] = halves[i] if halves[i] < 0x8000 else 0
    if table.size == 1:
        cap = table[0]
        for i in range(n):
            halves[i] = min(halves[i], cap)
    elif table.size:
        for i in range(n):
            halves[i] = table[halves[i]]


@compiled()
def _limited(overflow, scale, relu, table, halves):
    """The halfwords of those sums that met the limit."""
    for i in range(halves.size):
        if overflow[i]:
            up = overflow[i] * scale
            half = np.uint16(0x7C00 if up > 0 else (0xFC00 if up < 0 and not relu else 0))
            if table.size == 1:
                halves[i] = min(half, table[0])
            else:
                halves[i] = table[half] if table.size else half


@compiled()
def multiply(
    kernels,
    first,
    last,
    tile_rows,
    tile_columns,
    tile_panels,
    tile_across,
    values,
    exponents,
    norms,
    passes,
    pass_norms,
    column_values,
    column_exponents,
    offsets,
    base,
    extent,
    row_start,
    column_start,
    raw,
    overflowed,
    out,
    channels,
    plane,
    line,
    pitch,
    width,
    height,
    scale,
    relu,
    table,
):
    """Blocks first .. last - 1 of the outputs of one product; `kernels` are the addresses of the vector code.

    If raw has a size, sums (int32) and the sign of their overflow (int8) go to raw and overflowed (M, >= extent). Else
    the sum is multiplied by `scale`; then ReLU, then the table of 65536 results (uint16) if it has a size, or of the
    largest result.

    The others are `Tiles`, `Rows`, `Columns`, `Terms`, `Start` and `Target`, one by one: Numba takes fifteen times as
    long to look at tuples of arrays as at arrays.
    """
    tiles = Tiles(tile_rows, tile_columns, tile_panels, tile_across)
    rows = Rows(values, exponents, norms, passes, pass_norms)
    columns = Columns(column_values, column_exponents)
    terms, start = Terms(offsets, base, extent), Start(row_start, column_start)
    target = Target(out, channels, plane, line, pitch, width, height)
    panels, depth = rows.values.shape[0], terms.offsets.size
    tile = tiles.rows * tiles.columns
    scratch = _scratch(tiles)
    at = _at(rows, columns, terms, scratch)
    bounds, sums, have_limits = scratch.bounds, scratch.sums, scratch.have_limits
    every, packed = scratch.every.ctypes.data, np.int64(scratch.packed.ctypes.data)
    start_rows, start_columns = start.rows.ctypes.data, start.columns.ctypes.data
    n_rows, n_columns = start.rows.size, start.columns.size
    halves, overflow = _aligned(tile, np.uint16), np.zeros(tile, np.int8)
    plainly = scale == 1.0 and table.size == 0
    to_halves, to_rows = kernels[HALVES_RELU if relu else HALVES], kernels[ROWS_RELU if relu else ROWS]
    blocks_across = -(-terms.extent // (tiles.across * tiles.columns))
    for block in range(first, last):
        p0 = (block // blocks_across) * tiles.panels
        p1 = min(p0 + tiles.panels, panels)
        j0 = (block % blocks_across) * tiles.across * tiles.columns
        across = min(tiles.across, -(-(terms.extent - j0) // tiles.columns))
        for p in range(p0, p1):
            for q in range(across):
                c = sums.ctypes.data + 4 * ((p - p0) * tiles.across + q) * tile
                column = j0 + q * tiles.columns
                largest = _begin(start_rows, n_rows, start_columns, n_columns, tiles, p, column, c)
                bounds[p - p0, q] = largest + depth * 2.0**-17
        for k0 in range(0, depth, DEPTH):
            n = min(DEPTH, depth - k0)
            have_limits[:] = False
            for q in range(across):
                norm, smallest = _enter(kernels, at, terms.base + j0 + q * tiles.columns, k0, n)
                widen = n > 0  # not True: a constant would be compiled for by itself
                for p in range(p0, p1):
                    c = sums.ctypes.data + 4 * ((p - p0) * tiles.across + q) * tile
                    a = at.rows + 4 * tiles.rows * (p * depth + k0)
                    reach = rows.pass_norms[p, k0 // DEPTH] * norm
                    bounds[p - p0, q] += reach
                    # Whether every term of this tile and pass goes the plain way: none drops, none is all zero.
                    least = rows.passes[p, k0 // DEPTH]
                    listed = least == 0 or smallest == 0 or least + smallest <= DROP_SUM
                    if not listed and reach < PARTIAL:
                        call_mac(kernels[MAC32], a, 0, packed, every, n, 0, 0, c, tiles.columns)
                        continue
                    if not have_limits[p - p0]:
                        call_three(
                            kernels[THRESHOLDS], a, n * tiles.rows, at.limits + 4 * tiles.rows * (p - p0) * DEPTH
                        )
                        have_limits[p - p0] = True
                    widen = _add(kernels, at, p, p - p0, k0, n, 0, -(-n // SEGMENT), c, tiles, widen)
        for p in range(p0, p1):
            for q in range(across):
                place = ((p - p0) * tiles.across + q) * tile
                column = j0 + q * tiles.columns
                count = min(tiles.columns, terms.extent - column)
                first_row = p * tiles.rows
                risky = not bounds[p - p0, q] < SAFE
                if plainly and not risky and raw.size == 0:
                    units, y = sums.ctypes.data + 4 * place, column // pitch
                    x = column - y * pitch
                    if count == tiles.columns and x + count <= width and y < height:  # all of it in one line
                        where = out + first_row * plane + y * line + 2 * x
                        call_rows(to_rows, units, where, min(tiles.rows, channels - first_row), plane)
                    else:
                        call_halves(to_halves, units, halves.ctypes.data, tile)
                        _store(halves.ctypes.data, tiles, first_row, column, count, target)
                    continue
                own = sums[place : place + tile]
                if risky:
                    _within(start, tiles, p, column, own, overflow)
                    flat = rows.values.reshape(rows.values.size)
                    bits, begin = scratch.packed.view(np.int32), terms.base + column
                    _careful(kernels, at, flat, scratch.limits, bits, p, begin, tiles, count, own, overflow)
                if raw.size:
                    for r in range(min(tiles.rows, raw.shape[0] - first_row)):
                        for j in range(count):
                            raw[first_row + r, column + j] = own[r * tiles.columns + j]
                            overflowed[first_row + r, column + j] = overflow[r * tiles.columns + j] if risky else 0
                else:
                    finish_units(kernels, own, tile, scale, relu, table, halves)
                    if risky:
                        _limited(overflow, scale, relu, table, halves)
                    _store(halves.ctypes.data, tiles, first_row, column, count, target)
    _hold(scratch)
