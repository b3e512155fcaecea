"""Operands made ready for the vector code: decoded to float32, with the exponents that the drop rule asks for."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import types

from hexane.arithmetic.fast.call import (
    DECODE_COLUMNS,
    DECODE_ROWS,
    INTERLEAVE,
    PACK_COLUMNS,
    byte_at,
    call_decode_columns,
    call_decode_rows,
    call_pack,
    call_pack_columns,
    call_three,
    copy_bytes,
    float_at,
    long_at,
    put_byte,
    put_float,
    put_half,
)
from hexane.arithmetic.fast.compiled import callback, compiled, hold
from hexane.arithmetic.fast.product_record import EXTRA
from hexane.arithmetic.fast.results import copy_lines
from hexane.arithmetic.fast.vector_parts import ALL_ZERO, DEPTH, ROW_PITCH, SEGMENT


def _pack_rows(kernels, x, m, depth, rows, first, last, a, exponents, norms, passes, pass_norms):
    """Panels first .. last - 1 of the broadcast operand; all but extents and panels are addresses.

    x: uint16 halfwords (M, K), rows contiguous. a: float32 (panels, K, rows). exponents: uint8 (panels, K + EXTRA), the
    smallest biased exponent of the non-zero values of the rows, subnormals as 1. norms: float32 (panels, segments), the
    largest norm of a row. passes: uint8 (panels, passes), the least exponent of a pass, 0 where some k of it is all
    zero. pass_norms: float32 (panels, passes).
    """
    decode, interleave = long_at(kernels + 8 * DECODE_ROWS), long_at(kernels + 8 * INTERLEAVE)
    segments, n_passes = -(-depth // SEGMENT), -(-depth // DEPTH)
    memory = np.empty(4 * rows * ROW_PITCH + 2 * SEGMENT, np.uint8)
    decoded = np.int64(memory.ctypes.data)
    rest = decoded + 4 * rows * ROW_PITCH
    for panel in range(first, last):
        least, bounds = exponents + panel * (depth + EXTRA), norms + 4 * panel * segments
        for k in range(depth + EXTRA):
            put_byte(least + k, np.uint8(ALL_ZERO))
        for s in range(segments):
            put_float(bounds + 4 * s, np.float32(0))
        for c in range(n_passes):
            begin = c * DEPTH
            n = min(DEPTH, depth - begin)
            whole = n & -SEGMENT
            for r in range(rows):
                row, values = panel * rows + r, decoded + 4 * r * ROW_PITCH
                if row >= m:
                    for k in range(n):
                        put_float(values + 4 * k, np.float32(0))
                    continue
                source = x + 2 * (row * depth + begin)
                call_decode_rows(decode, source, whole, values, least + begin, bounds + 4 * (begin // SEGMENT))
                if n > whole:
                    for i in range(SEGMENT):
                        put_half(rest + 2 * i, np.uint16(0))
                    copy_bytes(rest, source + 2 * whole, 2 * (n - whole))
                    call_decode_rows(
                        decode, rest, SEGMENT, values + 4 * whole, least + begin + whole,
                        bounds + 4 * ((begin + whole) // SEGMENT),
                    )  # fmt: skip
            call_three(interleave, decoded, n, a + 4 * rows * (panel * depth + begin))
        for s in range(segments):
            put_float(bounds + 4 * s, np.sqrt(float_at(bounds + 4 * s)))
        for c in range(n_passes):
            low, high = np.int64(255), np.int64(0)
            for k in range(c * DEPTH, min((c + 1) * DEPTH, depth)):
                exponent = np.int64(byte_at(least + k))
                low, high = min(low, exponent), max(high, exponent)
            put_byte(passes + panel * n_passes + c, np.uint8(0 if high >= ALL_ZERO else low))
            total = np.float32(0)
            for s in range(c * (DEPTH // SEGMENT), min((c + 1) * (DEPTH // SEGMENT), segments)):
                total += float_at(bounds + 4 * s) * float_at(bounds + 4 * s)
            put_float(pass_norms + 4 * (panel * n_passes + c), np.sqrt(total))
    hold(memory)


@cache
def address() -> int:
    """Address of the compiled `_pack_rows`; for `call.call_pack`."""
    return callback(_pack_rows)


@compiled()
def run(
    address, kernels, x, m, depth, rows, first, last, values, exponents, norms, passes, pass_norms
):  # fmt: skip
    """The same from Python."""
    call_pack(address, kernels, x, m, depth, rows, first, last, values, exponents, norms, passes, pass_norms)


@compiled(
    types.void(
        types.int64[::1],
        types.Array(types.uint16, 3, "A", readonly=True),
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int32[::1],
        types.uint8[::1],
    )
)
def decode_planes(kernels, x, first, last, base, plane, pitch, out, exponents):
    """Planes first .. last - 1 of the vector operand: x[p, y, :] goes to base + p * plane + y * pitch.

    x: uint16, lines without gaps. out: int32 bit patterns of float32, moved one step away from zero. exponents: uint8,
    biased, subnormals as 1, `ALL_ZERO` for zero; `window_minimum` has to be called.
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


