"""Sizes at which the engine's arithmetic changes because a map does not fit L2."""

from __future__ import annotations

LONGEST_STRIDE = 2
"""Of a window that a task steps by (docs/reference/limits.md)."""
GRID = 32
"""Columns of fp16 in 64 bytes: a DMA starts at multiples of them (docs/reference/engine-h13.md 6)."""
RESERVED = 0x8000
"""What a task keeps beside its source: results and the second half of a double buffer."""


def plane_by_rows(c: int, h: int, w: int, l2_bytes: int) -> bool:
    """True where a reduction over H and W goes over W first, then over H, with a rounding between.

    One task reads all rows of all channels at once; a row takes its bytes and at most 32 more in L2, or the planar
    engine's window of 512 pixels (docs/reference/engine-h13.md 7.1).
    """
    row = 2 * w + 32 if w <= 256 else min(2 * w + 32, 1024)
    return h > 1 and w > 1 and c * h * row > l2_bytes - RESERVED
