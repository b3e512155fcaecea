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

MAGIC = 1.5 * 2.0**36


@njit(nogil=True, cache=True)
def _convolve(x, w, start, geometry, first, last, scale, relu, table, out):
    """Output channels first .. last - 1 of every image: x (N, C, H, W), w (O, I, KH, KW) halfwords, out (N, O, OH, OW).

    Sums are float64, a magic number above zero, so that adding rounds a product to a unit (spec/numerics §11.3); terms
    in the order channel, row, column; the sticky limit is tested after every term.
    """
    sy, sx, dy, dx, left, top, per_group = geometry
    images, _, height, width = x.shape
    _, inputs, kh, kw = w.shape
    oh, ow = out.shape[2:]
    decoded = np.empty((inputs, height, width), np.float64)
    total = np.empty(ow, np.float64)
    met = np.empty(ow, np.int8)
    for o in range(first, last):
        channel = (o // per_group) * inputs
        for n in range(images):
            for i in range(inputs):
                for y in range(height):
                    source = x[n, channel + i, y]
                    line = decoded[i, y]
                    for j in range(width):
                        line[j] = multiplier_double(source[j])
            for y in range(oh):
                begin = start[o] * 2.0**-16
                total[:] = MAGIC + begin
                met[:] = 1 if begin >= 32768.0 else (-1 if begin <= -32768.0 else 0)
                for i in range(inputs):
                    for ky in range(kh):
                        row = y * sy + ky * dy - top
                        if row < 0 or row >= height:
                            continue
                        line = decoded[i, row]
                        for kx in range(kw):
                            weight = multiplier_double(w[o, i, ky, kx])
                            if weight == 0.0:
                                continue
                            # The smallest magnitude that is not dropped: 2^(-16 - e), subnormals count as e = -14.
                            exponent = max(np.int64((w[o, i, ky, kx] >> 10) & 31), 1) - 15
                            least = 2.0 ** (-16.0 - exponent) if exponent < -2 else 0.0
                            moved = weight * (1.0 + 2.0**-40)
                            shift = kx * dx - left
                            j0 = max(0, -(shift // sx))
                            j1 = min(ow, (width - 1 - shift) // sx + 1)
                            for j in range(j0, j1):
                                value = line[j * sx + shift]
                                total[j] += value * moved if abs(value) >= least else 0.0
                                level = total[j] - MAGIC
                                crossed = 1 if level >= 32768.0 else (-1 if level <= -32768.0 else 0)
                                met[j] = crossed if met[j] == 0 else met[j]
                target = out[n, o, y]
                for j in range(ow):
                    side = met[j]
                    value = (total[j] - MAGIC) * scale
                    if side != 0:
                        value = np.inf * side * scale if scale != 0.0 else 0.0
                    h = half_away(value)
                    if relu and h >= 0x8000:
                        h = np.uint16(0)
                    target[j] = table[h] if table.size else h


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
