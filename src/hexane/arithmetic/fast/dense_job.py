"""A convolution as a job: the image decoded, then the blocks of its product (`convolution.Dense`).

Weights that a task computes are read and packed between the two, into the room, in every run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import carray

from hexane.arithmetic.fast import matrix, packing, product
from hexane.arithmetic.fast.call import DECODE_COLUMNS, call_body, call_decode_columns, call_pack, pointer
from hexane.arithmetic.fast.compiled import compiled
from hexane.arithmetic.fast.jobs import (
    KERNELS,
    MORE,
    NOTHING,
    OTHER,
    SOURCE,
    CompiledJob,
    Phase,
    address_of,
    array_numbers,
    halves_of,
    kernels_of,
    numbers_at,
    pieces_for,
    record_of,
)
from hexane.arithmetic.fast.packing import Lines, PackedTiles, pack_tiles, window_minimum
from hexane.arithmetic.fast.planes import Planes
from hexane.arithmetic.fast.product_record import EXTRA, PackedRows, ProductRecord
from hexane.arithmetic.fast.targets import VectorKernels
from hexane.arithmetic.fast.vector_parts import ALL_ZERO, SEGMENT
from hexane.arithmetic.fast.vector_parts import DEPTH as PASS_DEPTH
from hexane.arithmetic.plain_convolution import PlainWindow, WindowPlaces
from hexane.rounding import align, ceil_div

(
    STRIDE_Y, STRIDE_X, TOP, LEFT, PHASES_Y, PHASES_X, LINES, PITCH, PLANE, SIZE, TILE,
    TILES, GROUPS, PACKED_EXPONENTS, PACKED_NORMS, CHANNELS,
    MULTIPLY, PRODUCTS, PRODUCT_BYTES, BLOCKS,
    PACK, TILE_ROWS, PANELS, DEPTH, SEGMENTS, PASSES, VALUES, EXPONENTS, NORMS, PASS_LEAST, PASS_NORMS,
    PER_GROUP, DATA, INDEX,
) = range(MORE, MORE + 34)  # fmt: skip
"""Places in a record. ``SIZE``: elements of one decoded image; ``PRODUCTS``: where a `product.Record` for each image
and group stands.

From ``TILES`` on: a 1x1 window's columns are packed tile by tile, where it is not 0; ``CHANNELS``: the address of each
group's terms, see `packing.Lines`; exponents and norms are places in the room.

