"""The blocked product on the vector code: which k need what, flushing, the sums at risk, and the way to fp16.

The broadcast operand lies packed in panels of rows (`packing.pack_rows`), a matrix as the vector operand in tiles of
columns (`packing.pack_tiles`). An image under a kernel is a flat float32 array in which term k of output column j is at
base + offsets[k] + j, with offsets channel * plane + ky * pitch + kx: a convolution needs no copy of its input per
kernel position, and a tile's columns are gathered when they are needed.

A block of tiles takes passes of `DEPTH` terms. In each pass and tile the terms of which none can be dropped run without
a test, and the accumulators are emptied into integers before a partial sum could leave their range. Bounds (Cauchy and
Schwarz, docs/reference/numerics.md 11.9) say when. From the pass on where sums of a tile could reach the limit, they
are followed from term to term (`_follow`).

All of it is one piece of compiled code with one address (`address`), which other compiled code calls by that: what is
linked into its callers is compiled again with each of them. It knows its operands by numbers too. Arrays take longer to
compile, and Numba counts references to them, with operations that threads wait for.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray

from hexane.arithmetic.fast.call import (
    BEGIN,
    FOLLOW,
    FOLLOW_ALL,
    GATHER,
    MAC32,
    MAC64,
    MAC_ROWS,
    MAC_ROWS_SMALL,
    SCALE_ROWS,
    SPLIT,
    THRESHOLDS,
    WIDEN_COLUMNS,
    WIDEN_ROWS,
    bits_double,
    byte_at,
    call_begin,
    call_body,
    call_follow,
    call_gather,
    call_mac,
    call_mac_rows,
    call_split,
    call_three,
    copy_bytes,
    double_at,
    float_at,
    half_at,
    int_at,
    long_at,
    pointer,
    put_byte,
    put_double,
    put_float,
    put_half,
    put_int,
)
from hexane.arithmetic.fast.compiled import callback, compiled, hold
from hexane.arithmetic.fast.product_record import (
    CHANNELS,
    COLUMN_START,
    COLUMN_STARTS,
    EXTENT,
    HEIGHT,
    LINE,
    OUT,
    OUT_IN_ROOM,
    OVERFLOWED,
    PANELS,
    PASS_NORMS,
    PASSES,
    PITCH,
    PLANE,
    RAW,
    RAW_PITCH,
    RELU,
    ROW_START,
    ROW_STARTS,
    ROWS_IN_ROOM,
    SCALE,
    TABLE,
    TABLE_SIZE,
    TILE_ACROSS,
    TILE_PANELS,
    WIDTH,
    _places,
)
from hexane.arithmetic.fast.results import copy_lines, ends, finish
from hexane.arithmetic.fast.vector_parts import ALL_ZERO, DEPTH, DROP_SUM, SEGMENT, SMALL

PARTIAL = np.float32(63.5)
"""Bound of a partial sum in the float32 accumulator: 64, less the rounding of products and of the bound itself."""

SAFE = 32700.0
"""Bound below which no order of terms can reach 2^15 (docs/reference/numerics.md 11.9); the rest pays for rounding
errors."""

LIMIT = 32768.0

SMALL_SUM = SMALL * 2.0**-16
"""Bound of sums that are exact in float32, in units."""

DONE = -1.0
"""Instead of the bound of a tile: its results are where they belong."""

FOLLOWED = 1e300
"""Instead of the bound of a tile: its sums are followed from term to term."""


@compiled(inline="always")
def _code(at, function):
    """The address of one function of the vector code."""
    return long_at(at.kernels + 8 * function)


@compiled(inline="always")
def _start_of(n, row, column):
    """The start value of one output, in units."""
    value = long_at(n[ROW_START] + 8 * row) if row < n[ROW_STARTS] else np.int64(0)
    return value + long_at(n[COLUMN_START] + 8 * column) if column < n[COLUMN_STARTS] else value


@compiled(inline="always")
def _begin(n, at, panel, column, sums):
    """The start values of one tile to the int32 at address `sums`; gives the largest of them in magnitude."""
    first = panel * at.rows
    row_count = max(0, min(at.rows, n[ROW_STARTS] - first))
    largest = call_begin(_code(at, BEGIN), sums, n[ROW_START] + 8 * first, row_count)
    if column < n[COLUMN_STARTS]:
        for r in range(at.rows):
            for j in range(min(at.columns, n[COLUMN_STARTS] - column)):
                value = _start_of(n, first + r, column + j)
                put_int(sums + 4 * (r * at.columns + j), np.int32(value))
                largest = max(largest, abs(value))
    return largest * 2.0**-16


class _Entry(NamedTuple):
    """Addresses of one pass of a tile's columns: values, and the least exponents."""

    values: int
    least: int


