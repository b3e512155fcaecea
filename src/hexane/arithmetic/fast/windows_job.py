"""The largest element of each window of a map as a job: the bits of `arithmetic.pooling`."""

from __future__ import annotations

import numpy as np

from hexane.arithmetic.fast.call import copy_bytes
from hexane.arithmetic.fast.compiled import compiled
from hexane.arithmetic.fast.jobs import (
    MORE,
    NOTHING,
    SOURCE,
    TARGET,
    CompiledJob,
    Phase,
    array_numbers,
    halves_of,
    numbers_at,
    record_of,
    table_numbers,
    table_of,
)
from hexane.arithmetic.fast.targets import kernels

KERNEL_Y, KERNEL_X, STRIDE_Y, STRIDE_X, TOP, LEFT, TABLE = range(MORE, MORE + 7)
"""Places in a record; ``TABLE`` is followed by the table's size."""

LOWEST = -0x8000
ELEMENTS_PER_NS = 2.0


@compiled(inner=True)
def _whole(width):
    """As many elements as vectors take, however wide: what is left of a line is done one by one, and slow."""
    return -(-width // 32) * 32


@compiled(inner=True)
def _ordered(line, out):
    """Halfwords as whole numbers in their order, as `pooling` says; NaN is +infinity, zeros are +0."""
    for i in range(line.size):
        bits = np.uint16(line[i])
        magnitude = np.uint16(bits & np.uint16(0x7FFF))
        bits = np.uint16(0x7C00) if magnitude > np.uint16(0x7C00) else bits
        bits = np.uint16(0) if magnitude == np.uint16(0) else bits
        out[i] = np.int16(bits) if bits < np.uint16(0x8000) else np.int16(bits ^ np.uint16(0x7FFF))


@compiled(inner=True)
def _raise(line, other):
    """line becomes the larger of the two, element by element."""
    for i in range(line.size):
        line[i] = max(line[i], other[i])


@compiled(inner=True)
def _across(line, taps, step, out):
    """The largest of `taps` neighbours, `step` elements from one result to the next."""
    if step == 1:
        for i in range(out.size):
            out[i] = line[i]
        for t in range(1, taps):
            for i in range(out.size):
                out[i] = max(out[i], line[i + t])
    else:
        for i in range(out.size):
            out[i] = line[2 * i]
        for t in range(1, taps):
            for i in range(out.size):
                out[i] = max(out[i], line[2 * i + t])


@compiled(inner=True)
def _maps(n, first, last):
    """Maps first .. last - 1 of a job, counted over all axes but height and width."""
    x, out, table = halves_of(n, SOURCE), halves_of(n, TARGET), table_of(n, TABLE)
    _, d, c, height, width = x.shape
    oh, ow = out.shape[3:]
    taps, step, left = n[KERNEL_X], n[STRIDE_X], n[LEFT]
    room, more = _whole(width), _whole(ow)
    halfwords, halves = np.zeros(room, np.uint16), np.empty(more, np.uint16)
    rows = np.empty((height, room), np.int16)
    wide = np.full(max(left + room, (more - 1) * step + taps), LOWEST, np.int16)
    tall = wide[left : left + room]
    largest = np.empty(more, np.int16)
    for at in range(first, last):
        g, z, k = at // (d * c), at // c % d, at % c
        source = x.ctypes.data + g * x.strides[0] + z * x.strides[1] + k * x.strides[2]
        for y in range(height):
            copy_bytes(halfwords.ctypes.data, source + y * x.strides[3], 2 * width)
            _ordered(halfwords, rows[y])
            rows[y, width:] = LOWEST
        target = out.ctypes.data + g * out.strides[0] + z * out.strides[1] + k * out.strides[2]
        for y in range(oh):
            begin = y * n[STRIDE_Y] - n[TOP]
            end = min(height, begin + n[KERNEL_Y])
            begin = max(0, begin)
            for i in range(room):  # an assignment of an array would compile the message of its error
                tall[i] = rows[begin, i]
            for row in range(begin + 1, end):
                _raise(tall, rows[row])
            _across(wide, taps, step, largest)
            for i in range(more):
                value = largest[i]
                halves[i] = np.uint16(value) if value >= 0 else np.uint16(value) ^ np.uint16(0x7FFF)
            if table.size:
                for i in range(ow):
                    halves[i] = table[halves[i]]
            copy_bytes(target + y * out.strides[3], halves.ctypes.data, 2 * ow)


def body(record, phase, first, last, room):
    """One phase: maps."""
    _maps(numbers_at(record), first, last)


def job(
    x: np.ndarray,
    window: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int],
    table: np.ndarray | None,
    out: np.ndarray,
) -> CompiledJob | None:
    """As `pooling.largest_in_windows` for halfwords of five axes, then a table of 65536 results; None for lines with
    gaps."""
    if any(a.strides[4] != 2 and a.shape[4] > 1 for a in (x, out)) or strides[1] not in (1, 2):
        return None
    record = record_of(
        kernels().addresses,
        *array_numbers(x),
        *NOTHING,
        *array_numbers(out),
        *window,
        *strides,
        *pads,
        *table_numbers(table),
    )
    maps = int(np.prod(out.shape[:3]))
    cost = x.size / maps * window[0] / strides[0] / ELEMENTS_PER_NS
    return CompiledJob(body, record, (Phase(maps, cost),), held=(x, out, table))
