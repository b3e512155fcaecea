"""Rows of a source that the tiles of one task read."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(1024)
def source_rows(
    tile_height: int, rows: int, outputs: int, kernel_height: int, stride: int, pad: int
) -> tuple[int, int]:
    """Most source rows that one tile needs room for, and the rows that all tiles read.

    ``tile_height`` and ``outputs`` are rows of the result, ``rows`` those of the source, ``pad`` the zeros above it.
    Rows of padding take no room: Apple puts the result right behind the others (docs/reference/engine-h13.md 7.5).
    """
    most = total = 0
    for top in range(0, outputs, tile_height):
        bottom = min(top + tile_height, outputs)
        read = max(0, min(rows, (bottom - 1) * stride - pad + kernel_height) - max(0, top * stride - pad))
        most, total = max(most, read), total + read
    return most, total
