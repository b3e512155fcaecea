"""Rounding of whole arrays, compiled: the bits of `formats.round_half_away`."""

from __future__ import annotations

import numpy as np

from hexane.arithmetic.fast.compiled import compiled
from hexane.arithmetic.fast.half import half_away
from hexane.arithmetic.fast.workers import share

GRAIN = 1 << 17
"""Elements per piece of work: enough to pay for waking a thread."""


@compiled()
def _round_all(values, out):
    for i in range(values.size):
        out[i] = half_away(values[i])


def round_half_away(values: np.ndarray) -> np.ndarray:
    """h(v) of a float64 array."""
    flat = np.ascontiguousarray(values, np.float64).ravel()
    out = np.empty(flat.size, np.uint16)
    share(lambda first, last: _round_all(flat[first:last], out[first:last]), flat.size, GRAIN)
    return out.reshape(values.shape).view(np.float16)
