"""Element-wise operations, tables, copies and reductions as jobs, over arrays of five axes of halfwords."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import carray
from numpy.lib.stride_tricks import as_strided

from hexane.arithmetic.fast import copy, elementwise, reduction
from hexane.arithmetic.fast.call import PLANAR_MULTIPLY, bits_double, copy_bytes, pointer
from hexane.arithmetic.fast.compiled import compiled
from hexane.arithmetic.fast.jobs import (
    AXES,
    MORE,
    NOTHING,
    OTHER,
    SOURCE,
    TARGET,
    CompiledJob,
    Phase,
    array_numbers,
    double_number,
    halves_of,
    kernels_of,
    numbers_at,
    record_of,
    table_numbers,
    table_of,
)
from hexane.arithmetic.fast.targets import kernels

OPERATION, AXIS, TABLE, _, LEAST, SQUARE = range(MORE, MORE + 6)
"""Places in a record of an element-wise operation; ``TABLE`` is followed by the table's size."""
MAXIMUM, FINAL_SCALE, EPSILON, FUNCTION = range(MORE, MORE + 4)
"""Places in a record of a reduction."""

OPERATIONS_PER_NS = 1.5
LOOKUPS_PER_NS = 0.7
TERMS_PER_NS = 0.15
"""What one thread does, to share work in pieces that pay."""


@compiled(inner=True)
def _part(x, axis, first, last):
    """Some of an array along one axis; all of it where it has one element there."""
    shape, steps = x.shape, x.strides
    start, count = (0, 1) if shape[axis] == 1 else (first, last - first)
    one = carray(pointer(x.ctypes.data + start * steps[axis]), (1,), np.uint16)
    sizes = (
        count if axis == 0 else shape[0],
        count if axis == 1 else shape[1],
        count if axis == 2 else shape[2],
        count if axis == 3 else shape[3],
        count if axis == 4 else shape[4],
    )
    return as_strided(one, sizes, steps)


def operate_body(record, phase, first, last, room):
    """a op b, or the square of that, then a table."""
    n = numbers_at(record)
    axis = n[AXIS]
    table = table_of(n, TABLE)
    a, b = _part(halves_of(n, SOURCE), axis, first, last), _part(halves_of(n, OTHER), axis, first, last)
    out = _part(halves_of(n, TARGET), axis, first, last)
    if n[SQUARE]:
        elementwise.operate(kernels_of(n)[n[OPERATION]], a, b, table[:0], out, elementwise.LEAST[0])
        elementwise.operate(kernels_of(n)[PLANAR_MULTIPLY], out, out, table, out, n[LEAST])
    else:
        elementwise.operate(kernels_of(n)[n[OPERATION]], a, b, table, out, n[LEAST])


def look_up_body(record, phase, first, last, room):
    """A table's results."""
    n = numbers_at(record)
    source = _part(halves_of(n, SOURCE), n[AXIS], first, last)
    elementwise.look_up(table_of(n, TABLE), source, _part(halves_of(n, TARGET), n[AXIS], first, last))


def copy_body(record, phase, first, last, room):
    """The same elements."""
    n = numbers_at(record)
    target = _part(halves_of(n, TARGET), n[AXIS], first, last)
    copy.lines(target, _part(halves_of(n, SOURCE), n[AXIS], first, last))


def reduce_body(record, phase, first, last, room):
    """Sums or maxima over depth, height and width of groups and channels first .. last - 1."""
    n = numbers_at(record)
    x, out = halves_of(n, SOURCE), halves_of(n, TARGET)
    _, d, c, h, w = x.shape
    steps = x.strides
    count = last - first
    rows = np.empty((count, d * h * w), np.uint16)
    totals, halves = np.empty(count, np.float64), np.empty(count, np.uint16)
    to = rows.ctypes.data
    for at in range(first, last):
        g, channel = at // c, at % c
        plane = x.ctypes.data + g * steps[0] + channel * steps[2]
        for z in range(d):
            for y in range(h):
                line = plane + z * steps[1] + y * steps[3]
                if steps[4] == 2:
                    copy_bytes(to, line, 2 * w)
                else:
                    for i in range(w):
                        copy_bytes(to + 2 * i, line + i * steps[4], 2)
                to += 2 * w
    if n[MAXIMUM]:
        reduction.maximum(rows, 0, count, totals)
    else:
        reduction.total(rows, 0, count, totals)
    reduction.finish(totals, bits_double(n[FINAL_SCALE]), bits_double(n[EPSILON]), n[FUNCTION], halves)
    for at in range(first, last):
        out[at // c, 0, at % c, 0, 0] = halves[at - first]


def operate(
    op: str, a: np.ndarray, b: np.ndarray, table: np.ndarray | None, out: np.ndarray, *, relu: bool = False
) -> CompiledJob | None:
    """a op b where they broadcast to ``out``, then a table of 65536 results or a ReLU; None for lines with gaps.

    ``sumsq``: the square of the sum, rounded in between.
    """
    if out.strides[4] != 2 and out.shape[4] > 1:
        return None
    square = op == "sumsq"
    addresses, axis = kernels().addresses, _axis(out)
    where, size = table_numbers(table)
    record = record_of(
        addresses, *array_numbers(a), *array_numbers(b), *array_numbers(out),
        elementwise.OPERATIONS["add" if square else op], axis, where, size, elementwise.LEAST[relu], square,
    )  # fmt: skip
    rate = OPERATIONS_PER_NS if table is None else LOOKUPS_PER_NS
    return _job(operate_body, record, out, axis, rate, (a, b, table, addresses))


def look_up(table: np.ndarray, x: np.ndarray, out: np.ndarray) -> CompiledJob:
    """The results of a function, given for all 65536 halfwords."""
    axis = _axis(out)
    record = record_of(
        kernels().addresses, *array_numbers(x), *NOTHING, *array_numbers(out), 0, axis, *table_numbers(table)
    )
    return _job(look_up_body, record, out, axis, LOOKUPS_PER_NS, (x, table))


def copied(x: np.ndarray, out: np.ndarray) -> CompiledJob:
    """x to another place."""
    axis = _axis(out)
    record = record_of(kernels().addresses, *array_numbers(x), *NOTHING, *array_numbers(out), 0, axis)
    return _job(copy_body, record, out, axis, OPERATIONS_PER_NS, (x,))


def reduce(x: np.ndarray, maximum: bool, scale: float, epsilon: float, function: int, out: np.ndarray) -> CompiledJob:
    """Sums or maxima over depth, height and width: out (g, 1, c, 1, 1); what follows as `reduction.finish` says."""
    record = record_of(
        kernels().addresses, *array_numbers(x), *NOTHING, *array_numbers(out), maximum,
        double_number(scale), double_number(epsilon), function,
    )  # fmt: skip
    rows = x.shape[0] * x.shape[2]
    return CompiledJob(reduce_body, record, (Phase(rows, x.size / rows / TERMS_PER_NS),), held=(x, out))


def _axis(out: np.ndarray) -> int:
    """Along which axis work is shared."""
    return next((i for i, n in enumerate(out.shape[: AXES - 1]) if n > 1), 0)


def _job(
    body: Callable[..., None], record: np.ndarray, out: np.ndarray, axis: int, rate: float, buffers: tuple[object, ...]
) -> CompiledJob:
    return CompiledJob(body, record, (Phase(out.shape[axis], out.size / out.shape[axis] / rate),), held=(out, *buffers))
