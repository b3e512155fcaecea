"""Number formats inside fields: value to bits and back.

Source: docs/reference/engine-h13.md 0, docs/reference/generations.md 6.
"""

from __future__ import annotations

import struct

LARGEST_HALF = 65504.0
"""The largest number of fp16."""


def fp16_bits(value: float) -> int:
    """IEEE binary16, rounded to nearest even; beyond the largest number it gives infinity."""
    try:
        return struct.unpack("<H", struct.pack("<e", value))[0]
    except OverflowError:
        return 0x7C00 if value > 0 else 0xFC00


def fp16_value(bits: int) -> float:
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def fp32_bits(value: float) -> int:
    """IEEE binary32, rounded to nearest even."""
    try:
        return struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return 0x7F800000 if value > 0 else 0xFF800000


def fp32_value(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def f19_bits(value: float) -> int:
    """The upper 19 bits of a binary32, rounded to nearest even at that position."""
    bits = fp32_bits(value)
    return min(bits + 0xFFF + (bits >> 13 & 1), 0xFFFFFFFF) >> 13


def f19_value(bits: int) -> float:
    return fp32_value(bits << 13)
