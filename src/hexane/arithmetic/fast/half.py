"""Halfwords and float64, one value at a time, for compiled loops."""

from __future__ import annotations

import numpy as np

from hexane.arithmetic.fast.call import bits_float, double_bits
from hexane.arithmetic.fast.compiled import compiled


@compiled()
def half_away(v):
    """One float64 as a halfword, half away; NaN becomes +infinity, zero is +0 (docs/reference/numerics.md 0, 2)."""
    magnitude = abs(v)
    bits = double_bits(magnitude) + (1 << 41)
    normal = (bits >> 42) - (1008 << 10)
    scaled = magnitude * 2.0**24 if magnitude < 2.0**-14 else 0.0
    whole = np.floor(scaled)
    subnormal = np.int64(whole) + (1 if scaled - whole >= 0.5 else 0)
    code = subnormal if magnitude < 2.0**-14 else (normal if magnitude < 65520.0 else 0x7C00)
    return np.uint16(code | 0x8000) if v < 0 and code != 0 else np.uint16(code)


@compiled()
def planar_single(h):
    """A halfword as the planar engine reads it: NaN is +infinity."""
    magnitude = np.int32(h & 0x7FFF)
    small = np.float32(magnitude) * np.float32(2.0**-24)
    normal = bits_float(np.int32((magnitude << 13) + (112 << 23)))
    value = small if magnitude < np.int32(1024) else (normal if magnitude < np.int32(0x7C00) else np.float32(np.inf))
    negative = (h & 0x8000) != 0 and magnitude <= np.int32(0x7C00)
    return -value if negative else value


@compiled()
def planar_double(h):
    """`planar_single` as float64."""
    return np.float64(planar_single(h))


@compiled()
def multiplier_double(h):
    """A halfword as the multiplier reads it: exponent 31 is a binade."""
    magnitude = np.int32(h & 0x7FFF)
    small = np.float64(magnitude) * 2.0**-24
    normal = np.float64(bits_float(np.int32((magnitude << 13) + (112 << 23))))
    value = small if magnitude < np.int32(1024) else normal
    return -value if (h & 0x8000) != 0 else value