From ``PACK`` on: weights that are read in every run, where ``INDEX`` is not 0; ``VALUES`` to ``PASS_NORMS`` are
places in the room.
"""

NO_TERMS = np.empty(0, np.int64)

COLUMNS = "column_values", "column_exponents", "column_norms"

PRODUCTS_PER_NS = 20.0
ELEMENTS_PER_NS = 2.0
WEIGHTS_PER_NS = 0.5
"""What one thread does, to share work in pieces that pay."""


@compiled(inner=True)
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


@compiled(inner=True)
def _decode(n, first, last, values, exponents):
    """Units of the first phase: channels of the only image, or whole images."""
    kernels, x = kernels_of(n), halves_of(n, SOURCE)
    images, channels, size = x.shape[0], x.shape[1] * x.shape[2], n[SIZE]
    for image in range(first if images > 1 else 0, last if images > 1 else 1):
        c0, c1 = (0, channels) if images > 1 else (first, last)
        v, e = values[image * size : (image + 1) * size], exponents[image * size : (image + 1) * size]
        _decode_planes(kernels, n, x, image, c0, c1, v, e)
        if c1 == channels:
            values_read = channels * n[PHASES_Y] * n[PHASES_X] * n[PLANE]
            v[values_read:] = 0
            e[values_read:] = ALL_ZERO


@compiled(inner=True)
def _pack(n, first, last, room):
    """Units of the first phase, where the window is 1x1: tiles of columns of each image and group."""
    x = halves_of(n, SOURCE)
    tiles, depth, parts = n[TILES], n[DEPTH], n[GROUPS]
    values, exponents, norms = 4 * tiles * depth * n[TILE], tiles * (depth + EXTRA), 4 * tiles * n[SEGMENTS]
    while first < last:
        part, tile = first // tiles, first % tiles
        end = min(tiles, tile + last - first)
        source = x.ctypes.data + part // parts * x.strides[0]
        channels = n[CHANNELS] + 8 * depth * (part % parts)
        lines = Lines(source, channels, depth, x.shape[3] * x.shape[4], x.shape[4], x.strides[3])
        into = PackedTiles(
            room + part * values, room + n[PACKED_EXPONENTS] + part * exponents, room + n[PACKED_NORMS] + part * norms,
            n[TILE], n[SEGMENTS],
        )  # fmt: skip
        pack_tiles(n[KERNELS], lines, into, tile, end)
        first += end - tile


@compiled(inner=True)
def _read(n, first, last, room):
    """Units of a phase of its own: panels of weights, group after group, read and packed."""
    rows, depth, panels, per = n[TILE_ROWS], n[DEPTH], n[PANELS], n[PER_GROUP]
    data, halves = carray(pointer(n[DATA]), (1 << 40,), np.uint16), np.empty((rows, depth), np.uint16)
    for p in range(first, last):
        row = p % panels * rows
        count = min(rows, per - row)
        index = carray(pointer(n[INDEX] + 4 * (p // panels * per + row) * depth), (count, depth), np.int32)
        for r in range(count):
            for k in range(depth):
                halves[r, k] = data[index[r, k]]
        call_pack(
            n[PACK], n[KERNELS], halves.ctypes.data, count, depth, rows, 0, 1,
            room + n[VALUES] + 4 * p * depth * rows, room + n[EXPONENTS] + p * (depth + 16),
            room + n[NORMS] + 4 * p * n[SEGMENTS], room + n[PASS_LEAST] + p * n[PASSES],
            room + n[PASS_NORMS] + 4 * p * n[PASSES],
        )  # fmt: skip


@compiled(inner=True)
def _multiply(n, first, last, room):
    """Units of the last phase: blocks of the product of each image and group."""
    blocks = n[BLOCKS]
    while first < last:
        block = first % blocks
        end = min(blocks, block + last - first)
        call_body(n[MULTIPLY], n[PRODUCTS] + first // blocks * n[PRODUCT_BYTES], 0, block, end, room)
        first += end - block


def body(record, phase, first, last, room):
    """Two phases: the image into the room, and its product; weights that are read come between them."""
    n = numbers_at(record)
    images = n[SOURCE + 1]
    values = carray(pointer(room), (images * n[SIZE],), np.float32)
    exponents = carray(pointer(room + 4 * images * n[SIZE]), (images * n[SIZE],), np.uint8)
    if phase == 0 and n[TILES] != 0:
        _pack(n, first, last, room)
    elif phase == 0:
        _decode(n, first, last, values, exponents)
    elif n[INDEX] != 0 and phase == 1:
        _read(n, first, last, room)
    else:
        _multiply(n, first, last, room)


def stacked(parts: Sequence[PackedRows]) -> PackedRows:
    """The packed rows of several groups, one after the other."""
    return parts[0] if len(parts) == 1 else PackedRows(*map(np.concatenate, zip(*parts)))


def job(
    x: np.ndarray,
    out: np.ndarray,
    rows: PackedRows | WindowPlaces,
    start: np.ndarray,
    offsets: np.ndarray,
    window: PlainWindow,
    planes: Planes | None,
    finish: matrix.Finish,
    use: VectorKernels,
) -> CompiledJob | None:
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
    panels, depth = ceil_div(per_group, use.shape.rows), offsets.shape[1]
    segments, passes = ceil_div(depth, SEGMENT), ceil_div(depth, PASS_DEPTH)
    if planes is None:
        extent = oh * ow
        place = (extent, extent, 1) if out.strides[3] == 2 * ow or oh == 1 else (ow, ow, oh)
        tiles, own, elements, terms = ceil_div(extent, tile), groups, depth * extent, _terms(x, offsets)
        columns = 4 * tiles * depth * tile, tiles * (depth + EXTRA), 4 * tiles * segments
        geometry = (0,) * (SIZE - STRIDE_Y + 1)
    else:
        extent, place = (oh - 1) * planes.pitch + ow, (planes.pitch, ow, oh)
        tiles, own, elements, terms = 0, 1, planes.size, NO_TERMS
        size = align(elements + tile, 64)
        columns = 4 * size, size, 0
        pads = window.pads
        geometry = *window.strides, pads[1], pads[0], *planes.phases, planes.height, planes.pitch, planes.plane, size
    units = images * own  # an image's groups share its planes, or have each their own tiles
    at, room = matrix.places_of(columns, units)
    cost = panels * use.shape.rows * depth * extent / PRODUCTS_PER_NS
    blocked, blocks = matrix.blocks_of(
        use, panels, extent, ceil_div(pieces_for(cost * images * groups), images * groups)
    )
    if isinstance(rows, WindowPlaces):
        where, room = matrix.places_of(matrix.panel_bytes(depth, use.shape.rows), groups * panels, room)
        read = address_of(rows.data), address_of(rows.index)
    else:
        where, read = tuple(map(address_of, rows)), (0, 0)
    common = ProductRecord(
        **matrix.numbers_of(use, blocked, finish), panels=panels, depth=depth, extent=extent, row_starts=per_group,
        channels=per_group, plane=out.strides[2], line=out.strides[3], pitch=place[0], width=place[1], height=place[2],
        rows_in_room=isinstance(rows, WindowPlaces), columns_in_room=1,
    )  # fmt: skip
    each = [panels * step for step in matrix.panel_bytes(depth, use.shape.rows)]
    products = np.array(
        [
            common._replace(
                **{name: begin + g * step for name, begin, step in zip(PackedRows._fields, where, each)},
                **{
                    name: begin + (image * own + g % own) * step
                    for name, begin, step in zip(COLUMNS, at, columns)
                    if step
                },
                offsets=address_of(offsets) + 8 * g * depth,
                row_start=address_of(start) + 8 * g * per_group,
                out=address_of(out) + image * out.strides[0] + g * out.strides[1],
            )
            for image in range(images)
            for g in range(groups)
        ],
        np.int64,
    )
    record = record_of(
        use.addresses, *array_numbers(x), *NOTHING, *array_numbers(out),
        *geometry, tile, tiles, groups, *at[1:], address_of(terms),
        product.address(), address_of(products), products.strides[0], blocks,
        packing.address(), use.shape.rows, panels, depth, segments, passes, *where, per_group, *read,
    )  # fmt: skip
    count = units * tiles or (channels if images == 1 else images)
    parts = [Phase(count, elements * units / count / ELEMENTS_PER_NS)]
    if isinstance(rows, WindowPlaces):
        parts.append(Phase(groups * panels, depth * use.shape.rows / WEIGHTS_PER_NS))
    parts.append(Phase(images * groups * blocks, cost / blocks))
    image = np.concatenate([record[SOURCE:OTHER], record[STRIDE_Y:CHANNELS]]).tobytes() + terms.tobytes()
    buffers = x, out, rows, start, offsets, terms, products, finish, use
    return CompiledJob(body, record, tuple(parts), room, buffers, image)


def _terms(x: np.ndarray, channels: np.ndarray) -> np.ndarray:
    """Places of channels of an image, in halfwords: x (images, groups, channels, H, W) in whatever groups."""
    group, inner = np.divmod(channels, x.shape[2])
    return np.asarray((group * x.strides[1] + inner * x.strides[2]) // 2, np.int64)


def _unbroken(x: np.ndarray) -> bool:
    return x.strides[4] == 2 or x.shape[4] == 1
