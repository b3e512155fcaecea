"""Element-wise operations over arrays, compiled: the bits of `planar.elementwise_plain`.

Operands are read where they lie, line by line along the last axis, so that strided views cost no copy.
"""

from __future__ import annotations

import numpy as np
from numba import types

from hexane.arithmetic.fast.call import (
    PLANAR_ADD,
    PLANAR_ADD_MULTIPLY,
    PLANAR_MAXIMUM,
    PLANAR_MINIMUM,
    PLANAR_MULTIPLY,
    PLANAR_SUBTRACT,
    PLANAR_SUBTRACT_MULTIPLY,
    call_planar,
    call_shift,
    copy_bytes,
)
from hexane.arithmetic.fast.compiled import compiled
from hexane.arithmetic.fast.jobs import AXES
from hexane.arithmetic.fast.targets import kernels
from hexane.arithmetic.fast.workers import share, share_arrays

GRAIN = 1 << 17
"""Elements per piece of work: enough to pay for waking a thread."""

OPERATIONS = {
    "add": PLANAR_ADD,
    "sub": PLANAR_SUBTRACT,
    "mul": PLANAR_MULTIPLY,
    "max": PLANAR_MAXIMUM,
    "min": PLANAR_MINIMUM,
}

LEAST = (int(np.iinfo(np.int16).min), 0)
"""The least halfword as a signed integer, by whether a ReLU follows."""

NO_TABLE = np.empty(0, np.uint16)

_HALVES = types.Array(types.uint16, AXES, "A", readonly=True)
_RESULT = types.Array(types.uint16, AXES, "A")
_LINE = types.Array(types.uint16, 1, "C", readonly=True)


@compiled(inner=True)
def _steps(x, shape):
    """Byte strides of an operand, 0 along axes that it repeats."""
    return (
        x.strides[0] if x.shape[0] == shape[0] else 0,
        x.strides[1] if x.shape[1] == shape[1] else 0,
        x.strides[2] if x.shape[2] == shape[2] else 0,
        x.strides[3] if x.shape[3] == shape[3] else 0,
        x.strides[4] if x.shape[4] == shape[4] else 0,
    )


@compiled(inner=True)
def _run(shape, first, second, out):
    """Elements of the longest run that operands and result have in common, and over how many axes it goes.

    Along a run each operand moves by its last stride, or not at all; the result has no gaps.
    """
    n, axes = shape[4], 1
    for axis in (3, 2, 1, 0):
        contiguous = first[axis] == first[4] * n and second[axis] == second[4] * n and out[axis] == 2 * n
        if shape[axis] != 1 and not contiguous:
            break
        n *= shape[axis]
        axes += 1
    return n, axes


@compiled(inner=True)
def _line(place, step, n, room, last):
    """The address of n halfwords one after the other: `place`, or that of a room that they are copied to.

    `last` is the place of what is in the room already.
    """
    if step == 2 or n == 1:
        return place
    target = room.ctypes.data
    if place != last:
        for i in range(n):
            copy_bytes(target + 2 * i, place + i * step, 2)
    return target


@compiled(types.void(_LINE, _HALVES, _RESULT))
def look_up(table, x, out):
    for g in range(out.shape[0]):
        for d in range(out.shape[1]):
            for c in range(out.shape[2]):
                for h in range(out.shape[3]):
                    for i in range(out.shape[4]):
                        out[g, d, c, h, i] = table[x[g, d, c, h, i]]


@compiled(types.void(types.int64, _HALVES, _HALVES, _LINE, _RESULT, types.int64))
def operate(operation, a, b, table, out, least):
    """a op b by the vector code at an address, then the table of 65536 results if it has a size.

    Axes of one element are repeated. out: all axes, its lines without gaps. least: of results where no table follows
    (`LEAST`).
    """
    first, second = _steps(a, out.shape), _steps(b, out.shape)
    n, axes = _run(out.shape, first, second, out.strides)
    left, right = np.empty(n, np.uint16), np.empty(n, np.uint16)
    held_left = held_right = np.int64(0)
    for g in range(out.shape[0] if axes < 5 else 1):
        for d in range(out.shape[1] if axes < 4 else 1):
            for c in range(out.shape[2] if axes < 3 else 1):
                for h in range(out.shape[3] if axes < 2 else 1):
                    x = a.ctypes.data + g * first[0] + d * first[1] + c * first[2] + h * first[3]
                    y = b.ctypes.data + g * second[0] + d * second[1] + c * second[2] + h * second[3]
                    xs, ys = _line(x, first[4], n, left, held_left), _line(y, second[4], n, right, held_right)
                    held_left, held_right = x, y
                    place = out.ctypes.data
                    place += g * out.strides[0] + d * out.strides[1] + c * out.strides[2] + h * out.strides[3]
                    call_planar(operation, xs, ys, n, place, least)
    if table.size:
        look_up(table, out, out)


