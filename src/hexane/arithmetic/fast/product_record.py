"""The operands of a blocked product as arrays, as numbers of a record, and where a worker's room holds them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hexane.arithmetic.fast.compiled import compiled
from hexane.arithmetic.fast.vector_parts import DEPTH, SEGMENT


class PackedRows(NamedTuple):
    """The broadcast operand, packed: see `packing.pack_rows`."""

    values: np.ndarray
    exponents: np.ndarray
    norms: np.ndarray
    passes: np.ndarray
    pass_norms: np.ndarray


class Columns(NamedTuple):
    """The vector operand: flat float32, and the least exponent (uint8) within one tile's width from every place on.

    With norms it is packed: tile by tile the terms, each of a tile's width; for each term the least exponent of the
    tile, `EXTRA` more from tile to tile; the largest sum of squares of a column in each segment (`vector_gather`).
    """

    values: np.ndarray
    exponents: np.ndarray
    norms: np.ndarray = np.empty(0, np.float32)


EXTRA = 16
"""Exponents behind those of a tile's or panel's terms, because whole vectors are read."""


class Terms(NamedTuple):
    """Term k of column j stands at base + offsets[k] + j, if columns are not packed; 0 .. extent - 1 are wanted."""

    offsets: np.ndarray
    base: int
    extent: int


class Tiles(NamedTuple):
    """Rows and columns of a tile; panels and tiles across of a block."""

    rows: int
    columns: int
    panels: int
    across: int


class ProductRecord(NamedTuple):
    """One product as compiled code reads it: numbers, and addresses of arrays."""

    kernels: int = 0
    """The addresses of the vector code."""
    tile_rows: int = 0
    tile_columns: int = 0
    tile_panels: int = 0
    tile_across: int = 0
    panels: int = 0
    depth: int = 0
    extent: int = 0
    values: int = 0
    exponents: int = 0
    norms: int = 0
    passes: int = 0
    pass_norms: int = 0
    """These five are `Rows`; they stand behind each other as there."""
    column_values: int = 0
    column_exponents: int = 0
    column_norms: int = 0
    """`Columns`, from the term of column 0 that has offset 0 on; without norms they are not packed."""
    offsets: int = 0
    row_start: int = 0
    row_starts: int = 0
    column_start: int = 0
    column_starts: int = 0
    """`Start`, each with the number of values."""
    raw: int = 0
    overflowed: int = 0
    raw_pitch: int = 0
    """Where not 0, sums (int32) and the sign of their overflow (int8) go there, so many elements from row to row."""
    out: int = 0
    channels: int = 0
    plane: int = 0
    line: int = 0
    pitch: int = 1
    width: int = 1
    height: int = 1
    """Where halfwords go else: `channels` planes that are `plane` bytes apart. Column j is place j % pitch of row
    j // pitch; `height` rows of `width`, `line` bytes apart."""
    scale: int = 0
    """The bits of a float64: what a sum is multiplied by."""
    relu: int = 0
    table: int = 0
    table_size: int = 0
    """Then ReLU, then the table of 65536 results (uint16) if it has a size, or of the largest result."""
    rows_in_room: int = 0
    columns_in_room: int = 0
    out_in_room: int = 0
    """1 where the addresses of rows, columns and `out` are counted from the room that a job gets in each run."""


class _At(NamedTuple):
    """Addresses of the operands and of a thread's memory, and what a tile is."""

    kernels: int
    rows: int
    columns: int
    values: int
    exponents: int
    exponent_pitch: int
    norms: int
    segments: int
    depth: int
    column_values: int
    column_exponents: int
    column_norms: int
    offsets: int
    sums: int
    starts: int
    bounds: int
    limits: int
    have_limits: int
    every: int
    packed: int
    packed_norms: int
    least: int
    plain: int
    tested: int
    wide_rows: int
    wide_limits: int
    wide_columns: int
    met: int
    halves: int
    end: int


(
    KERNELS, TILE_ROWS, TILE_COLUMNS, TILE_PANELS, TILE_ACROSS, PANELS, TERMS, EXTENT,
    VALUES, EXPONENTS, NORMS, PASSES, PASS_NORMS, COLUMN_VALUES, COLUMN_EXPONENTS, COLUMN_NORMS, OFFSETS,
    ROW_START, ROW_STARTS, COLUMN_START, COLUMN_STARTS, RAW, OVERFLOWED, RAW_PITCH,
    OUT, CHANNELS, PLANE, LINE, PITCH, WIDTH, HEIGHT, SCALE, RELU, TABLE, TABLE_SIZE,
    ROWS_IN_ROOM, COLUMNS_IN_ROOM, OUT_IN_ROOM,
) = range(len(ProductRecord._fields))  # fmt: skip
"""Places in a `Record`."""


@compiled(inline="always")
def _up(size):
    """The next multiple of a cache line."""
    return (size + 63) & -64


@compiled(inner=True)
def _places(n, room, memory):
    """Addresses of the operands, and the use of a thread's memory; it takes `end` - memory bytes."""
    rows, columns, panels = n[TILE_ROWS], n[TILE_COLUMNS], n[TILE_PANELS]
    tile, in_room = rows * columns, room * n[ROWS_IN_ROOM]
    sums = _up(memory)
    starts = sums + _up(4 * panels * n[TILE_ACROSS] * tile)
    bounds = starts + _up(4 * panels * tile)
    limits = bounds + _up(8 * panels * n[TILE_ACROSS])
    have_limits = limits + _up(4 * panels * DEPTH * rows)
    every = have_limits + _up(panels)
    packed = every + _up(4 * DEPTH)
    packed_norms = packed + _up(4 * DEPTH * columns)
    least = packed_norms + _up(4 * (DEPTH // SEGMENT))
    plain = least + _up(DEPTH + 16)
    tested = plain + _up(4 * (DEPTH + 16))
    wide_rows = tested + _up(4 * (DEPTH + 16))
    wide_limits = wide_rows + _up(8 * DEPTH * rows)
    wide_columns = wide_limits + _up(8 * DEPTH * rows)
    met = wide_columns + _up(8 * DEPTH * columns)
    halves = met + _up(4 * panels * n[TILE_ACROSS] * tile)
    return _At(
        n[KERNELS],
        rows,
        columns,
        n[VALUES] + in_room,
        n[EXPONENTS] + in_room,
        n[TERMS] + EXTRA,
        n[NORMS] + in_room,
        -(-n[TERMS] // SEGMENT),
        n[TERMS],
        n[COLUMN_VALUES] + room * n[COLUMNS_IN_ROOM],
        n[COLUMN_EXPONENTS] + room * n[COLUMNS_IN_ROOM],
        n[COLUMN_NORMS] + room * n[COLUMNS_IN_ROOM] if n[COLUMN_NORMS] else np.int64(0),
        n[OFFSETS],
        sums,
        starts,
        bounds,
        limits,
        have_limits,
        every,
        packed,
        packed_norms,
        least,
        plain,
        tested,
        wide_rows,
        wide_limits,
        wide_columns,
        met,
        halves,
        halves + _up(2 * tile),
    )
