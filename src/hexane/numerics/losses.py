"""Losses of a sum of products on the engine: room in the accumulator, products that are dropped, table ends.

The accumulator holds numbers below 2^15 in magnitude, and a product whose operands' exponents add up to less than -16
is dropped (docs/reference/numerics.md 3.1, 3.3; docs/reference/limits.md 13).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf, log2
from typing import TYPE_CHECKING

import numpy as np

from hexane.arithmetic.counters import table_ends
from hexane.arithmetic.formats import decode_multiplier, halfwords
from hexane.errors import HexaneError
from hexane.graph.evaluate import Evaluation
from hexane.lowering.functions import FUNCTIONS, lookup_table

if TYPE_CHECKING:
    from hexane.graph import Op, Value

LIMIT = 2.0**15
"""Magnitude from which a sum is infinite."""
LOWEST_EXPONENT_SUM = -16
TARGET = 2.0**14
"""A suggested scaling leaves a factor of two between the largest possible partial sum and the limit."""
WORTH_SCALING = 1e-3
"""Share of dropped products from which a scaling is suggested."""
MOST_BITS = 14
"""The factor that takes a scaling back is an fp16 word of the task; 2^-14 is the smallest that is not subnormal."""


@dataclass(frozen=True)
class SumLosses:
    """One layer of sums.

    ``headroom_bits``: by how many factors of two the largest sum stays below the limit; ``worst_bits`` the same if
    all products of a sum had one sign, which bounds every partial sum in every order. ``dropped`` is the share of
    non-zero products that the multiplier drops. ``scale_bits``: the power of two by which to scale the weights.
    """

    headroom_bits: float
    worst_bits: float
    dropped: float
    scale_bits: int


def sum_losses(op: Op, x: np.ndarray, w: np.ndarray, sums: np.ndarray | None = None) -> SumLosses:
    """The losses of a ``conv``, ``matmul`` or ``linear`` for operands as the engine holds them.

    ``sums`` are the op's results in float32 where they are known already (bias included, which the accumulator holds).
    Products at padded borders count as if they were there, which changes the share of dropped ones by the border only.
    """
    largest = _peak(op, x, w) if sums is None else float(np.max(np.abs(sums), initial=0.0))
    worst = _peak(op, np.abs(x), np.abs(w))
    dropped = dropped_share(*by_term(op, x, w))
    return SumLosses(_bits(largest), _bits(worst), dropped, suggested(worst, dropped, w))


def suggested(worst: float, dropped: float, w: np.ndarray) -> int:
    """Bits to scale a layer's weights up (or down, when sums overflow); 0 when it is well as it is."""
    if worst >= LIMIT:
        return max(-MOST_BITS, -int(np.ceil(log2(worst / TARGET))) if np.isfinite(worst) else -MOST_BITS)
    if dropped < WORTH_SCALING or worst <= 0:
        return 0
    room = int(np.floor(log2(TARGET / worst)))
    top = float(np.max(np.abs(w.astype(np.float64)), initial=0.0))
    if top > 0:
        room = min(room, int(np.floor(log2(32768 / top))))
    return max(0, min(room, MOST_BITS))


def _peak(op: Op, x: np.ndarray, w: np.ndarray) -> float:
    """Largest magnitude of the op's sums in float32, the bias left out."""
    run = Evaluation()
    first, second = operands(op)
    run.environment[first] = x.astype(np.float32).reshape(first.shape)
    run.environment[second] = w.astype(np.float32).reshape(second.shape)
    bias = op.inputs.get("bias")
    if bias is not None and not isinstance(bias, tuple):
        run.environment[bias] = np.zeros(bias.shape, np.float32)
    with np.errstate(all="ignore"):
        (result,) = run.op(op)
    return float(np.max(np.abs(result), initial=0.0))


def operands(op: Op) -> tuple[Value, Value]:
    """The two factors of a sum of products."""
    return op.arg("x"), op.arg("y" if op.type == "matmul" else "weight")


def _bits(peak: float) -> float:
    if np.isnan(peak) or peak == inf:
        return -inf
    return log2(LIMIT / peak) if peak > 0 else inf


def by_term(op: Op, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Operands as (terms, elements): row t of the one meets row t of the other in every product."""
    if op.type == "conv":
        groups = op.arg("groups") or 1
        out, inner = w.shape[:2]
        rows = np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)
        each = w.reshape(groups, out // groups, inner, -1).transpose(0, 2, 1, 3).reshape(groups * inner, -1)
        return rows, each
    if op.type == "linear":
        return np.moveaxis(x, -1, 0).reshape(x.shape[-1], -1), np.moveaxis(w, -1, 0).reshape(w.shape[-1], -1)
    terms = x.swapaxes(-1, -2) if op.arg("transpose_x") else x  # (..., M, K)
    right = w.swapaxes(-1, -2) if op.arg("transpose_y") else w  # (..., K, N)
    return np.moveaxis(terms, -1, 0).reshape(terms.shape[-1], -1), np.moveaxis(right, -2, 0).reshape(
        right.shape[-2], -1
    )


def dropped_share(x: np.ndarray, w: np.ndarray) -> float:
    """Of the products of row t with row t, the share of non-zero ones whose exponents add up to less than -16."""
    counts = [_exponents(side) for side in (x, w)]
    total = float((counts[0].sum(1) * counts[1].sum(1)).sum())
    if not total:
        return 0.0
    below = np.cumsum(counts[1], axis=1)  # weights with an exponent index up to j
    lost = 0.0
    size = below.shape[1]
    for index in range(size):
        limit = LOWEST_EXPONENT_SUM - 1 - (index - 14) + 14
        if limit >= 0:
            lost += float((counts[0][:, index] * below[:, min(limit, size - 1)]).sum())
    return lost / total


def _exponents(values: np.ndarray) -> np.ndarray:
    """(rows, 31): how many non-zero elements of each row have exponent -14 .. 16."""
    rows = values.shape[0]
    index = _indices()[halfwords(np.ascontiguousarray(values, np.float16))]
    index += np.arange(0, 32 * rows, 32)[:, None]
    return np.bincount(index.ravel(), minlength=32 * rows).reshape(-1, 32)[:, :31].astype(np.float64)


@cache
def _indices() -> np.ndarray:
    """Of every halfword its exponent above -14, as the multiplier reads it; 31 for zero."""
    significand, exponent = decode_multiplier(np.arange(1 << 16, dtype=np.uint16))
    return np.where(significand == 0, 31, exponent + 14)


def table_end_share(op: Op, x: np.ndarray) -> float | None:
    """Of the inputs of a table function, the share at or beyond the table's ends; None for ops without a table."""
    function = FUNCTIONS.get(op.type)
    if function is None or not x.size:
        return None
    try:
        table = lookup_table(function.table)
    except HexaneError:
        return None
    scale = np.uint16(function.scale).view(np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (x.astype(np.float32) * np.float32(scale)).astype(np.float16)
    return table_ends(np.frombuffer(table, np.uint16), scaled) / x.size
