"""A convolution of few pixels as a job: its input packed, the product with the kept weights, its result in place."""

from __future__ import annotations

import numpy as np
from numba import carray

from hexane.arithmetic.fast import matrix
from hexane.arithmetic.fast.call import bits_double, pointer
from hexane.arithmetic.fast.compiled import compiled
from hexane.arithmetic.fast.jobs import (
    MORE,
    NOTHING,
    SOURCE,
    TARGET,
    Job,
    Phase,
    address_of,
    array_numbers,
    double_number,
    halves_of,
    kernels_of,
    numbers_at,
    pieces_for,
    record_of,
    table_numbers,
    table_of,
)
from hexane.arithmetic.fast.packing import pack_rows
from hexane.arithmetic.fast.product import multiply
from hexane.arithmetic.fast.targets import Kernels
from hexane.arithmetic.fast.vector_parts import DEPTH as PASS
from hexane.arithmetic.fast.vector_parts import SEGMENT

(
    KERNEL_Y, KERNEL_X, PIXELS, TERMS, OUTPUTS, BLOCKS, TILE, TILE_PANELS, TILE_ACROSS, SEGMENTS, PASSES,
    WEIGHTS, EXPONENTS, SIZE, OFFSETS, START, SCALE, RELU, TABLE,
) = range(MORE, MORE + 19)  # fmt: skip
"""Places in a record; ``TABLE`` is followed by the table's size."""

PRODUCTS_PER_NS = 6.0


@compiled()
def _up(size):
    """The next multiple of a cache line."""
    return -(-size // 64) * 64


@compiled()
def _parts(n, room):
    """Addresses of what stands in the room: input, result, and the five arrays of packed rows; then the end."""
    pixels, terms = n[PIXELS], n[TERMS]
    result = room + _up(2 * pixels * terms)
    values = result + _up(2 * pixels * n[OUTPUTS])
    exponents = values + _up(4 * pixels * terms)
    norms = exponents + _up(pixels * (terms + 16))
    passes = norms + _up(4 * pixels * n[SEGMENTS])
    pass_norms = passes + _up(pixels * n[PASSES])
    return room, result, values, exponents, norms, passes, pass_norms, pass_norms + _up(4 * pixels * n[PASSES])


@compiled()
def _rows(n, room):
    _, _, values, exponents, norms, passes, pass_norms, _ = _parts(n, room)
    pixels, terms = n[PIXELS], n[TERMS]
    return (
        carray(pointer(values), (pixels, terms, 1), np.float32),
        carray(pointer(exponents), (pixels, terms + 16), np.uint8),
        carray(pointer(norms), (pixels, n[SEGMENTS]), np.float32),
        carray(pointer(passes), (pixels, n[PASSES]), np.uint8),
        carray(pointer(pass_norms), (pixels, n[PASSES]), np.float32),
    )


@compiled()
def _pack(n, room):
    x, width, kh, kw = halves_of(n, SOURCE), n[TARGET + 5], n[KERNEL_Y], n[KERNEL_X]
    seen = carray(pointer(room), (n[PIXELS], n[TERMS]), np.uint16)
    inner = x.shape[2]
    for p in range(n[PIXELS]):
        k = 0
        for c in range(x.shape[1] * inner):
            for y in range(kh):
                for j in range(kw):
                    seen[p, k] = x[0, c // inner, c % inner, p // width + y, p % width + j]
                    k += 1
    values, exponents, norms, passes, pass_norms = _rows(n, room)
    pack_rows(kernels_of(n), seen, 0, n[PIXELS], values, exponents, norms, passes, pass_norms)


@compiled()
def _multiply(n, first, last, room):
    values, exponents, norms, passes, pass_norms = _rows(n, room)
    outputs = n[OUTPUTS]
    multiply(
        kernels_of(n),
        first,
        last,
        1,
        n[TILE],
        n[TILE_PANELS],
        n[TILE_ACROSS],
        values,
        exponents,
        norms,
        passes,
        pass_norms,
        carray(pointer(n[WEIGHTS]), (n[SIZE],), np.float32),
        carray(pointer(n[EXPONENTS]), (n[SIZE],), np.uint8),
        carray(pointer(n[OFFSETS]), (n[TERMS],), np.int64),
        0,
        outputs,
        carray(pointer(n[START]), (0,), np.int64),
        carray(pointer(n[START]), (outputs,), np.int64),
        carray(pointer(room), (0, 0), np.int32),
        carray(pointer(room), (0, 0), np.int8),
        _parts(n, room)[1],
        n[PIXELS],
        2 * outputs,
        2 * outputs,
        outputs,
        outputs,
        1,
        bits_double(n[SCALE]),
        n[RELU] != 0,
        table_of(n, TABLE),
    )


@compiled()
def _put(n, room):
    out, outputs, width = halves_of(n, TARGET), n[OUTPUTS], n[TARGET + 5]
    found = carray(pointer(_parts(n, room)[1]), (n[PIXELS], outputs), np.uint16)
    for p in range(n[PIXELS]):
        for c in range(outputs):
            out[0, 0, c, p // width, p % width] = found[p, c]


def body(record, phase, first, last, room):
    """Three phases: pack, multiply, put."""
    n = numbers_at(record)
    if phase == 0:
        _pack(n, room)
    elif phase == 1:
        _multiply(n, first, last, room)
    else:
        _put(n, room)


def job(
    x: np.ndarray,
    out: np.ndarray,
    columns: matrix.Columns,
    terms: matrix.Terms,
    kernel: tuple[int, int],
    start: np.ndarray,
    finish: matrix.Finish,
    use: Kernels,
) -> Job:
    """A convolution without padding and strides whose weights are the columns of the product: x (1, groups, channels,
    H, W) halfwords, in whatever groups, ``kernel`` its window's height and width, out (1, 1, outputs, OH, OW), the
    kernels' tile one row high."""
    pixels, depth, outputs = out.shape[3] * out.shape[4], terms.offsets.size, terms.extent
    cost = pixels * depth * outputs / PRODUCTS_PER_NS
    tiles, blocks = matrix.blocks_of(use, pixels, outputs, pieces_for(cost))
    table = finish.parts[2]
    arrays = (columns.values, columns.exponents, terms.offsets, start, table)
    weights, exponents, offsets, begin = map(address_of, arrays[:4])
    segments, passes = -(-depth // SEGMENT), -(-depth // PASS)
    record = record_of(
        use.addresses, *array_numbers(x), *NOTHING, *array_numbers(out),
        *kernel, pixels, depth, outputs, blocks, tiles.columns, tiles.panels, tiles.across, segments, passes,
        weights, exponents, columns.values.size, offsets, begin,
        double_number(finish.scale), finish.relu, *table_numbers(table),
    )  # fmt: skip
    room = pixels * (2 * depth + 2 * outputs + 4 * depth + depth + 16 + 4 * segments + passes + 4 * passes) + 8 * 64
    return Job(body, record, (Phase(1, 0.0), Phase(blocks, cost / blocks), Phase(1, 0.0)), room, (x, out, arrays, use))
