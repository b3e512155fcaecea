"""Depthwise and narrow grouped convolutions: few terms per output, one output row at a time."""

from __future__ import annotations

import numpy as np
from numba import njit

from hexane.arithmetic import convolution as plain
from hexane.arithmetic import multiply
from hexane.arithmetic.fast.half import half_away, multiplier_double
from hexane.arithmetic.fast.matrix import Finish
from hexane.arithmetic.fast.workers import share
from hexane.arithmetic.formats import halfwords

MAGIC, LIMIT = 1.5 * 2.0**36, 32768.0

SAFE = 32700.0
"""Bound below which no sum can reach the limit, with room for rounding errors."""


@njit(nogil=True, cache=True)
def _add(total, values, step, weight, least):
    """One term of every output of a row: values[i * step] * weight, dropped below `least`."""
    if step == 1:
        for i in range(total.size):
            value = values[i]
            total[i] += value * weight if abs(value) >= least else 0.0
    else:
        for i in range(total.size):
            value = values[i * step]
            total[i] += value * weight if abs(value) >= least else 0.0


@njit(nogil=True, cache=True)
def _test(total, met):
    """Note the sums that are at or beyond the limit, the first time that they are."""
    for i in range(total.size):
        level = total[i] - MAGIC
        crossed = 1 if level >= LIMIT else (-1 if level <= -LIMIT else 0)
        met[i] = crossed if met[i] == 0 else met[i]


@njit(nogil=True, cache=True)
def _finish(total, met, scale, relu, table, out):
    for i in range(total.size):
        out[i] = half_away((total[i] - MAGIC) * scale)
    for i in range(total.size):
        if met[i] != 0:
            up = met[i] * scale
            out[i] = 0x7C00 if up > 0 else (0xFC00 if up < 0 else 0)
    if relu:
        for i in range(total.size):
            out[i] = out[i] if out[i] < 0x8000 else 0
    if table.size:
        for i in range(total.size):
            out[i] = table[out[i]]


@njit(nogil=True, cache=True)
def _convolve(x, w, start, geometry, first, last, scale, relu, table, out):
    """Output channels first .. last - 1 of every image: x (N, C, H, W), w (O, I, KH, KW) halfwords, out (N, O, OH, OW).

    Sums are float64, a magic number above zero, so that adding rounds a product to a unit (spec/numerics §11.3); terms
    in the order channel, row, column. The limit is tested after every term where the magnitudes could reach it.
    """
    sy, sx, dy, dx, left, top, per_group = geometry
    images, _, height, width = x.shape
    _, inputs, kh, kw = w.shape
    oh, ow = out.shape[2:]
    decoded = np.empty((inputs, height, width), np.float64)
    total = np.empty(ow, np.float64)
    met = np.zeros(ow, np.int8)
    for o in range(first, last):
        begin = start[o] * 2.0**-16
        for n in range(images):
            reach = abs(begin) + inputs * kh * kw * 2.0**-17
            for i in range(inputs):
                largest = 0.0
                for y in range(height):
                    source, line = x[n, (o // per_group) * inputs + i, y], decoded[i, y]
                    for j in range(width):
                        line[j] = multiplier_double(source[j])
                        largest = max(largest, abs(line[j]))
                for ky in range(kh):
                    for kx in range(kw):
                        reach += largest * abs(multiplier_double(w[o, i, ky, kx]))
            risky = reach >= SAFE
            for y in range(oh):
                total[:] = MAGIC + begin
                if risky:
                    met[:] = 0
                    _test(total, met)
                for i in range(inputs):
                    for ky in range(kh):
                        row = y * sy + ky * dy - top
                        if row < 0 or row >= height:
                            continue
                        for kx in range(kw):
                            half = w[o, i, ky, kx]
                            weight = multiplier_double(half)
                            # The smallest magnitude that is not dropped: 2^(-16 - e), subnormals count as e = -14.
                            exponent = max(np.int64((half >> 10) & 31), 1) - 15
                            least = 2.0 ** (-16.0 - exponent) if exponent < -2 else 0.0
                            shift = kx * dx - left
                            j0 = max(0, -(shift // sx))
                            j1 = min(ow, (width - 1 - shift) // sx + 1)
                            if weight == 0.0 or j1 <= j0:
                                continue
                            values = decoded[i, row, j0 * sx + shift :]
                            _add(total[j0:j1], values, sx, weight * (1.0 + 2.0**-40), least)
                            if risky:
                                _test(total[j0:j1], met[j0:j1])
                _finish(total, met, scale, relu, table, out[n, o, y])
            met[:] = 0


def conv2d(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray, window: plain.Window, groups: int, finish: Finish
) -> np.ndarray:
    """A convolution of few terms per output; shapes as `hexane.arithmetic.conv2d`."""
    out = np.empty((x.shape[0], w.shape[0], *window.output), np.uint16)
    source, weights = np.ascontiguousarray(halfwords(x)), np.ascontiguousarray(halfwords(w))
    start = multiply.bias_units(bias)
    geometry = (*window.strides, *window.dilations, window.pads[0], window.pads[1], w.shape[0] // groups)
    table = np.empty(0, np.uint16) if finish.table is None else finish.table
    share(
        lambda first, last: _convolve(
            source, weights, start, geometry, first, last, finish.scale, finish.relu, table, out
        ),
        w.shape[0],
        max(1, w.shape[0] // 32),
    )
    return out.view(np.float16)