@compiled(inner=True)
def _enter(at, place, k0, n):
    """One pass of a tile's columns in the cache, where the norms of its segments are put too; with its norm, and its
    least exponent, 0 for zeros."""
    if at.column_norms:
        tile = place // at.columns
        entry = _Entry(
            at.column_values + 4 * at.columns * (tile * at.depth + k0),
            at.column_exponents + tile * at.exponent_pitch + k0,
        )
        squares = at.column_norms + 4 * (tile * at.segments + k0 // SEGMENT)
    else:
        entry, squares, offsets = _Entry(at.packed, at.least), at.packed_norms, at.offsets + 8 * k0
        call_gather(_code(at, GATHER), at.column_values + 4 * place, offsets, n, entry.values, squares)
        for k in range(n):
            put_byte(entry.least + k, byte_at(at.column_exponents + place + long_at(offsets + 8 * k)))
    smallest, largest = np.uint8(255), np.uint8(0)
    for e in carray(pointer(entry.least), (n,), np.uint8):  # by itself, because it becomes vectors
        smallest, largest = min(smallest, e), max(largest, e)
    whole = np.float32(0)
    for s in range(-(-n // SEGMENT)):
        square = float_at(squares + 4 * s)
        whole += square
        put_float(at.packed_norms + 4 * s, np.sqrt(square))
    return entry, np.sqrt(whole), np.int64(0) if largest >= ALL_ZERO else np.int64(smallest)


@compiled(inner=True)
def _add(at, entry, panel, slot, k0, n, c, widened):
    """A pass of n terms from k0 on, for one tile; no sum may leave 32 bits on the way.

    In float32 as long as the bound of a partial sum allows, then in float64, half of the columns at a time. Each term
    goes the way that it needs, or not at all if it is all zero. The thresholds stand in slot `slot`. Gives how many
    terms' columns are widened.
    """
    a = at.values + 4 * at.rows * (panel * at.depth + k0)
    t = at.limits + 4 * at.rows * slot * DEPTH
    exponents = at.exponents + panel * at.exponent_pitch + k0
    norms = at.norms + 4 * (panel * at.segments + k0 // SEGMENT)
    s, last = np.int64(0), -(-n // SEGMENT)
    while s < last:
        begin, running = s, float_at(norms + 4 * s) * float_at(at.packed_norms + 4 * s)
        wide = running >= PARTIAL
        s += 1
        while s < last:
            running += float_at(norms + 4 * s) * float_at(at.packed_norms + 4 * s)
            if not wide and running >= PARTIAL:
                break
            s += 1
        k = begin * SEGMENT
        count = min(s * SEGMENT, n) - k
        counts = call_split(_code(at, SPLIT), exponents, entry.least, k, count, at.plain, at.tested)
        plain, tested = counts & 0xFFFFFFFF, counts >> 32
        if not wide:
            call_mac(_code(at, MAC32), a, t, entry.values, at.plain, plain, at.tested, tested, c, at.columns)
            continue
        widened = _widen(at, entry, widened, n)
        call_three(_code(at, WIDEN_ROWS), a, n * at.rows, at.wide_rows)
        call_three(_code(at, WIDEN_ROWS), t, n * at.rows, at.wide_limits)
        for half in range(2):
            columns, sums = at.wide_columns + 4 * at.columns * half, c + 2 * at.columns * half
            call_mac(
                _code(at, MAC64), at.wide_rows, at.wide_limits, columns, at.plain, plain, at.tested, tested, sums,
                at.columns,
            )  # fmt: skip
    return widened


@compiled(inner=True)
def _tighter(at, own, bound):
    """A bound of a tile's sums from themselves, where the bound of any order of terms is no help."""
    most = np.int64(0)
    for i in range(at.rows * at.columns):
        most = max(most, abs(np.int64(int_at(own + 4 * i))))
    return min(bound, most * 2.0**-16 + at.depth * 2.0**-17)


@compiled(inner=True)
def _begin_followed(n, at, panel, column, own, met, largest):
    """From here on the sums of a tile are followed: none has met the limit, but those that begin beyond it.

    What is no output counts as met: nobody asks for it.
    """
    rows, columns = min(at.rows, n[CHANNELS] - panel * at.rows), min(at.columns, n[EXTENT] - column)
    for r in range(at.rows):
        for j in range(at.columns):
            i = 4 * (r * at.columns + j)
            put_int(met + i, np.int32(0 if r < rows and j < columns else 1))
            if largest >= LIMIT:
                start = _start_of(n, panel * at.rows + r, column + j)
                if abs(start) >= LIMIT * 65536:
                    put_int(met + i, np.int32(1 if start > 0 else -1))
                    put_int(own + i, np.int32(0))


@compiled(inner=True)
def _any_open(at, met):
    """True where a sum of a tile has not met the limit."""
    i = np.int64(0)
    while i < at.rows * at.columns and int_at(met + 4 * i) != 0:
        i += 1
    return i < at.rows * at.columns


@compiled(inline="always")
def _widen(at, entry, widened, end):
    """Make the columns of the terms up to `end` of a pass float64, of which `widened` are; gives how many are then."""
    if widened < end:
        first = widened * at.columns
        call_three(
            _code(at, WIDEN_COLUMNS), entry.values + 4 * first, end * at.columns - first, at.wide_columns + 8 * first
        )
    return max(widened, end)


@compiled(inner=True)
def _follow(at, entry, panel, slot, k0, count, own, met, widened):
    """As `_add` for a whole pass, in order, for sums that may reach the limit, as long as one of them has not.

    met: per sum 0, or the sign with which it met the limit; such a sum means nothing. The thresholds stand in `slot`.
    Gives how many terms' columns are widened.
    """
    a = at.values + 4 * at.rows * (panel * at.depth + k0)
    t = at.limits + 4 * at.rows * slot * DEPTH
    exponents = at.exponents + panel * at.exponent_pitch + k0
    tested = call_split(_code(at, SPLIT), exponents, entry.least, 0, count, at.plain, at.tested) >> 32
    k, end = np.int64(0), np.int64(0)
    while k < count and _any_open(at, met):
        end = min(2 * k + SEGMENT, count)
        row, size = 4 * k * at.rows, (end - k) * at.rows
        widened = _widen(at, entry, widened, end)
        call_three(_code(at, SCALE_ROWS), a + row, size, at.wide_rows)
        if tested:
            call_three(_code(at, WIDEN_ROWS), t + row, size, at.wide_limits)
        follow, columns = _code(at, FOLLOW if tested else FOLLOW_ALL), at.wide_columns + 8 * k * at.columns
        call_follow(follow, at.wide_rows, at.wide_limits, columns, end - k, own, met)
        k = end
    return widened


@compiled(inner=True)
def _store(n, at, out, first_row, column, count):
    """Write the columns of a tile that are outputs, from `at.halves`."""
    rows, place = min(at.rows, n[CHANNELS] - first_row), out + first_row * n[PLANE]
    j = 0
    while j < count:
        line = (column + j) // n[PITCH]
        x = column + j - line * n[PITCH]
        run = min(n[PITCH] - x, count - j)
        columns = min(run, n[WIDTH] - x)
        if line < n[HEIGHT] and columns > 0:
            target = place + line * n[LINE] + 2 * x
            copy_lines(target, n[PLANE], at.halves + 2 * j, 2 * at.columns, rows, 2 * columns)
        j += run


@compiled(inline="always")
def _limited(n, at, all_met):
    """The halfwords of those sums that met the limit; all_met: the address of the signs."""
    scale, relu, table = bits_double(n[SCALE]), n[RELU] != 0, n[TABLE]
    for i in range(at.rows * at.columns):
        met = int_at(all_met + 4 * i)
        if met != 0:
            up = (1.0 if met == 1 else -1.0) * scale
            half = np.uint16(0x7C00 if up > 0 else (0xFC00 if up < 0 and not relu else 0))
            if n[TABLE_SIZE] == 1:
                half = min(half, half_at(table))
            elif n[TABLE_SIZE]:
                half = half_at(table + 2 * np.int64(half))
            put_half(at.halves + 2 * i, half)


@compiled(inline="always")
def _raw(n, at, own, met, first_row, column, count, risky):
    """The sums of a tile as they are, and the sign of those that met the limit."""
    for r in range(min(at.rows, n[CHANNELS] - first_row)):
        for j in range(count):
            place, i = (first_row + r) * n[RAW_PITCH] + column + j, r * at.columns + j
            put_int(n[RAW] + 4 * place, int_at(own + 4 * i))
            put_byte(n[OVERFLOWED] + place, np.uint8(int_at(met + 4 * i) & 255) if risky else np.uint8(0))


@compiled(inner=True)
def _put(n, at, out, p, column, own, met, risky):
    """The results of one tile, whose sums stand at address `own`, to where they belong; risky: those that met the limit
    are marked at `met`."""
    count, first_row = min(at.columns, n[EXTENT] - column), p * at.rows
    if n[RAW] != 0:
        _raw(n, at, own, met, first_row, column, count, risky)
    else:
        scale, relu = bits_double(n[SCALE]), n[RELU] != 0
        finish(at.kernels, own, at.rows * at.columns, scale, relu, n[TABLE], n[TABLE_SIZE], at.halves)
        if risky:
            _limited(n, at, met)
        _store(n, at, out, first_row, column, count)


@compiled(inner=True, forceinline=True)  # else all of `at` goes over the stack for each tile
def _finish(n, at, entry, out, panel, column, slot, k0, count, c, listed, small):
    """The terms from k0 on of a tile, which are its last, and its results to where they belong.

    Its sums, at address `c`, can neither leave float32 on the way nor reach the limit. listed: whether there may be
    terms that need a test or are all zero; then the thresholds stand in slot `slot`. small: all sums are below `SMALL`.
    """
    plain, n_plain, n_tested = at.every, np.int64(count), np.int64(0)
    if listed:
        exponents = at.exponents + panel * at.exponent_pitch + k0
        counts = call_split(_code(at, SPLIT), exponents, entry.least, 0, count, at.plain, at.tested)
        plain, n_plain, n_tested = at.plain, counts & 0xFFFFFFFF, counts >> 32
    columns, first_row, y = min(at.columns, n[EXTENT] - column), panel * at.rows, column // n[PITCH]
    x = column - y * n[PITCH]
    where, apart = at.halves, 2 * at.columns
    in_line = columns == at.columns and x + columns <= n[WIDTH] and y < n[HEIGHT]
    if in_line:
        where, apart = out + first_row * n[PLANE] + y * n[LINE] + 2 * x, n[PLANE]
    lowest, cap = ends(n[RELU] != 0, n[TABLE], n[TABLE_SIZE])
    code = _code(at, MAC_ROWS_SMALL if small else MAC_ROWS)
    call_mac_rows(
        code, at.values + 4 * at.rows * (panel * at.depth + k0), at.limits + 4 * at.rows * slot * DEPTH,
        entry.values, plain, n_plain, at.tested, n_tested, c, at.columns, where, min(at.rows, n[CHANNELS] - first_row),
        apart, lowest, cap,
    )  # fmt: skip
    if not in_line:
        _store(n, at, out, first_row, column, columns)


@compiled(inner=True)
def _block(n, at, out, p0, p1, j0, across, in_room):
    """The sums of panels p0 .. p1 - 1 and `across` tiles from column j0 on, and a bound of each tile's; `DONE` where
    the results went to `out` already."""
    tile, passes = 4 * at.rows * at.columns, -(-at.depth // DEPTH)
    plainly = bits_double(n[SCALE]) == 1.0 and n[TABLE_SIZE] <= 1 and n[RAW] == 0
    once = plainly and passes == 1 and n[COLUMN_STARTS] == 0  # a panel's tiles begin alike, and most end at once
    for p in range(p0, p1):
        largest = 0.0
        for q in range(across):
            slot = (p - p0) * n[TILE_ACROSS] + q
            if q == 0 or not once:
                begin = at.starts + (p - p0) * tile if once else at.sums + slot * tile
                largest = _begin(n, at, p, j0 + q * at.columns, begin)
            put_double(at.bounds + 8 * slot, largest + at.depth * 2.0**-17)
    for k0 in range(0, at.depth, DEPTH):
        count = min(DEPTH, at.depth - k0)
        for p in range(p0, p1):
            put_byte(at.have_limits + p - p0, np.uint8(0))
        for q in range(across):
            entry, norm, smallest = _enter(at, j0 + q * at.columns, k0, count)
            widened = count - count  # no constant: that would be compiled for by itself
            for p in range(p0, p1):
                slot, at_pass = (p - p0) * n[TILE_ACROSS] + q, p * passes + k0 // DEPTH
                c, begin = at.sums + slot * tile, at.starts + (p - p0) * tile
                a = at.values + 4 * at.rows * (p * at.depth + k0)
                reach = float_at(n[PASS_NORMS] + in_room + 4 * at_pass) * norm
                bound = double_at(at.bounds + 8 * slot)
                met, followed, near = at.met + slot * tile, bound == FOLLOWED, reach < PARTIAL
                direct = plainly and near and k0 + DEPTH >= at.depth and bound + reach < SAFE
                if once and not direct:
                    copy_bytes(c, begin, tile)
                if not (followed or bound + reach < SAFE):
                    largest = bound if k0 == 0 else 0.0
                    bound = _tighter(at, c, bound) if largest < SAFE else bound
                    followed = not bound + reach < SAFE
                    if followed:
                        _begin_followed(n, at, p, j0 + q * at.columns, c, met, largest)
                bound = FOLLOWED if followed else bound + reach
                put_double(at.bounds + 8 * slot, bound)
                # Whether every term of this tile and pass goes the plain way: none drops, none is all zero.
                least = np.int64(byte_at(n[PASSES] + in_room + at_pass))
                listed = least == 0 or smallest == 0 or least + smallest <= DROP_SUM
                if (listed or not near or followed) and byte_at(at.have_limits + p - p0) == 0:
                    limits = at.limits + 4 * at.rows * (p - p0) * DEPTH
                    call_three(_code(at, THRESHOLDS), a, count * at.rows, limits)
                    put_byte(at.have_limits + p - p0, np.uint8(1))
                if followed:
                    widened = _follow(at, entry, p, p - p0, k0, count, c, met, widened)
                elif direct:
                    begin = begin if once else c
                    _finish(
                        n, at, entry, out, p, j0 + q * at.columns, p - p0, k0, count, begin, listed, bound < SMALL_SUM
                    )
                    put_double(at.bounds + 8 * slot, DONE)
                elif near and not listed:
                    call_mac(_code(at, MAC32), a, 0, entry.values, at.every, count, 0, 0, c, at.columns)
                else:
                    widened = _add(at, entry, p, p - p0, k0, count, c, widened)


def _multiply(record, phase, first, last, room):
    """Blocks first .. last - 1 of the outputs of the product of a `Record`."""
    n = carray(pointer(record), (OUT_IN_ROOM + 1,), np.int64)
    memory = np.empty(_places(n, room, np.int64(0)).end + 64, np.uint8)
    at = _places(n, room, np.int64(memory.ctypes.data))
    for k in range(DEPTH):
        put_int(at.every + 4 * k, np.int32(k))
    out, in_room = n[OUT] + room * n[OUT_IN_ROOM], room * n[ROWS_IN_ROOM]
    blocks_across = -(-n[EXTENT] // (n[TILE_ACROSS] * at.columns))
    for block in range(first, last):
        p0 = (block // blocks_across) * n[TILE_PANELS]
        p1 = min(p0 + n[TILE_PANELS], n[PANELS])
        j0 = (block % blocks_across) * n[TILE_ACROSS] * at.columns
        across = min(n[TILE_ACROSS], -(-(n[EXTENT] - j0) // at.columns))
        _block(n, at, out, p0, p1, j0, across, in_room)
        for p in range(p0, p1):
            for q in range(across):
                slot = (p - p0) * n[TILE_ACROSS] + q
                bound = double_at(at.bounds + 8 * slot)
                if bound != DONE:
                    place = 4 * slot * at.rows * at.columns
                    _put(n, at, out, p, j0 + q * at.columns, at.sums + place, at.met + place, bound == FOLLOWED)
    hold(memory)


@cache
def address() -> int:
    """Address of the compiled product; for `call.call_body`, with a `Record` and blocks."""
    return callback(_multiply)


@compiled()
def run(body, record, first, last):
    """Units first .. last - 1 of what `callback` compiled; all are addresses."""
    call_body(body, record, 0, first, last, 0)
