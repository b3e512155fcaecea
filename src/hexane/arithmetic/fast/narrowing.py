"""float32 to halfwords as the host converts them, compiled; NumPy takes a nanosecond for each."""

from __future__ import annotations

import numpy as np
from numba import types

from hexane.arithmetic.fast.call import bits_float
from hexane.arithmetic.fast.compiled import compiled

SUBNORMAL, BEYOND, INFINITY = np.int32(113 << 23), np.int32(143 << 23), np.int32(255 << 23)
"""Bits of 2^-14, 2^16 and infinity as float32."""

HALF, UNITS = np.float32(0.5), np.float32(2.0**24)


@compiled(types.void(types.Array(types.int32, 1, "C", readonly=True), types.uint16[::1]))
def narrow(bits, out):
    """To nearest, ties to even; a NaN keeps its sign and the first ten bits of its payload, of which one is set."""
    for i in range(bits.size):
        magnitude = bits[i] & np.int32(0x7FFFFFFF)
        odd = (magnitude >> np.int32(13)) & np.int32(1)
        code = (magnitude + np.int32(0xFFF) + odd - np.int32(112 << 23)) >> np.int32(13)
        little = bits_float(magnitude if magnitude < SUBNORMAL else np.int32(0))
        code = np.int32((little + HALF - HALF) * UNITS) if magnitude < SUBNORMAL else code
        code = code if magnitude < BEYOND else np.int32(0x7C00)
        payload = (magnitude >> np.int32(13)) & np.int32(0x3FF)
        code = np.int32(0x7C00) | (payload if payload else np.int32(1)) if magnitude > INFINITY else code
        out[i] = np.uint16(code | ((bits[i] >> np.int32(16)) & np.int32(0x8000)))