class Lines(NamedTuple):
    """A matrix of halfwords as numbers: column j of term k stands offsets[k] (int64) halfwords behind the source, and
    there in lines of `width` that are `pitch` bytes apart."""

    source: int
    offsets: int
    terms: int
    extent: int
    width: int
    pitch: int


class PackedTiles(NamedTuple):
    """Addresses of packed columns, see `product_record.Columns`, the width of a tile, and the segments of its terms."""

    values: int
    exponents: int
    norms: int
    columns: int
    segments: int


@compiled(inner=True)
def _pack_tile(kernels, source, offsets, terms, into, tile):
    """One tile, whose columns stand side by side."""
    call_pack_columns(
        long_at(kernels + 8 * PACK_COLUMNS), source, offsets, terms,
        into.values + 4 * tile * terms * into.columns, into.exponents + tile * (terms + EXTRA),
        into.norms + 4 * tile * into.segments,
    )  # fmt: skip


@compiled(inner=True)
def _pack_gaps(kernels, lines, into, first, last):
    """Tiles first .. last - 1 by way of a copy without gaps, zeros behind the last column."""
    apart = (last - first) * into.columns
    begin, end = first * into.columns, min(lines.extent, last * into.columns)
    halves, places = np.zeros((lines.terms, apart), np.uint16), np.arange(lines.terms) * apart
    at = np.int64(halves.ctypes.data)
    for k in range(lines.terms):
        term, j = lines.source + 2 * long_at(lines.offsets + 8 * k), begin
        while j < end:
            y, x = j // lines.width, j % lines.width
            run = min(lines.width - x, end - j)
            count = (end - j) // run if run == lines.width else 1
            to = at + 2 * (k * apart + j - begin)
            copy_lines(to, 2 * lines.width, term + y * lines.pitch + 2 * x, lines.pitch, count, 2 * run)
            j += count * run
    for tile in range(first, last):
        source = at + 2 * (tile - first) * into.columns
        _pack_tile(kernels, source, np.int64(places.ctypes.data), lines.terms, into, tile)
    hold(halves)
    hold(places)


@compiled(inner=True)
def pack_tiles(kernels, lines, into, first, last):
    """Tiles first .. last - 1 of the vector operand."""
    tile = first
    if lines.width >= lines.extent or lines.pitch == 2 * lines.width:
        while tile < min(last, lines.extent // into.columns):
            _pack_tile(kernels, lines.source + 2 * tile * into.columns, lines.offsets, lines.terms, into, tile)
            tile += 1
    most = max(1, GAPS // (lines.terms * into.columns))
    while tile < last:
        end = min(last, tile + most)
        _pack_gaps(kernels, lines, into, tile, end)
        tile = end


GAPS = 1 << 17
"""Halfwords that are copied at a time: they stay in the second-level cache."""


@compiled()
def run_tiles(kernels, lines, into, first, last):
    """The same from Python."""
    pack_tiles(kernels, lines, into, first, last)


CHUNK = 1 << 12
"""Exponents that `window_minimum` takes at a time: they stay in the first-level cache."""


@compiled(inner=True)
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
        width_read, count = min(CHUNK, exponents.size - first), min(CHUNK + width - 1, exponents.size - first)
        source, target, piece = first_room[:count], second_room[:count], exponents[first : first + count]
        for i in range(count):
            source[i] = piece[i]
        reach = 1
        while reach < width:
            distance = min(reach, width - reach)
            _least_of_two(source, distance, target)
            source, target = target, source
            reach += distance
        for i in range(width_read):
            piece[i] = source[i]
