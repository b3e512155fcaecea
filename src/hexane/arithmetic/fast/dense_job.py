"""A convolution as a job: the image decoded, then the blocks of its product (`convolution.Dense`).

Weights that a task computes are read and packed between the two, into the room, in every run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import carray

from hexane.arithmetic.fast import matrix
from hexane.arithmetic.fast.call import (
    DECODE_COLUMNS,
    LEAST,
    bits_double,
    call_decode_columns,
    call_least,
    pointer,
)
from hexane.arithmetic.fast.compiled import compiled
from hexane.arithmetic.fast.jobs import (
    MORE,
    NOTHING,
    OTHER,
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
from hexane.arithmetic.fast.packing import pack_rows, window_minimum
from hexane.arithmetic.fast.planes import Planes, pitch_of
from hexane.arithmetic.fast.product import Rows, multiply
from hexane.arithmetic.fast.targets import Kernels
from hexane.arithmetic.fast.vector_parts import ALL_ZERO, SEGMENT
from hexane.arithmetic.fast.vector_parts import DEPTH as PASS_DEPTH
from hexane.arithmetic.plain_convolution import Places, Window

(
    PLANAR, STRIDE_Y, STRIDE_X, TOP, LEFT, PHASES_Y, PHASES_X, LINES, PITCH, PLANE, SIZE, TILE,
    GROUPS, BLOCKS, TILE_ROWS, TILE_PANELS, TILE_ACROSS,
    PANELS, DEPTH, SEGMENTS, PASSES, VALUES, EXPONENTS, NORMS, PASS_LEAST, PASS_NORMS,
    OFFSETS, EXTENT, START, PER_GROUP, OUT_PITCH, OUT_WIDTH, OUT_HEIGHT, SCALE, RELU, TABLE, _, DATA, INDEX,
) = range(MORE, MORE + 39)  # fmt: skip
"""Places in a record. ``SIZE``: elements of one decoded image; ``TABLE`` is followed by the table's size.

``VALUES`` to ``PASS_NORMS`` are addresses; places in the room for weights that are read in every run (``INDEX`` is not
0).
"""

PRODUCTS_PER_NS = 20.0
ELEMENTS_PER_NS = 2.0
WEIGHTS_PER_NS = 0.5
"""What one thread does, to share work in pieces that pay."""


@compiled()
def _decode_lines(kernels, x, image, first, last, pitch, values, exponents):
    """Channels first .. last - 1 of a 1x1 window's image: as `packing.decode_planes` does a matrix."""
    inner, height, width = x.shape[2:]
    steps = x.strides
    together = height == 1 or steps[3] == 2 * width
    size = height * width
    for p in range(first, last):
        source = x.ctypes.data + image * steps[0] + p // inner * steps[1] + p % inner * steps[2]
        row = p * pitch
        for y in range(1 if together else height):
            place = row + y * width
            call_decode_columns(
                kernels[DECODE_COLUMNS],
                source + y * steps[3],
                size if together else width,
                values.ctypes.data + 4 * place,
                exponents.ctypes.data + place,
            )
        values[row + size : row + pitch] = 0
        exponents[row + size : row + pitch] = ALL_ZERO
        call_least(kernels[LEAST], exponents.ctypes.data + row, size)


