"""Rows of an operand that one tile of a task has in L2."""

from __future__ import annotations


def source_rows(tile_height: int, rows: int, kernel_height: int, stride: int) -> int:
    """Source rows that a tile of ``tile_height`` output rows needs room for, of ``rows`` in the map.

    Rows of padding are counted: Apple's depthwise 3x3 convolution of 256 channels on 64x64 (H16) takes tiles of 62
    rows, whose 64 source rows of 0x8000 bytes fill L2 to its last byte, although the first tile reads only 63
    (docs/reference/engine-h13.md 7.5).
    """
    return min(rows, (tile_height - 1) * stride + kernel_height)
