"""The Winograd form on the fast kernels: transforms, four products over half as many columns, and their combination."""

from __future__ import annotations

import numpy as np
from numba import njit

from hexane.arithmetic import convolution as plain
from hexane.arithmetic import multiply
from hexane.arithmetic.fast import matrix
from hexane.arithmetic.fast.half import half_away, multiplier_double
from hexane.arithmetic.fast.targets import Kernels
from hexane.arithmetic.fast.workers import share
from hexane.arithmetic.fast.workspace import Workspace
from hexane.arithmetic.formats import LIMIT, halfwords

BAND_SUMS = 1 << 20
"""Sums held at a time, of each of the four products."""


@njit(nogil=True, cache=True)
def _transform(x, first, last, left, top, out):
    """Channels first .. last - 1 of one image (C, H, W): halfwords of V0..V3 to out (4, C, rows, pairs)."""
    height, width = x.shape[1:]
    rows, pairs = out.shape[2:]
    line = np.empty(2 * pairs + 2, np.float64)
    for c in range(first, last):
        for y in range(rows):
            row = y - top
            line[:] = 0.0
            if 0 <= row < height:
                for j in range(max(0, -left), min(width, line.size - left)):
                    line[left + j] = multiplier_double(x[c, row, j])
            for t in range(pairs):
                d0, d1, d2, d3 = line[2 * t], line[2 * t + 1], line[2 * t + 2], line[2 * t + 3]
                out[0, c, y, t] = half_away(d0 - d2)
                out[1, c, y, t] = half_away(d1 + d2)
                out[2, c, y, t] = half_away(d2 - d1)
                out[3, c, y, t] = half_away(d1 - d3)


@njit(nogil=True, cache=True)
def _transform_kernel(w, first, last, out):
    """Output channels first .. last - 1 of a kernel (O, I, KH, 3): halfwords of U0..U3 to out (4, O, I, KH)."""
    for o in range(first, last):
        for i in range(w.shape[1]):
            for ky in range(w.shape[2]):
                g0, g1, g2 = (
                    multiplier_double(w[o, i, ky, 0]),
                    multiplier_double(w[o, i, ky, 1]),
                    multiplier_double(w[o, i, ky, 2]),
                )
                out[0, o, i, ky] = w[o, i, ky, 0]
                out[1, o, i, ky] = half_away((g0 + g1 + g2) / 2)
                out[2, o, i, ky] = half_away((g0 - g1 + g2) / 2)
                out[3, o, i, ky] = w[o, i, ky, 2]


@njit(nogil=True, cache=True)
def _combine(m, met, extent, start, first, last, pairs, line0, scale, relu, table, out):
    """Outputs of channels first .. last - 1 from the four sums m (4, O, >= extent) (hypothesis ``winograd-bias``)."""
    width = out.shape[2]
    for o in range(first, last):
        for line in range(extent // pairs):
            for t in range(pairs):
                column = line * pairs + t
                for parity in range(min(2, width - 2 * t)):
                    sign = 1 - 2 * parity
                    a, b, c = parity, parity + 1, parity + 2
                    total = np.int64(m[a, o, column]) + sign * (np.int64(m[b, o, column]) + np.int64(m[c, o, column]))
                    total += start[o]
                    side = np.int64(met[a, o, column])
                    if side == 0:
                        side = sign * np.int64(met[b, o, column])
                    if side == 0:
                        side = sign * np.int64(met[c, o, column])
                    if side == 0 and abs(total) >= LIMIT:
                        side = 1 if total > 0 else -1
                    value = total * 2.0**-16 * scale
                    if side != 0:
                        value = np.inf * side * scale if scale != 0.0 else 0.0
                    h = half_away(value)
                    if relu and h >= 0x8000:
                        h = np.uint16(0)
                    out[o, line0 + line, 2 * t + parity] = table[h] if table.size else h


def conv2d(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray, window: plain.Window, finish: matrix.Finish, use: Kernels
) -> np.ndarray:
    """A dense 3x3 or 1x3 convolution in Winograd form; shapes as `hexane.arithmetic.conv2d`."""
    oh, ow = window.output
    kh = window.kernel[0]
    pairs, rows = (ow + 1) // 2, oh + kh - 1
    outputs, channels = w.shape[:2]
    start = multiply.bias_units(bias)
    table = np.empty(0, np.uint16) if finish.table is None else finish.table
    plane = matrix.pitch_of(rows * pairs)
    offsets = (np.arange(channels)[:, None] * plane + np.arange(kh)[None] * pairs).ravel().astype(np.int64)
    band = max(1, min(oh, BAND_SUMS // (outputs * pairs)))
    out = np.empty((x.shape[0], outputs, oh, ow), np.uint16)
    v = np.empty((4, channels, rows, pairs), np.uint16)
    m = np.empty((4, outputs, band * pairs), np.int32)
    met = np.empty(m.shape, np.int8)

    def transform(image: np.ndarray, space: Workspace) -> list[matrix.Columns]:
        def work(first: int, last: int) -> None:
            _transform(image, first, last, window.pads[0], window.pads[1], v)

        share(work, channels, max(1, (1 << 15) // (rows * pairs)))
        columns = []
        for i in range(4):
            part = matrix.empty_columns(channels * plane, use, space)
            matrix.decode_planes(v[i], part, 0, plane, pairs, use)
            matrix.finish_columns(part, use)
            columns.append(part)
        return columns

    def combine(result: np.ndarray, y: int, extent: int) -> None:
        def work(first: int, last: int) -> None:
            _combine(m, met, extent, start, first, last, pairs, y, finish.scale, finish.relu, table, result)

        share(work, outputs, max(1, outputs // 16))

    u = np.empty((4, outputs, channels, kh), np.uint16)
    weights = np.ascontiguousarray(halfwords(w))
    share(lambda first, last: _transform_kernel(weights, first, last, u), outputs, max(1, outputs // 16))
    with Workspace() as kept:
        packed = [matrix.pack_rows(u[i].reshape(outputs, -1), use, kept) for i in range(4)]
        for n in range(x.shape[0]):
            with Workspace() as space:
                columns = transform(np.ascontiguousarray(halfwords(x)[n]), space)
                for y in range(0, oh, band):
                    extent = min(band, oh - y) * pairs
                    terms = matrix.Terms(offsets, y * pairs, extent)
                    for i in range(4):
                        matrix.multiply(packed[i], columns[i], terms, use, raw=m[i], raw_overflow=met[i])
                    combine(out[n], y, extent)
    return out.view(np.float16)