@compiled()
def _decode_planes(kernels, n, x, image, first, last, values, exponents):
    """Channels first .. last - 1 of an image into their planes, as `planes.Planes` says."""
    inner, height, width = x.shape[2:]
    steps = x.strides
    line = np.empty(width + 1, np.uint16)
    to = line.ctypes.data
    sy, sx, pitch, plane, each = n[STRIDE_Y], n[STRIDE_X], n[PITCH], n[PLANE], n[PHASES_Y] * n[PHASES_X] * n[PLANE]
    values[first * each : last * each] = 0
    exponents[first * each : last * each] = ALL_ZERO
    for p in range(first, last):
        channel = x.ctypes.data + image * steps[0] + p // inner * steps[1] + p % inner * steps[2]
        for py in range(n[PHASES_Y]):
            for px in range(n[PHASES_X]):
                j0 = max(0, -((px - n[LEFT]) // sx))
                count = min(pitch, (width - 1 + n[LEFT] - px) // sx + 1) - j0
                if count <= 0:
                    continue
                column = j0 * sx + px - n[LEFT]
                for y in range(n[LINES]):
                    row = y * sy + py - n[TOP]
                    if row < 0 or row >= height:
                        continue
                    place = (p * n[PHASES_Y] * n[PHASES_X] + py * n[PHASES_X] + px) * plane + y * pitch + j0
                    source = channel + row * steps[3] + 2 * column
                    if sx > 1:
                        whole = carray(pointer(source), (width - column,), np.uint16)
                        if sx == 2:  # by itself, because a number that is known makes vectors
                            for j in range(count):
                                line[j] = whole[2 * j]
                        else:
                            for j in range(count):
                                line[j] = whole[j * sx]
                        source = to
                    call_decode_columns(
                        kernels[DECODE_COLUMNS], source, count, values.ctypes.data + 4 * place,
                        exponents.ctypes.data + place,
                    )  # fmt: skip
    window_minimum(exponents[first * each : last * each], n[TILE])


@compiled()
def _decode(n, first, last, values, exponents):
    """Units of the first phase: channels of the only image, or whole images."""
    kernels, x = kernels_of(n), halves_of(n, SOURCE)
    images, channels, size = x.shape[0], x.shape[1] * x.shape[2], n[SIZE]
    for image in range(first if images > 1 else 0, last if images > 1 else 1):
        c0, c1 = (0, channels) if images > 1 else (first, last)
        v, e = values[image * size : (image + 1) * size], exponents[image * size : (image + 1) * size]
        if n[PLANAR]:
            _decode_planes(kernels, n, x, image, c0, c1, v, e)
        else:
            _decode_lines(kernels, x, image, c0, c1, n[PITCH], v, e)
        if c1 == channels:
            used = channels * (n[PHASES_Y] * n[PHASES_X] * n[PLANE] if n[PLANAR] else n[PITCH])
            v[used:] = 0
            e[used:] = ALL_ZERO


@compiled()
def _read(n, first, last, room):
    """Units of a phase of its own: panels of weights, group after group, read and packed."""
    rows, depth, panels, per = n[TILE_ROWS], n[DEPTH], n[PANELS], n[PER_GROUP]
    wide, segments, passes = depth + 16, n[SEGMENTS], n[PASSES]
    data, halves = carray(pointer(n[DATA]), (1 << 40,), np.uint16), np.empty((rows, depth), np.uint16)
    for p in range(first, last):
        row = p % panels * rows
        count = min(rows, per - row)
        index = carray(pointer(n[INDEX] + 4 * (p // panels * per + row) * depth), (count, depth), np.int32)
        for r in range(count):
            for k in range(depth):
                halves[r, k] = data[index[r, k]]
        pack_rows(
            kernels_of(n),
            halves[:count],
            0,
            1,
            carray(pointer(room + n[VALUES] + 4 * p * depth * rows), (1, depth, rows), np.float32),
            carray(pointer(room + n[EXPONENTS] + p * wide), (1, wide), np.uint8),
            carray(pointer(room + n[NORMS] + 4 * p * segments), (1, segments), np.float32),
            carray(pointer(room + n[PASS_LEAST] + p * passes), (1, passes), np.uint8),
            carray(pointer(room + n[PASS_NORMS] + 4 * p * passes), (1, passes), np.float32),
        )


@compiled()
def _multiply(n, first, last, values, exponents, room):
    """Units of the last phase: blocks of the product of each image and group; ``room`` is where weights begin."""
    kernels, out = kernels_of(n), halves_of(n, TARGET)
    size, blocks, panels, depth = n[SIZE], n[BLOCKS], n[PANELS], n[DEPTH]
    none, no_sign = carray(pointer(n[START]), (0, 0), np.int32), carray(pointer(n[START]), (0, 0), np.int8)
    nobody = carray(pointer(n[START]), (0,), np.int64)
    table = table_of(n, TABLE)
    rows, wide = n[TILE_ROWS], depth + 16
    while first < last:
        image, rest = first // (n[GROUPS] * blocks), first % (n[GROUPS] * blocks)
        g, block = rest // blocks, rest % blocks
        end = min(blocks, block + last - first)
        per = n[PER_GROUP]
        multiply(
            kernels,
            block,
            end,
            rows,
            n[TILE],
            n[TILE_PANELS],
            n[TILE_ACROSS],
            carray(pointer(room + n[VALUES] + 4 * g * panels * depth * rows), (panels, depth, rows), np.float32),
            carray(pointer(room + n[EXPONENTS] + g * panels * wide), (panels, wide), np.uint8),
            carray(pointer(room + n[NORMS] + 4 * g * panels * n[SEGMENTS]), (panels, n[SEGMENTS]), np.float32),
            carray(pointer(room + n[PASS_LEAST] + g * panels * n[PASSES]), (panels, n[PASSES]), np.uint8),
            carray(pointer(room + n[PASS_NORMS] + 4 * g * panels * n[PASSES]), (panels, n[PASSES]), np.float32),
            values[image * size : (image + 1) * size],
            exponents[image * size : (image + 1) * size],
            carray(pointer(n[OFFSETS] + 8 * g * depth), (depth,), np.int64),
            0,
            n[EXTENT],
            carray(pointer(n[START] + 8 * g * per), (per,), np.int64),
            nobody,
            none,
            no_sign,
            out.ctypes.data + image * out.strides[0] + g * out.strides[1],
            per,
            out.strides[2],
            out.strides[3],
            n[OUT_PITCH],
            n[OUT_WIDTH],
            n[OUT_HEIGHT],
            bits_double(n[SCALE]),
            n[RELU] != 0,
            table,
        )
        first += end - block


def body(record, phase, first, last, room):
    """Two phases: the image into the room, and its product; weights that are read come between them."""
    n = numbers_at(record)
    images = n[SOURCE + 1]
    values = carray(pointer(room), (images * n[SIZE],), np.float32)
    exponents = carray(pointer(room + 4 * images * n[SIZE]), (images * n[SIZE],), np.uint8)
    if phase == 0:
        _decode(n, first, last, values, exponents)
    elif n[INDEX] != 0 and phase == 1:
        _read(n, first, last, room)
    else:
        _multiply(n, first, last, values, exponents, room if n[INDEX] != 0 else 0)


def stacked(products: Sequence[Rows]) -> Rows:
    """The packed rows of several groups, one after the other."""
    return products[0] if len(products) == 1 else Rows(*(np.concatenate(parts) for parts in zip(*products)))


def job(
    x: np.ndarray,
    out: np.ndarray,
    rows: Rows | Places,
    start: np.ndarray,
    offsets: np.ndarray,
    window: Window,
    planes: Planes | None,
    finish: matrix.Finish,
    use: Kernels,
) -> Job | None:
    """The job of one convolution, or None where operands do not lie as compiled code reads them.

    x : (images, groups, channels, H, W) uint16, in whatever groups.
    out : (images, groups, outputs of a group, OH, OW).
    rows : the weights of all groups, packed, one group after the other; or where they stand, (groups * outputs, terms).
    start : (groups, outputs of a group), in units.
    offsets : (groups, terms), where the terms of output 0 stand.
    """
    images, groups, per_group, oh, ow = out.shape
    if not (_unbroken(x) and _unbroken(out)):
        return None
    channels, tile = x.shape[1] * x.shape[2], use.shape.columns
    if planes is None:
        pitch, plane, elements = pitch_of(oh * ow), 0, channels * pitch_of(oh * ow)
        extent, phases, lines = oh * ow, (1, 1), 1
        line = out.strides[3] == 2 * ow or oh == 1
        place = (oh * ow, oh * ow, 1) if line else (ow, ow, oh)
    else:
        pitch, plane, elements, phases, lines = planes.pitch, planes.plane, planes.size, planes.phases, planes.height
        extent, place = (oh - 1) * pitch + ow, (pitch, ow, oh)
    size = -(-(elements + tile) // 64) * 64
    panels, depth = -(-per_group // use.shape.rows), offsets.shape[1]
    cost = panels * use.shape.rows * depth * extent / PRODUCTS_PER_NS
    tiles, blocks = matrix.blocks_of(use, panels, extent, -(-pieces_for(cost * images * groups) // (images * groups)))
    table = finish.parts[2]
    segments, passes = -(-depth // SEGMENT), -(-depth // PASS_DEPTH)
    if isinstance(rows, Places):
        where, room = _places_of(5 * images * size, groups * panels, depth, use.shape.rows)
        read = address_of(rows.data), address_of(rows.index)
    else:
        where, room, read = tuple(map(address_of, rows)), 5 * images * size, (0, 0)
    record = record_of(
        use.addresses, *array_numbers(x), *NOTHING, *array_numbers(out),
        planes is not None, *window.strides, window.pads[1], window.pads[0], *phases, lines, pitch, plane, size,
        tile, groups, blocks, tiles.rows, tiles.panels, tiles.across,
        panels, depth, segments, passes, *where,
        address_of(offsets), extent, address_of(start), per_group, *place,
        double_number(finish.scale), finish.relu, *table_numbers(table), *read,
    )  # fmt: skip
    units = channels if images == 1 else images
    parts = [Phase(units, elements * images / units / ELEMENTS_PER_NS)]
    if isinstance(rows, Places):
        parts.append(Phase(groups * panels, depth * use.shape.rows / WEIGHTS_PER_NS))
    parts.append(Phase(images * groups * blocks, cost / blocks))
    image = np.concatenate([record[SOURCE:OTHER], record[PLANAR:GROUPS]]).tobytes()
    return Job(body, record, tuple(parts), room, (x, out, rows, start, offsets, table, use), image)


def _places_of(begin: int, panels: int, depth: int, rows: int) -> tuple[tuple[int, ...], int]:
    """Where in the room packed weights stand, in the order of `Rows`, and where they end."""
    where = []
    for size in (
        4 * depth * rows,
        depth + 16,
        4 * -(-depth // SEGMENT),
        -(-depth // PASS_DEPTH),
        4 * -(-depth // PASS_DEPTH),
    ):
        where.append(begin)
        begin += -(-panels * size // 64) * 64
    return tuple(where), begin


def _unbroken(x: np.ndarray) -> bool:
    return x.strides[4] == 2 or x.shape[4] == 1
