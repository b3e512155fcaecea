"""Counts of the products that the multiplier rounds or drops, compiled: none of them is formed."""

from __future__ import annotations

import numpy as np

from hexane.arithmetic.fast.compiled import compiled

EXPONENTS, LENGTHS = 31, 16
"""Exponents -14 .. 16; zeros behind a significand's last set bit: 10 at most, so the two are shifted into one class."""

ZERO = EXPONENTS * LENGTHS
"""The class of a zero, whose products are neither rounded nor dropped."""

KEPT, EXACT = 12, 32
"""The exponents of a product, from 0 on, add up to this where it is not dropped; with the zeros of both they add up to
this or more where it is not rounded (docs/reference/numerics.md 3.1)."""


@compiled(inner=True)
def _column(image, top, column, rows, step, count, by):
    """Add `by` to the count of the class of every input of one column of a window."""
    for i in range(image.shape[0]):
        for y in range(rows):
            count[image[i, top + y * step, column]] += by


@compiled(inner=True)
def _sum_up(count, low, span, above):
    """above[e, q]: inputs of exponent low + e or more that have their last bit at a place below low + q."""
    above[span, : span + 11] = 0
    for e in range(span - 1, -1, -1):
        running = 0
        for q in range(span + 11):
            zeros = q - 1 - e
            if 0 <= zeros <= 10:
                running += count[(low + e) * LENGTHS + zeros]
            above[e, q] = above[e + 1, q] + running


@compiled()
def losses(classes, x, w, kernel_width, output, strides):
    """Products rounded and dropped of inputs (N, C, H, W) with weights (taps, C, O), halfwords without a sign.

    classes: of every such halfword, its exponent and the zeros behind its last set bit, or `ZERO`.
    """
    (height, width), (sy, sx) = output, strides
    image = np.empty((x.shape[0], x.shape[2], x.shape[3]), np.int64)
    count = np.zeros(ZERO + 1, np.int64)
    above = np.zeros((EXPONENTS + 1, EXPONENTS + 11), np.int64)
    rounded, dropped = 0, 0
    for c in range(x.shape[1]):
        low, high = EXPONENTS, -1
        for i in range(x.shape[0]):
            for y in range(x.shape[2]):
                for j in range(x.shape[3]):
                    value = np.int64(classes[x[i, c, y, j]])
                    image[i, y, j] = value
                    if value != ZERO:
                        low, high = min(low, value // LENGTHS), max(high, value // LENGTHS)
        span = high - low + 1
        for tap in range(w.shape[0] if high >= 0 else 0):
            top, left = tap // kernel_width, tap % kernel_width
            if left > 0 and sx == 1:  # the window before, a column further
                _column(image, top, left - 1, height, sy, count, -1)
                _column(image, top, left - 1 + width, height, sy, count, 1)
            else:
                count[:] = 0
                for j in range(width):
                    _column(image, top, left + j * sx, height, sy, count, 1)
            _sum_up(count, low, span, above)
            for o in range(w.shape[2]):
                value = np.int64(classes[w[tap, c, o]])
                if value != ZERO:
                    exponent, zeros = value // LENGTHS, value % LENGTHS
                    first = min(max(KEPT - exponent - low, 0), span)
                    place = min(max(EXACT - exponent - zeros - low, 0), span + 10)
                    dropped += above[0, span + 10] - above[first, span + 10]
                    rounded += above[first, place]
    return rounded, dropped
