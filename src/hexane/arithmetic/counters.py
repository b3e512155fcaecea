"""How often the arithmetic lost something: products rounded or dropped, table ends hit. For traces, not for speed."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hexane.arithmetic.formats import decode_multiplier, halfwords, planar_value
from hexane.arithmetic.tables import HIGH_LIMIT, LOW_LIMIT, USE_MAGNITUDE, table_halfwords

LOWEST_BIT = -24
"""Exponent of the last place of the smallest subnormal."""


def table_ends(table: ArrayLike, x: ArrayLike) -> int:
    """How many inputs lie at or beyond a limit of the table, where it returns a constant (spec/numerics §8)."""
    bits = table_halfwords(table)
    low, high = bits.view(np.float16)[[LOW_LIMIT, HIGH_LIMIT]].astype(np.float64)
    v = planar_value(x)
    if int(bits[42]) & USE_MAGNITUDE:
        v = np.abs(v)
    return int(np.count_nonzero((v <= low) | (v >= high)))


def product_losses(x: ArrayLike, w: ArrayLike) -> tuple[int, int]:
    """Of the products of x (M, K) and w (K, N): how many are rounded, and how many dropped (spec/numerics §3.1).

    Both follow from two numbers per operand: its exponent, and the place of its last set bit. So operands are counted
    by these two, k by k, instead of being multiplied.
    """
    rounded = dropped = 0
    for left, right in zip(_classes(halfwords(x).T), _classes(halfwords(w)), strict=True):
        (ex, lx, nx), (ew, lw, nw) = left, right
        count = nx[:, None] * nw[None, :]
        lost = ex[:, None] + ew[None, :] <= -17
        dropped += int(count[lost].sum())
        rounded += int(count[~lost & (lx[:, None] + lw[None, :] < -16)].sum())
    return rounded, dropped


def _classes(rows: np.ndarray):
    """For each row the distinct (exponent, last set bit) of its non-zero elements and how often they occur."""
    for row in rows:
        significand, exponent = decode_multiplier(row)
        magnitude = np.abs(significand)
        there = magnitude > 0
        m, e = magnitude[there], exponent[there]
        trailing = np.frexp((m & -m).astype(np.float64))[1] - 1
        last = e - 10 + trailing
        keys, count = np.unique((e + 64) * 256 + (last + 64), return_counts=True)
        yield keys // 256 - 64, keys % 256 - 64, count
