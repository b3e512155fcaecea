"""The largest element of each window of a map: exact, whatever the order.

As whole numbers halfwords are in the order of what they mean once the negative ones have all bits but the sign turned,
so a maximum of fp16 is one of int16, row by row and then column by column.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from hexane.arithmetic.fast.workers import share
from hexane.arithmetic.formats import canonical

MAGNITUDE = np.int16(0x7FFF)
LOWEST = np.int16(-0x8000)
"""Below every number: what lies outside the map never wins."""
GRAIN = 1 << 16
"""Elements of a piece of work."""

Pair = tuple[int, int]
"""Vertical, horizontal."""


def largest_in_windows(x: np.ndarray, window: Pair, strides: Pair, pads: Pair, out: Pair) -> np.ndarray:
    """fp16 maps (..., H, W) to (..., out): the largest element of each window, as the engine reads elements.

    ``pads`` are the rows above and the columns left of the map; below and to the right windows reach as far as ``out``
    says. Every window touches the map. NaN counts as +infinity, -0 as +0 (docs/reference/numerics.md 7.1).
    """
    maps = np.ascontiguousarray(x).reshape(-1, *x.shape[-2:])
    result = np.empty((len(maps), *out), np.int16)

    def some(first: int, last: int) -> None:
        _largest(maps[first:last], window, strides, pads, result[first:last])

    share(some, len(maps), max(1, GRAIN // max(1, maps[0].size)))
    return result.view(np.float16).reshape(*x.shape[:-2], *out)


@cache
def _ordered() -> np.ndarray:
    """The whole number of every halfword."""
    bits = canonical(np.arange(1 << 16, dtype=np.uint16).view(np.float16)).view(np.int16)
    return bits ^ (bits >> 15 & MAGNITUDE)


def _largest(maps: np.ndarray, window: Pair, strides: Pair, pads: Pair, out: np.ndarray) -> None:
    rows, columns = (
        max((n - 1) * step + k, pad + extent)
        for n, step, k, pad, extent in zip(out.shape[1:], strides, window, pads, maps.shape[1:])
    )
    padded = np.full((len(maps), rows, columns), LOWEST, np.int16)
    inside = padded[:, pads[0] : pads[0] + maps.shape[1], pads[1] : pads[1] + maps.shape[2]]
    np.take(_ordered(), maps.view(np.uint16), out=inside, mode="clip")
    tall = _along(padded, window[0], strides[0], out.shape[1])
    wide = _along(tall.swapaxes(1, 2), window[1], strides[1], out.shape[2]).swapaxes(1, 2)
    out[...] = wide ^ (wide >> 15 & MAGNITUDE)


def _along(x: np.ndarray, k: int, step: int, count: int) -> np.ndarray:
    """Maxima of ``k`` neighbours along axis 1."""
    largest = x[:, : (count - 1) * step + 1 : step].copy(order="K")
    for tap in range(1, k):
        np.maximum(largest, x[:, tap : tap + (count - 1) * step + 1 : step], out=largest)
    return largest
