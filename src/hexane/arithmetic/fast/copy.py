"""Copies between strided views of up to five axes, compiled, on all threads."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.core.typing.templates import Signature

from hexane.arithmetic.fast.call import copy_bytes
from hexane.arithmetic.fast.compiled import compiled
from hexane.arithmetic.fast.jobs import AXES
from hexane.arithmetic.fast.workers import share_arrays

GRAIN = 1 << 18
"""Elements per piece of work: enough to pay for waking a thread."""


def _signature(element: types.Type) -> Signature:
    return types.void(types.Array(element, AXES, "A"), types.Array(element, AXES, "A", readonly=True))


@compiled(_signature(types.uint16), _signature(types.uint8))
def lines(target, source):
    """Line by line."""
    n, size = target.shape[4], target.itemsize
    to_steps, of_steps = target.strides, source.strides
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