@compiled(types.void(types.int64, _HALVES, _HALVES, _HALVES, _RESULT))
def _shift(operation, a, shift, scale, out):
    """(a + shift) * scale by the vector code at an address; shift and scale have one element per group and channel."""
    height, width = out.shape[3], out.shape[4]
    step, to = a.strides, out.strides
    whole = step[4] == 2 and (height == 1 or step[3] == to[3] == 2 * width)
    room = np.empty(width, np.uint16)
    for g in range(out.shape[0]):
        for d in range(out.shape[1]):
            for c in range(out.shape[2]):
                s = np.int64(shift[0 if shift.shape[0] == 1 else g, 0, 0 if shift.shape[2] == 1 else c, 0, 0])
                f = np.int64(scale[0 if scale.shape[0] == 1 else g, 0, 0 if scale.shape[2] == 1 else c, 0, 0])
                both = s | f << 16
                plane = a.ctypes.data + g * step[0] + d * step[1] + c * step[2]
                place = out.ctypes.data + g * to[0] + d * to[1] + c * to[2]
                if whole:
                    call_shift(operation, plane, both, height * width, place)
                    continue
                for h in range(height):
                    line = _line(plane + h * step[3], step[4], width, room, 0)
                    call_shift(operation, line, both, width, place + h * to[3])


@compiled(types.void(_LINE, _LINE, types.uint16[::1]))
def _gather(table, x, out):
    for i in range(x.size):
        out[i] = table[x[i]]


def elementwise(
    op: str, a: np.ndarray, b: np.ndarray, table: np.ndarray = NO_TABLE, out: np.ndarray | None = None
) -> np.ndarray:
    """a op b for halfwords (uint16) that broadcast, then a table of 65536 results; halfwords out.

    The result is contiguous, or goes to `out`: five axes, its lines without gaps.
    """
    if op == "sumsq":
        total = elementwise("add", a, b)
        return elementwise("mul", total, total, table, out)
    operation = kernels().addresses[OPERATIONS[op]]
    shape = a.shape if a.shape == b.shape else np.broadcast_shapes(a.shape, b.shape)
    if len(shape) > AXES:
        return elementwise(op, _flat(a, shape), _flat(b, shape), table).reshape(shape)
    axes = (*(1,) * (AXES - len(shape)), *shape)
    if out is None:
        out = np.empty(axes, np.uint16)
    share_arrays(lambda x, y, z: operate(operation, x, y, table, z, LEAST[False]), GRAIN, _five(a), _five(b), out)
    return out.reshape(shape)


def shift_scale(
    a: np.ndarray, shift: np.ndarray, scale: np.ndarray, *, subtract: bool, out: np.ndarray | None = None
) -> np.ndarray:
    """h(h(a + shift) * scale), or a - shift, for halfwords with axes (g, d, c, h, w); one shift and scale per channel.

    shift, scale: (1 or g, 1, 1 or c, 1, 1). The result is contiguous, or goes to `out`, its lines without gaps.
    """
    operation = kernels().addresses[PLANAR_SUBTRACT_MULTIPLY if subtract else PLANAR_ADD_MULTIPLY]
    if out is None:
        out = np.empty(a.shape, np.uint16)
    share_arrays(lambda *parts: _shift(operation, *parts), GRAIN, a, shift, scale, out)
    return out


def gather(table: np.ndarray, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """table[x]: the results of a function, given for all 65536 halfwords, for halfwords x.

    The result is contiguous, or goes to `out`; then both have five axes.
    """
    if out is not None:
        share_arrays(lambda *parts: look_up(table, *parts), GRAIN, x, out)
        return out
    source = np.ascontiguousarray(x).ravel()
    result = np.empty(source.size, np.uint16)
    grain = GRAIN if result.size >= 2 * GRAIN else max(1, result.size)
    share(lambda first, last: _gather(table, source[first:last], result[first:last]), result.size, grain)
    return result.reshape(x.shape)


def _five(x: np.ndarray) -> np.ndarray:
    return x[(None,) * (AXES - x.ndim)] if x.ndim < AXES else x


def _flat(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.ascontiguousarray(np.broadcast_to(x, shape)).ravel()
