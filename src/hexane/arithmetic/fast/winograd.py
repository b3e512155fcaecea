"""The Winograd form on the fast kernels: transforms, four products over half as many columns, and their combination."""

from __future__ import annotations

import numpy as np

from hexane.arithmetic import multiply
from hexane.arithmetic import plain_convolution as plain
from hexane.arithmetic.fast import matrix
from hexane.arithmetic.fast.call import COMBINE, TRANSFORM_INPUT, TRANSFORM_KERNEL, call_combine, call_transform
from hexane.arithmetic.fast.compiled import compiled
from hexane.arithmetic.fast.half import half_away
from hexane.arithmetic.fast.planes import pitch_of
from hexane.arithmetic.fast.targets import VectorKernels
from hexane.arithmetic.fast.vector_winograd import SMALL
from hexane.arithmetic.fast.workers import share
from hexane.arithmetic.fast.workspace import Workspace
from hexane.arithmetic.formats import LIMIT, halfwords

BAND_SUMS = 1 << 20
"""Sums held at a time, of each of the four products."""

GRAIN = 1 << 15
"""Kernel rows per piece of work."""


@compiled()
def _transform(kernels, x, first, last, left, top, out):
    """Channels first .. last - 1 of one image (C, H, W): halfwords of V0..V3 to out (4, C, rows, pairs)."""
    height, width = x.shape[1:]
    rows, pairs = out.shape[2:]
    line = np.zeros(2 * pairs + 2, np.uint16)
    inside = max(0, min(width, line.size - left))
    source, place, plane = line.ctypes.data, out.ctypes.data, 2 * out.shape[1] * rows * pairs
    for c in range(first, last):
        for y in range(rows):
            row = y - top
            if 0 <= row < height:
                for j in range(inside):
                    line[left + j] = x[c, row, j]
            else:
                line[:] = 0
            v = place + 2 * (c * rows + y) * pairs
            call_transform(kernels[TRANSFORM_INPUT], source, pairs, v, v + plane, v + 2 * plane, v + 3 * plane)


@compiled()
def _transform_kernel(kernels, w, first, last, out):
    """Rows first .. last - 1 of a kernel (O * I * KH, 3): halfwords of U0..U3 to out (4, O * I * KH)."""
    source, u, plane = w.ctypes.data + 6 * first, out.ctypes.data + 2 * first, 2 * out.shape[1]
    call_transform(kernels[TRANSFORM_KERNEL], source, last - first, u, u + plane, u + 2 * plane, u + 3 * plane)


@compiled()
def _combine_large(m, met, o, column, start, scale, line):
    """A line of one channel where a sum is large, has met the limit, or is scaled."""
    for t in range(line.size // 2):
        for parity in range(2):
            sign = 1 - 2 * parity
            a, b, c = parity, parity + 1, parity + 2
            total = np.int64(m[a, o, column + t]) + start
            total += sign * (np.int64(m[b, o, column + t]) + np.int64(m[c, o, column + t]))
            side = np.int64(met[a, o, column + t])
            if side == 0:
                side = sign * np.int64(met[b, o, column + t])
            if side == 0:
                side = sign * np.int64(met[c, o, column + t])
            if side == 0 and abs(total) >= LIMIT:
                side = 1 if total > 0 else -1
            value = total * 2.0**-16 * scale
            if side != 0:
                value = np.inf * side * scale if scale != 0.0 else 0.0
            line[2 * t + parity] = half_away(value)


@compiled()
def _combine(kernels, m, met, extent, start, first, last, pairs, line0, scale, relu, table, out):
    """Outputs of channels first .. last - 1 from the four sums m (4, O, >= extent) (hypothesis ``winograd-bias``).

    met is the sign of a sum that met the limit, 0 elsewhere.
    """
    width = out.shape[2]
    line, sums = np.empty(2 * pairs, np.uint16), np.empty(16, np.int32)
    for o in range(first, last):
        mets = np.int8(0)
        for i in range(4):
            for side in met[i, o, :extent]:
                mets |= side
        small = mets == 0 and scale == 1.0 and abs(start[o]) < SMALL
        for y in range(extent // pairs):
            column = y * pairs
            fits = small
            if small:
                sums[:] = 0
                call_combine(
                    kernels[COMBINE],
                    m[0, o, column:].ctypes.data,
                    m[1, o, column:].ctypes.data,
                    m[2, o, column:].ctypes.data,
                    m[3, o, column:].ctypes.data,
                    start[o],
                    pairs,
                    line.ctypes.data,
                    sums.ctypes.data,
                )
                for bits in sums:
                    fits &= bits < SMALL
            if not fits:
                _combine_large(m, met, o, column, start[o], scale, line)
            target = out[o, line0 + y]
            for j in range(width):
                h = line[j]
                target[j] = 0 if relu and h >= 0x8000 else h
            if table.size:
                for j in range(width):
                    target[j] = table[target[j]]


def conv2d(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray, window: plain.PlainWindow, finish: matrix.Finish, use: VectorKernels
) -> np.ndarray:
    """A dense 3x3 or 1x3 convolution in Winograd form; shapes as `hexane.arithmetic.conv2d`."""
    oh, ow = window.output
    kh = window.kernel[0]
    pairs, rows = (ow + 1) // 2, oh + kh - 1
    outputs, channels = w.shape[:2]
    start = multiply.bias_units(bias)
    table = np.empty(0, np.uint16) if finish.table is None else finish.table
    plane = pitch_of(rows * pairs)
    offsets = (np.arange(channels)[:, None] * plane + np.arange(kh)[None] * pairs).ravel().astype(np.int64)
    band = max(1, min(oh, BAND_SUMS // (outputs * pairs)))
    out = np.empty((x.shape[0], outputs, oh, ow), np.uint16)
    v = np.empty((4, channels, rows, pairs), np.uint16)
    m = np.empty((4, outputs, band * pairs), np.int32)
    met = np.empty(m.shape, np.int8)

    def transform(image: np.ndarray, space: Workspace) -> list[matrix.Columns]:
        def work(first: int, last: int) -> None:
            _transform(use.addresses, image, first, last, window.pads[0], window.pads[1], v)

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
            _combine(
                use.addresses, m, met, extent, start, first, last, pairs, y, finish.scale, finish.relu, table, result
            )

        share(work, outputs, max(1, outputs // 16))

    u = np.empty((4, outputs, channels, kh), np.uint16)
    weights, flat = np.ascontiguousarray(halfwords(w)).reshape(-1, 3), u.reshape(4, -1)
    share(lambda first, last: _transform_kernel(use.addresses, weights, first, last, flat), len(weights), GRAIN)
    with Workspace() as workspace:
        packed = [matrix.pack_rows(u[i].reshape(outputs, -1), use, workspace) for i in range(4)]
        for n in range(x.shape[0]):
            with Workspace() as space:
                columns = transform(np.ascontiguousarray(halfwords(x)[n]), space)
                for y in range(0, oh, band):
                    extent = min(band, oh - y) * pairs
                    terms = matrix.Terms(offsets, y * pairs, extent)
                    for i in range(4):
                        matrix.MatrixProduct(packed[i], terms, use).sums(columns[i], m[i], met[i])
                    combine(out[n], y, extent)
    return out.view(np.float16)
