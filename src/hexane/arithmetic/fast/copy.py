"""Copies between strided views of up to five axes, compiled, on all threads."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.core.typing.templates import Signature

from hexane.arithmetic.fast.call import copy_bytes, long_at, put_long
from hexane.arithmetic.fast.compiled import compiled
from hexane.arithmetic.fast.jobs import AXES
from hexane.arithmetic.fast.workers import share_arrays

GRAIN = 1 << 18
"""Elements per piece of work: enough to pay for waking a thread."""

TILE = 32
"""Halfwords of a line, a line of the cache, that are transposed before the next."""


def _signature(element: types.Type) -> Signature:
    return types.void(types.Array(element, AXES, "A"), types.Array(element, AXES, "A", readonly=True))


@compiled(inner=True)
def _unbroken(shape, steps, size):
    """The last axis along which elements stand one after the other, or -1."""
    axis = np.int64(AXES - 1)
    while axis >= 0 and (steps[axis] != size or shape[axis] == 1):
        axis -= 1
    return axis


@compiled(inner=True)
def _transpose_four(to, to_step, of, of_step):
    """Four lines of four halfwords, the lines `of_step` bytes apart, become lines `to_step` bytes apart."""
    even, low = np.int64(0x0000FFFF0000FFFF), np.int64(0xFFFFFFFF)
    a, b, c, d = long_at(of), long_at(of + of_step), long_at(of + 2 * of_step), long_at(of + 3 * of_step)
    ab, cd = (a & even) | (b & even) << 16, (c & even) | (d & even) << 16
    put_long(to, (ab & low) | cd << 32)
    put_long(to + 2 * to_step, (ab >> 32 & low) | (cd & ~low))
    ab, cd = (a >> 16 & even) | (b & ~even), (c >> 16 & even) | (d & ~even)
    put_long(to + to_step, (ab & low) | cd << 32)
    put_long(to + 3 * to_step, (ab >> 32 & low) | (cd & ~low))


@compiled(inner=True)
def _transpose(to, to_step, of, of_step, columns, rows):
    """Lines of halfwords, `of_step` bytes apart, become columns of lines that are `to_step` bytes apart."""
    for begin in range(0, columns, TILE):
        end = min(begin + TILE, columns)
        for row in range(0, rows, 4):
            y = min(row, rows - 4)
            for column in range(begin, end, 4):
                x = min(column, columns - 4)
                _transpose_four(to + x * to_step + 2 * y, to_step, of + y * of_step + 2 * x, of_step)


@compiled(inner=True)
def _transposed(target, source, p, q):
    """As `lines`, for halfwords that stand one after the other along p in the source and along q in the target."""
    shape, to_steps, of_steps = target.shape, target.strides, source.strides
    columns, rows, to_step, of_step = shape[p], shape[q], to_steps[p], of_steps[q]
    for g in range(1 if p == 0 or q == 0 else shape[0]):
        for d in range(1 if p == 1 or q == 1 else shape[1]):
            for c in range(1 if p == 2 or q == 2 else shape[2]):
                for h in range(1 if p == 3 or q == 3 else shape[3]):
                    for i in range(1 if p == 4 or q == 4 else shape[4]):
                        to = g * to_steps[0] + d * to_steps[1] + c * to_steps[2] + h * to_steps[3] + i * to_steps[4]
                        of = g * of_steps[0] + d * of_steps[1] + c * of_steps[2] + h * of_steps[3] + i * of_steps[4]
                        to, of = target.ctypes.data + to, source.ctypes.data + of
                        _transpose(to, to_step, of, of_step, columns, rows)


@compiled(_signature(types.uint16), _signature(types.uint8))
def lines(target, source):
    """Line by line, or four lines at a time where the two run along different axes."""
    n, size = target.shape[4], target.itemsize
    to_steps, of_steps = target.strides, source.strides
    p, q = _unbroken(target.shape, of_steps, size), _unbroken(target.shape, to_steps, size)
    if size == 2 and p >= 0 and q >= 0 and p != q and min(target.shape[p], target.shape[q]) >= 4:
        _transposed(target, source, p, q)
        return
    together = n == 1 or (to_steps[4] == size and of_steps[4] == size)
    for g in range(target.shape[0]):
        for d in range(target.shape[1]):
            for c in range(target.shape[2]):
                for h in range(target.shape[3]):
                    if together:
                        to = target.ctypes.data + g * to_steps[0] + d * to_steps[1] + c * to_steps[2] + h * to_steps[3]
                        of = source.ctypes.data + g * of_steps[0] + d * of_steps[1] + c * of_steps[2] + h * of_steps[3]
                        copy_bytes(to, of, n * size)
                    else:
                        for i in range(n):
                            target[g, d, c, h, i] = source[g, d, c, h, i]


def copy(target: np.ndarray, source: np.ndarray) -> None:
    """target[...] = source, both uint16 or uint8 of one shape with five axes; they do not overlap."""
    share_arrays(lambda of, to: lines(to, of), GRAIN, source, target)


def together(x: np.ndarray) -> np.ndarray:
    """The array if its elements stand one after the other, else a copy; uint16 or uint8, up to five axes."""
    if x.flags.c_contiguous:
        return x
    result = np.empty(x.shape, x.dtype)
    more = (None,) * (AXES - x.ndim)
    copy(result[more], x[more])
    return result
