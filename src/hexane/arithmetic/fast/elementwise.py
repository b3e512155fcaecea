"""Element-wise operations over arrays, compiled: the bits of `planar.elementwise_plain`."""

from __future__ import annotations

import numpy as np
from numba import njit, vectorize

from hexane.arithmetic.fast.half import half_away, planar_double
from hexane.arithmetic.fast.rounding import GRAIN
from hexane.arithmetic.fast.workers import share


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
