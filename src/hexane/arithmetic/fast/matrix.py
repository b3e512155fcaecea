"""Products ready to run: operands packed once, blocks shared between threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hexane.arithmetic.elementwise import whole_function
from hexane.arithmetic.fast import packing, product
from hexane.arithmetic.fast.elementwise import NO_TABLE
from hexane.arithmetic.fast.jobs import address_of, double_number, table_numbers
from hexane.arithmetic.fast.product_record import EXTRA, Columns, PackedRows, ProductRecord, Terms, Tiles
from hexane.arithmetic.fast.targets import VectorKernels
from hexane.arithmetic.fast.vector_parts import ALL_ZERO, DEPTH, SEGMENT
from hexane.arithmetic.fast.workers import pieces_of, share
from hexane.arithmetic.fast.workspace import Room
from hexane.arithmetic.hypotheses import chosen
from hexane.arithmetic.multiply import Activation
from hexane.rounding import ceil_div

BLOCK_ROWS, BLOCK_COLUMNS = 240, 256
"""A block's sums, thresholds and packed rows stay in the second-level cache."""

COLUMNS_OVER_LIMITS = 3
"""How long it takes to bring a tile's columns into the cache, over the time that a panel's thresholds take."""

PRODUCTS = 1 << 22
"""Products of a piece of work, to pay for waking a thread."""

NO_START = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Finish:
    """Steps behind the sum, for whole arrays: scale, ReLU, and a table's 65536 results or none.

    A table of one value is what nothing may exceed, behind a ReLU.
    """

    scale: float = 1.0
    relu: bool = False
    table: np.ndarray | None = None

    @property
    def parts(self) -> tuple[float, bool, np.ndarray]:
        """The same as compiled code takes it: without a table, an empty one."""
        return self.scale, self.relu, NO_TABLE if self.table is None else self.table


