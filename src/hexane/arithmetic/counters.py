"""How often the arithmetic lost something: products rounded or dropped, table ends hit. For traces, not for speed."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hexane.arithmetic.formats import decode_multiplier, halfwords, planar_value
from hexane.arithmetic.tables import HIGH_LIMIT, LOW_LIMIT, MODE, USE_MAGNITUDE, table_halfwords


def table_ends(table: ArrayLike, x: ArrayLike) -> int:
    """How many inputs lie at or beyond a limit of the table, where it returns a constant.

    Source: docs/reference/numerics.md 8.
    """
    bits = table_halfwords(table)
    low, high = bits.view(np.float16)[[LOW_LIMIT, HIGH_LIMIT]].astype(np.float64)
    v = planar_value(x)
    if int(bits[MODE]) & USE_MAGNITUDE:
        v = np.abs(v)
    return int(np.count_nonzero((v <= low) | (v >= high)))


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
    bit. So operands are counted by these two, tap by tap, and no product is formed.
    """
    inputs, weights = _classes(halfwords(x)), _classes(halfwords(w))
    (sy, sx), (top, left), (kh, kw) = strides, pads, weights.shape[2:]
    oh, ow = output or ((inputs.shape[2] - kh) // sy + 1, (inputs.shape[3] - kw) // sx + 1)
    rows, columns = (oh - 1) * sy + kh, (ow - 1) * sx + kw
    padded = np.full((*inputs.shape[:2], max(rows, top + inputs.shape[2]), max(columns, left + inputs.shape[3])), ZERO)
    padded[:, :, top : top + inputs.shape[2], left : left + inputs.shape[3]] = inputs
    each = weights.shape[0] // groups
    rounded = dropped = 0
    for channel in range(inputs.shape[1]):
        group, inner = divmod(channel, weights.shape[1])
        for ky in range(kh):
            for kx in range(kw):
                tap = padded[:, channel, ky : ky + (oh - 1) * sy + 1 : sy, kx : kx + (ow - 1) * sx + 1 : sx]
                partners = weights[group * each : (group + 1) * each, inner, ky, kx]
                lost = _losses(_count(tap), _count(partners))
                rounded, dropped = rounded + lost[0], dropped + lost[1]
    return rounded, dropped


_PLACES = 41  # exponents of the last set bit: -24 .. 16
ZERO = 31 * _PLACES
"""The class of a zero, whose products are neither rounded nor dropped."""


def _classes(bits: np.ndarray) -> np.ndarray:
    """(exponent, last set bit) of every halfword as one number."""
    significand, exponent = decode_multiplier(bits)
    magnitude = np.abs(significand)
    trailing = np.frexp((magnitude & -magnitude).astype(np.float64))[1] - 1
    return np.where(magnitude > 0, (exponent + 14) * _PLACES + exponent - 10 + trailing + 24, ZERO)


def _count(classes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Exponent, place of the last bit and number of the classes that occur, zeros left out."""
    count = np.bincount(classes.ravel(), minlength=ZERO + 1)[:ZERO]
    there = np.flatnonzero(count)
    return there // _PLACES - 14, there % _PLACES - 24, count[there]


def _losses(left: tuple[np.ndarray, ...], right: tuple[np.ndarray, ...]) -> tuple[int, int]:
    (ex, lx, nx), (ew, lw, nw) = left, right
    count = nx[:, None] * nw[None, :]
    lost = ex[:, None] + ew[None, :] <= -17
    return int(count[~lost & (lx[:, None] + lw[None, :] < -16)].sum()), int(count[lost].sum())
