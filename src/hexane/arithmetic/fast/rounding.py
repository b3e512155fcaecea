"""Rounding and element-wise work over arrays, compiled: the bits of `formats.round_half_away` and of `planar`."""

from __future__ import annotations

import numpy as np
from numba import njit, vectorize

from hexane.arithmetic.fast.call import bits_float, double_bits
from hexane.arithmetic.fast.workers import share

GRAIN = 1 << 17
"""Elements per piece of work: enough to pay for waking a thread."""


@njit(nogil=True, cache=True)
def half_away(v):
    """One float64 as a halfword, half away; NaN becomes +infinity, zero is +0 (spec/numerics §0, §2)."""
    magnitude = abs(v)
    bits = double_bits(magnitude) + (1 << 41)
    normal = (bits >> 42) - (1008 << 10)
    scaled = magnitude * 2.0**24 if magnitude < 2.0**-14 else 0.0
    whole = np.floor(scaled)
    subnormal = np.int64(whole) + (1 if scaled - whole >= 0.5 else 0)
    code = subnormal if magnitude < 2.0**-14 else (normal if magnitude < 65520.0 else 0x7C00)
    return np.uint16(code | 0x8000) if v < 0 and code != 0 else np.uint16(code)


@njit(nogil=True, cache=True)
def planar_double(h):
    """A halfword as the planar engine reads it: NaN is +infinity."""
    magnitude = np.int32(h & 0x7FFF)
    small = np.float64(magnitude) * 2.0**-24
    normal = np.float64(bits_float(np.int32((magnitude << 13) + (112 << 23))))
    value = small if magnitude < np.int32(1024) else (normal if magnitude < np.int32(0x7C00) else np.inf)
    negative = (h & 0x8000) != 0 and magnitude <= np.int32(0x7C00)
    return -value if negative else value


@njit(nogil=True, cache=True)
def _number(v):
    """inf - inf and 0 * inf are +0."""
    return v if v == v else 0.0


_SIGNATURE = ["uint16(uint16, uint16)"]


@vectorize(_SIGNATURE, nopython=True, cache=True)
def _add(a, b):
    return half_away(_number(planar_double(a) + planar_double(b)))


@vectorize(_SIGNATURE, nopython=True, cache=True)
def _mul(a, b):
    return half_away(_number(planar_double(a) * planar_double(b)))


@vectorize(_SIGNATURE, nopython=True, cache=True)
def _max(a, b):
    return half_away(max(planar_double(a), planar_double(b)))


@vectorize(_SIGNATURE, nopython=True, cache=True)
def _min(a, b):
    return half_away(min(planar_double(a), planar_double(b)))


@njit(nogil=True, cache=True)
def _round_all(values, out):
    for i in range(values.size):
        out[i] = half_away(values[i])


def round_half_away(values: np.ndarray) -> np.ndarray:
    """h(v) of a float64 array."""
    flat = np.ascontiguousarray(values, np.float64).ravel()
    out = np.empty(flat.size, np.uint16)
    share(lambda first, last: _round_all(flat[first:last], out[first:last]), flat.size, GRAIN)
    return out.reshape(values.shape).view(np.float16)


def _negative(h: np.ndarray) -> np.ndarray:
    """The halfwords with the opposite sign, NaN read as +infinity first."""
    return np.where((h & 0x7FFF) > 0x7C00, np.uint16(0xFC00), h ^ np.uint16(0x8000))


def elementwise(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a op b for halfwords (uint16) that broadcast; halfwords out."""
    if op == "sub":
        op, b = "add", _negative(b)
    if op == "sumsq":
        total = elementwise("add", a, b)
        return elementwise("mul", total, total)
    function = {"add": _add, "mul": _mul, "max": _max, "min": _min}[op]
    shape = np.broadcast_shapes(a.shape, b.shape)
    out = np.empty(shape, np.uint16)
    if out.size < 2 * GRAIN:
        with np.errstate(invalid="ignore"):
            out[...] = function(a, b)
        return out
    axis = int(np.argmax([n > 1 for n in shape]))

    def part(array: np.ndarray, first: int, last: int) -> np.ndarray:
        place = axis - (len(shape) - array.ndim)
        if place < 0 or array.shape[place] == 1:
            return array
        return array[(slice(None),) * place + (slice(first, last),)]

    def work(first: int, last: int) -> None:
        with np.errstate(invalid="ignore"):
            function(part(a, first, last), part(b, first, last), out=part(out, first, last))

    share(work, shape[axis], max(1, GRAIN // (out.size // shape[axis])))
    return out
