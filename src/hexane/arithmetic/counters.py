"""Counts of what the arithmetic lost: products rounded or dropped, table ends hit. For traces, not for speed."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from hexane.arithmetic.formats import decode_multiplier, halfwords, planar_value
from hexane.arithmetic.tables import HIGH_LIMIT, LOW_LIMIT, MODE, USE_MAGNITUDE, table_halfwords


def table_ends(table: ArrayLike, x: ArrayLike) -> int:
    """Number of inputs at or beyond a limit of the table, where it returns a constant.

    Source: docs/reference/numerics.md 8.
    """
    bits = table_halfwords(table)
    low, high = bits.view(np.float16)[[LOW_LIMIT, HIGH_LIMIT]].astype(np.float64)
    v = planar_value(x)
    if int(bits[MODE]) & USE_MAGNITUDE:
        v = np.abs(v)
    return int(np.count_nonzero((v <= low) | (v >= high)))


def may_overflow(x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, scale: float) -> bool:
    """False where no sum of a convolution can become infinite, all of its products of one sign, of the largest input.

    ``x`` and ``w`` (O, ...) as for `product_losses`; ``bias`` float16 (O,) or None; ``scale``: the factor behind it.
    """
    top = int((halfwords(x) & 0x7FFF).max(initial=0))
    if top >= 0x7C00:  # exponent 31, which the multiplier reads as a number
        return True
    sums = np.abs(w.reshape(len(w), -1).astype(np.float32)).sum(1) * np.uint16(top).view(np.float16).astype(np.float32)
    peak = float(np.max(sums if bias is None else sums + np.abs(bias.astype(np.float32)), initial=0.0))
    return not peak * max(1.0, abs(scale)) < SAFE


SAFE = 32000.0
"""Below 2^15 by more than products and sums are rounded."""


def product_losses(
    x: ArrayLike,
    w: ArrayLike,
    *,
    strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int] = (0, 0),
    output: tuple[int, int] | None = None,
    groups: int = 1,
) -> tuple[int, int]:
    """Of the products of a convolution: how many are rounded, and how many dropped (docs/reference/numerics.md 3.1).

    Parameters
    ----------
    x : float16 (N, C, H, W).
    w : float16 (O, C / groups, KH, KW).
    pads : rows above, columns to the left.
    output : height and width of the result; by default those of a "valid" convolution.

    Whether a product is rounded follows from two numbers of each operand, its exponent and the place of its last set
    bit. So the inputs that meet a weight are counted by these two, tap by tap, and no product is formed.
    """
    (sy, sx), (top, left), (kh, kw) = strides, pads, np.shape(w)[2:]
    height, width = np.shape(x)[2:]
    oh, ow = output or ((height - kh) // sy + 1, (width - kw) // sx + 1)
    below = max(0, (oh - 1) * sy + kh - top - height)
    right = max(0, (ow - 1) * sx + kw - left - width)
    padded = halfwords(x)
    if top or left or below or right:
        padded = np.pad(padded, ((0, 0), (0, 0), (top, below), (left, right)))
    weights = halfwords(w).reshape(groups, -1, *np.shape(w)[1:]).swapaxes(1, 2).reshape(padded.shape[1], -1, kh * kw)
    weights = np.moveaxis(weights, 2, 0)  # (taps, channels in, outputs of the group)
    operands = (np.ascontiguousarray(side & 0x7FFF) for side in (padded, weights))
    from hexane.arithmetic.fast.counters import losses

    rounded, dropped = losses(_classes(), *operands, kw, (oh, ow), (sy, sx))
    return int(rounded), int(dropped)


@cache
def _classes() -> np.ndarray:
    """Exponent and zeros behind the last set bit of every magnitude, as `fast.counters.losses` takes them."""
    from hexane.arithmetic.fast.counters import LENGTHS, ZERO

    significand, exponent = decode_multiplier(np.arange(1 << 15, dtype=np.uint16))
    zeros = np.frexp((significand & -significand).astype(np.float64))[1] - 1
    return np.where(significand > 0, (exponent + 14) * LENGTHS + zeros, ZERO).astype(np.int16)