def pack_rows(x: np.ndarray, kernels: VectorKernels, space: Room) -> PackedRows:
    """Halfwords (M, K) as the broadcast operand."""
    x = np.ascontiguousarray(x)
    m, depth = x.shape
    rows = kernels.shape.rows
    panels = ceil_div(m, rows)
    values = space.empty((panels, depth, rows), np.float32)
    exponents = space.empty((panels, depth + EXTRA), np.uint8)
    norms = np.empty((panels, ceil_div(depth, SEGMENT)), np.float32)
    passes = np.empty((panels, ceil_div(depth, DEPTH)), np.uint8)
    pass_norms = np.empty(passes.shape, np.float32)
    grain = max(1, min(ceil_div(panels, 8), (1 << 18) // (depth * rows) + 1))
    packed = PackedRows(values, exponents, norms, passes, pass_norms)
    numbers = packing.address(), address_of(kernels.addresses), address_of(x), m, depth, rows
    where = tuple(map(address_of, packed))

    def work(first: int, last: int, _workspace: object = (x, packed)) -> None:
        packing.run(*numbers, first, last, *where)

    share(work, panels, grain)
    return packed


def pack_columns(x: np.ndarray, planes: np.ndarray, kernels: VectorKernels, space: Room) -> tuple[Columns, Terms]:
    """Halfwords (P, H, W) as the vector operand, packed: term k is plane planes[k]."""
    source, columns, depth = _lines(x), kernels.shape.columns, planes.size
    extent = x.shape[1] * x.shape[2]
    tiles, segments = ceil_div(extent, columns), ceil_div(depth, SEGMENT)
    values = space.empty((tiles, depth, columns), np.float32)
    exponents = space.empty((tiles, depth + EXTRA), np.uint8)
    packed = Columns(values, exponents, np.empty((tiles, segments), np.float32))
    offsets = planes * (source.strides[0] // source.itemsize)
    width = extent if x.shape[1] == 1 else x.shape[2]
    lines = packing.Lines(address_of(source), address_of(offsets), depth, extent, width, source.strides[1])
    at = [address_of(part) for part in packed]
    into = packing.PackedTiles(at[0], at[1], at[2], columns, segments)

    def work(first: int, last: int, _workspace: object = (source, offsets, packed)) -> None:
        packing.run_tiles(address_of(kernels.addresses), lines, into, first, last)

    share(work, tiles, max(1, (1 << 18) // (depth * columns)))
    return packed, Terms(NO_START, 0, extent)


def _lines(x: np.ndarray) -> np.ndarray:
    """The array, or a copy if its lines have gaps."""
    return x if x.strides[-1] == x.itemsize or x.shape[-1] == 1 else np.ascontiguousarray(x)


def empty_columns(size: int, kernels: VectorKernels, space: Room) -> Columns:
    """Room for the planes of an image, all zero; fill it with `decode_planes`, then call `finish_columns`."""
    size += kernels.shape.columns
    return Columns(space.full(size, 0, np.float32), space.full(size, ALL_ZERO, np.uint8))


def decode_planes(x: np.ndarray, columns: Columns, base: int, plane: int, pitch: int, kernels: VectorKernels) -> None:
    """Put halfwords (P, H, W) into the vector operand: x[p, y, j] goes to base + p * plane + y * pitch + j."""
    source = _lines(x)
    values, exponents = columns.values.view(np.int32), columns.exponents
    share(
        lambda first, last: packing.decode_planes(
            kernels.addresses, source, first, last, base, plane, pitch, values, exponents
        ),
        source.shape[0],
        max(1, (1 << 18) // (source.shape[1] * source.shape[2])),
    )


def finish_columns(columns: Columns, kernels: VectorKernels) -> None:
    """Make every exponent the least within a tile's width, wherever a tile starts."""
    packing.window_minimum(columns.exponents, kernels.shape.columns)


Place = tuple[int, ...]
"""Where halfwords go, as `PLACE` names it in a `product.Record`."""

PLACE = ("out", "channels", "plane", "line", "pitch", "width", "height")


def place_of(out: np.ndarray, window: tuple[int, int, int]) -> Place:
    """An array as the place of a result: axes (channel, height, width), uint16, lines without gaps.

    window: pitch, width and height of the outputs among the columns.
    """
    return (out.__array_interface__["data"][0], out.shape[0], *out.strides[:2], *window)


def blocks_of(kernels: VectorKernels, panels: int, extent: int, pieces: int) -> tuple[Tiles, int]:
    """The blocks of a product and their number, for work in so many pieces.

    Every block brings its columns into the cache, for all of its panels, and makes its panels' thresholds, for all of
    its tiles across.
    """
    shape, across = kernels.shape, ceil_div(extent, kernels.shape.columns)
    most = min(BLOCK_ROWS // shape.rows, panels)
    widest = min(BLOCK_COLUMNS // shape.columns, across)
    least = min(widest, ceil_div(across, pieces))
    enough = [least, *(a for a in range(least + 1, widest + 1) if panels * ceil_div(across, a) >= pieces)]
    blocks = [(min(most, max(1, panels * ceil_div(across, a) // pieces)), a) for a in enough]
    high, wide = min(blocks, key=lambda block: COLUMNS_OVER_LIMITS / block[0] + 1 / block[1])
    return Tiles(shape.rows, shape.columns, high, wide), ceil_div(panels, high) * ceil_div(across, wide)


class MatrixProduct:
    """A product of which all is known but the vector operand and the place of the result."""

    def __init__(
        self,
        rows: PackedRows,
        terms: Terms,
        kernels: VectorKernels,
        *,
        row_start: np.ndarray = NO_START,
        column_start: np.ndarray = NO_START,
        finish: Finish = Finish(),
    ) -> None:
        pieces = pieces_of(rows.values.size * terms.extent, PRODUCTS)
        tiles, self.blocks = blocks_of(kernels, rows.values.shape[0], terms.extent, pieces)
        self.grain = ceil_div(self.blocks, pieces)
        self._base = terms.base
        self._record = ProductRecord(
            **numbers_of(kernels, tiles, finish),
            **rows_numbers(rows),
            **start_numbers(row_start, column_start),
            offsets=address_of(terms.offsets),
            extent=terms.extent,
        )
        self._held = kernels, rows, terms, row_start, column_start, finish.parts[2]

    def into(self, columns: Columns, place: Place, out: np.ndarray) -> None:
        """Results as halfwords to a place in an array, which is held until the last thread has written."""
        self._run(columns, dict(zip(PLACE, place)), out)

    def sums(self, columns: Columns, raw: np.ndarray, overflow: np.ndarray) -> None:
        """Sums (int32) and the sign of their overflow (int8), both (M, >= extent)."""
        target = {"raw": address_of(raw), "overflowed": address_of(overflow), "raw_pitch": raw.shape[1]}
        self._run(columns, {**target, "channels": raw.shape[0]}, (raw, overflow))

    def _run(self, columns: Columns, target: dict[str, int], out: object) -> None:
        numbers = self._record._replace(**columns_numbers(columns, self._base), **target)
        record, body = np.array(numbers, np.int64), product.address()

        def work(first: int, last: int, _workspace: object = (out, columns, self._held)) -> None:
            product.run(body, address_of(record), first, last)

        share(work, self.blocks, self.grain)


def numbers_of(kernels: VectorKernels, tiles: Tiles, finish: Finish) -> dict[str, int]:
    """Fields of a `product.Record`: the vector code, the blocks, and what follows a sum."""
    where, size = table_numbers(finish.parts[2])
    return {
        "kernels": address_of(kernels.addresses),
        "tile_rows": tiles.rows,
        "tile_columns": tiles.columns,
        "tile_panels": tiles.panels,
        "tile_across": tiles.across,
        "scale": double_number(finish.scale),
        "relu": finish.relu,
        "table": where,
        "table_size": size,
    }


def rows_numbers(rows: PackedRows) -> dict[str, int]:
    """Fields of a `product.Record`: the broadcast operand."""
    return {
        **dict(zip(PackedRows._fields, map(address_of, rows))),
        "panels": len(rows.values),
        "depth": rows.values.shape[1],
    }


def columns_numbers(columns: Columns, base: int = 0) -> dict[str, int]:
    """Fields of a `product.Record`: the vector operand, from column 0 on."""
    values, exponents, norms = map(address_of, columns)
    return {
        "column_values": values + 4 * base,
        "column_exponents": exponents + base,
        "column_norms": norms if columns.norms.size else 0,
    }


def panel_bytes(depth: int, rows: int) -> tuple[int, ...]:
    """Bytes of a panel of the broadcast operand, in the order of `Rows`."""
    segments, passes = ceil_div(depth, SEGMENT), ceil_div(depth, DEPTH)
    return 4 * depth * rows, depth + EXTRA, 4 * segments, passes, 4 * passes


def places_of(each: Sequence[int], count: int, begin: int = 0) -> tuple[tuple[int, ...], int]:
    """Offsets of arrays of ``count`` times so many bytes, one after the other at cache lines, and their common end."""
    places = []
    for size in each:
        places.append(begin)
        begin += -(-count * size // 64) * 64
    return tuple(places), begin


def start_numbers(rows: np.ndarray, columns: np.ndarray) -> dict[str, int]:
    """Fields of a `product.Record`: the start values."""
    return {
        "row_start": address_of(rows),
        "row_starts": rows.size,
        "column_start": address_of(columns),
        "column_starts": columns.size,
    }


def capped(finish: Finish) -> Finish:
    """The same without a look at a table, where that is a ReLU with an upper bound."""
    if finish.table is None or finish.table.size == 1:
        return finish
    largest = finish.table[INFINITY]
    positive, negative = finish.table[: INFINITY + 1], finish.table[SIGN : SIGN + INFINITY + 1]
    if negative.any() or not np.array_equal(positive, np.minimum(np.arange(INFINITY + 1), largest)):
        return finish
    return replace(finish, relu=True, table=finish.table[INFINITY : INFINITY + 1])


INFINITY, SIGN = 0x7C00, 0x8000


def finish_of(post_scale: float, activation: Activation) -> Finish | None:
    """The scale and activation as the kernels apply them, or None where only the plain statement can."""
    if chosen("post-scale") != "once" or chosen("table-input") != "rounded":
        return None
    if activation is None or isinstance(activation, str):
        return Finish(post_scale, activation == "relu")
    return Finish(post_scale, table=whole_function(activation.tobytes()))
