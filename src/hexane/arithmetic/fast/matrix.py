"""Products ready to run: operands packed once, blocks shared between threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hexane.arithmetic.elementwise import whole_function
from hexane.arithmetic.fast import packing, product
from hexane.arithmetic.fast.product import Columns, Rows, Start, Target, Terms, Tiles
from hexane.arithmetic.fast.targets import Kernels
from hexane.arithmetic.fast.vector_parts import ALL_ZERO, DEPTH, SEGMENT
from hexane.arithmetic.fast.workers import share
from hexane.arithmetic.fast.workspace import Workspace
from hexane.arithmetic.hypotheses import chosen
from hexane.arithmetic.multiply import Activation

BLOCK_ROWS, BLOCK_COLUMNS = 240, 256
"""A block's sums, thresholds and packed rows stay in the second-level cache."""

_NO_RAW = np.empty((0, 0), np.int32)
_NO_OVERFLOW = np.empty((0, 0), np.int8)
_NO_OUT = np.empty((0, 0), np.uint16)
_NO_TABLE = np.empty(0, np.uint16)
NO_START = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Finish:
    """What follows the sum, for whole arrays: scale, ReLU, and a table's 65536 results or none."""

    scale: float = 1.0
    relu: bool = False
    table: np.ndarray | None = None


def pack_rows(x: np.ndarray, kernels: Kernels, space: Workspace) -> Rows:
    """Halfwords (M, K) as the broadcast operand."""
    x = np.ascontiguousarray(x)
    m, depth = x.shape
    rows = kernels.shape.rows
    panels = -(-m // rows)
    values = space.empty((panels, depth, rows), np.float32)
    exponents = space.empty((panels, depth + 16), np.uint8)
    norms = np.empty((panels, -(-depth // SEGMENT)), np.float32)
    passes = np.empty((panels, -(-depth // DEPTH)), np.uint8)
    pass_norms = np.empty(passes.shape, np.float32)
    grain = max(1, min(-(-panels // 8), (1 << 18) // (depth * rows) + 1))
    share(
        lambda first, last: packing.pack_rows(
            kernels.addresses, x, first, last, values, exponents, norms, passes, pass_norms
        ),
        panels,
        grain,
    )
    return Rows(values, exponents, norms, passes, pass_norms)


def pitch_of(width: int) -> int:
    """A row pitch in elements that spreads rows over all cache sets: an odd number of cache lines."""
    lines = -(-width // 16)
    return 16 * (lines | 1)


def decode_matrix(x: np.ndarray, kernels: Kernels, space: Workspace) -> tuple[Columns, int]:
    """Halfwords (K, N) as the vector operand, and its row pitch; for tiles that start at multiples of their width."""
    height, width = x.shape
    pitch, tile = pitch_of(width), kernels.shape.columns
    values = space.empty(height * pitch + tile, np.int32)
    exponents = space.empty(height * pitch + tile, np.uint8)
    if pitch > width:
        values[: height * pitch].reshape(height, pitch)[:, width:] = 0
    values[height * pitch :] = 0
    planes = np.ascontiguousarray(x)[:, None, :]
    share(
        lambda first, last: packing.decode_planes(
            kernels.addresses, planes, first, last, 0, pitch, width, True, values, exponents
        ),
        height,
        max(1, (1 << 17) // width),
    )
    return Columns(values.view(np.float32), exponents), pitch


def empty_columns(size: int, kernels: Kernels, space: Workspace) -> Columns:
    """Room for the planes of an image, all zero; fill it with `decode_planes`, then call `finish_columns`."""
    size += kernels.shape.columns
    return Columns(space.full(size, 0, np.float32), space.full(size, ALL_ZERO, np.uint8))


def decode_planes(x: np.ndarray, columns: Columns, base: int, plane: int, pitch: int, kernels: Kernels) -> None:
    """Put halfwords (P, H, W) into the vector operand: x[p, y, j] goes to base + p * plane + y * pitch + j."""
    source = np.ascontiguousarray(x)
    values, exponents = columns.values.view(np.int32), columns.exponents
    share(
        lambda first, last: packing.decode_planes(
            kernels.addresses, source, first, last, base, plane, pitch, False, values, exponents
        ),
        source.shape[0],
        max(1, (1 << 16) // (source.shape[1] * source.shape[2])),
    )


def finish_columns(columns: Columns, kernels: Kernels) -> None:
    """Make every exponent the least within a tile's width, wherever a tile starts."""
    shape = kernels.shape
    packing.window_minimum(kernels.addresses, columns.exponents, shape.columns, 4 * shape.lanes)


def multiply(
    rows: Rows,
    columns: Columns,
    terms: Terms,
    kernels: Kernels,
    *,
    row_start: np.ndarray | None = None,
    column_start: np.ndarray = NO_START,
    out: np.ndarray = _NO_OUT,
    window: tuple[int, int, int] = (1, 1, 1),
    finish: Finish = Finish(),
    raw: np.ndarray = _NO_RAW,
    raw_overflow: np.ndarray = _NO_OVERFLOW,
) -> None:
    """Run all blocks of one product: writes `out`, by `window` and `finish`, or `raw` and `raw_overflow`.

    See `product.Target`; window is (pitch, width, height).
    """
    shape = kernels.shape
    tiles = Tiles(shape.rows, shape.columns, BLOCK_ROWS // shape.rows, BLOCK_COLUMNS // shape.columns)
    blocks = -(-rows.values.shape[0] // tiles.panels) * -(-terms.extent // (tiles.across * tiles.columns))
    height = raw.shape[0] if raw.size else out.shape[0]
    start = Start(np.zeros(height, np.int64) if row_start is None else row_start, column_start)
    table = _NO_TABLE if finish.table is None else finish.table
    target = Target(raw, raw_overflow, out, *window, finish.scale, finish.relu, table)

    def work(first: int, last: int) -> None:
        product.multiply(kernels.addresses, tiles, first, last, rows, columns, terms, start, target)

    share(work, blocks)


def finish_of(post_scale: float, activation: Activation) -> Finish | None:
    """The scale and activation as the kernels apply them, or None where only the plain statement can."""
    if chosen("post-scale") != "once" or chosen("table-input") != "rounded":
        return None
    if activation is None or isinstance(activation, str):
        return Finish(post_scale, activation == "relu")
    return Finish(post_scale, table=whole_function(activation.tobytes()))
