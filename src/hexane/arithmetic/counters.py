"""Counts of what the arithmetic lost: products rounded or dropped, table ends hit. For traces, not for speed."""

from __future__ import annotations

from collections.abc import Sequence
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
    taps = [
        (slice(ky, ky + (oh - 1) * sy + 1, sy), slice(kx, kx + (ow - 1) * sx + 1, sx))
        for ky in range(kh)
        for kx in range(kw)
    ]
    weights = halfwords(w).reshape(groups, -1, *np.shape(w)[1:]).swapaxes(1, 2).reshape(padded.shape[1], -1, kh * kw)
    weights = np.ascontiguousarray(np.moveaxis(weights, 2, 0))  # (taps, channels in, outputs of the group)
    rounded = dropped = 0
    for start in range(0, padded.shape[1], _CHANNELS):
        lost = _losses(padded[:, start : start + _CHANNELS], weights[:, start : start + _CHANNELS], taps)
        rounded, dropped = rounded + lost[0], dropped + lost[1]
    return rounded, dropped


_CHANNELS = 512  # counted at once: a table of some hundred numbers each
_PLACES = 41  # places of the last set bit: exponents -24 .. 16
_ZERO = 31 * _PLACES
"""The class of a zero, whose products are neither rounded nor dropped."""


@cache
def _classes() -> np.ndarray:
    """(exponent, place of the last set bit) of every halfword as one number."""
    significand, exponent = decode_multiplier(np.arange(1 << 16, dtype=np.uint16))
    magnitude = np.abs(significand)
    trailing = np.frexp((magnitude & -magnitude).astype(np.float64))[1] - 1
    classes = (exponent + 14) * _PLACES + exponent - 10 + trailing + 24
    return np.where(magnitude > 0, classes, _ZERO).astype(np.int16)


def _losses(inputs: np.ndarray, weights: np.ndarray, taps: Sequence[tuple[slice, slice]]) -> tuple[int, int]:
    """Products rounded and dropped of some channels: inputs (N, C, H, W), weights (taps, C, O)."""
    classes, partners = _classes()[inputs], _classes()[weights]
    low = int(classes.min()) // _PLACES
    exponents = int(classes.max(where=classes < _ZERO, initial=low * _PLACES)) // _PLACES - low + 1
    channels = inputs.shape[1]
    size = exponents * _PLACES
    channel = np.arange(channels)[:, None]
    at = channel[..., None] * size + (classes - np.int16(low * _PLACES))
    at[classes == _ZERO] = channels * size
    # Of the inputs of exponent 'kept' and more, all products with a weight are kept; those whose last bit lies below
    # 'exact' are rounded.
    places = np.clip(12 - partners // _PLACES - low, 0, exponents)
    exact = np.clip(32 - partners % _PLACES, 0, _PLACES)
    zero = partners == _ZERO
    places[zero], exact[zero] = 0, 0
    among_low = channel * (exponents + 1) + places
    among_high = among_low * (_PLACES + 1) + exact
    below = np.zeros((channels, exponents + 1), np.int64)
    above = np.zeros((channels, exponents + 1, _PLACES + 1), np.int64)
    rounded = dropped = 0
    for tap, one, other in zip(taps, among_low, among_high):
        count = np.bincount(at[:, :, *tap].ravel(), minlength=channels * size + 1)[:-1]
        count = count.reshape(channels, exponents, _PLACES)
        np.cumsum(count, 2, out=above[:, :-1, 1:])
        np.cumsum(above[:, :-1, _PLACES], 1, out=below[:, 1:])
        for exponent in range(exponents - 2, -1, -1):
            above[:, exponent] += above[:, exponent + 1]
        dropped += int(below.take(one).sum())
        rounded += int(above.take(other).sum())
    return rounded, dropped
