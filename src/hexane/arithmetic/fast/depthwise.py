"""Depthwise and narrow grouped convolutions: few terms per output, one channel at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import carray

from hexane.arithmetic import multiply
from hexane.arithmetic import plain_convolution as plain
from hexane.arithmetic.fast.call import (
    DECODE_LINES,
    DECODE_PAIRS,
    DEPTHWISE,
    DEPTHWISE_HALVES,
    THRESHOLDS,
    bits_double,
    call_decode_lines,
    call_depthwise,
    call_three,
    pointer,
)
from hexane.arithmetic.fast.compiled import compiled
from hexane.arithmetic.fast.copy import together
from hexane.arithmetic.fast.half import half_away, multiplier_double
from hexane.arithmetic.fast.jobs import (
    MORE,
    NOTHING,
    SOURCE,
    TARGET,
    CompiledJob,
    Phase,
    Span,
    address_of,
    array_numbers,
    double_number,
    halves_of,
    joined,
    kernels_of,
    numbers_at,
    record_of,
    table_numbers,
    table_of,
)
from hexane.arithmetic.fast.matrix import Finish
from hexane.arithmetic.fast.planes import Planes
from hexane.arithmetic.fast.product import LIMIT, PARTIAL, SAFE
from hexane.arithmetic.fast.results import copy_lines, ends, finish_units
from hexane.arithmetic.fast.targets import VectorKernels
from hexane.arithmetic.fast.vector_depthwise import CHAINS, LEAST_SEEN, UNROLLED
from hexane.arithmetic.fast.vector_parts import SMALL
from hexane.arithmetic.formats import halfwords

MAGIC = 1.5 * 2.0**36

START = 32000 << 16
"""Bound of the start value in units, which with sums below `PARTIAL` stays below the limit."""

SMALL_START = SMALL >> 1
"""Bound of those with which it stays below `SMALL`."""


@compiled(inner=True)
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


@compiled(inner=True)
def _test(total, met):
    """Note the sums that are at or beyond the limit, the first time that they are."""
    for i in range(total.size):
        level = total[i] - MAGIC
        crossed = 1 if level >= LIMIT else (-1 if level <= -LIMIT else 0)
        met[i] = crossed if met[i] == 0 else met[i]


@compiled(inner=True)
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
    if table.size == 1:
        for i in range(total.size):
            out[i] = min(out[i], table[0])
    elif table.size:
        for i in range(total.size):
            out[i] = table[out[i]]


@compiled(inner=True)
def _exactly(x, w, start, geometry, o, n, scale, relu, table, out):
    """Output channel o of image n in float64, a magic number above zero, so that adding rounds a product to a unit.

    See docs/reference/numerics.md 11.3. Terms in the order channel, row, column; the limit is tested after every term
    where the magnitudes could reach it.
    """
    sy, sx, dy, dx, left, top, per_group = geometry
    height, width = x.shape[2:]
    _, inputs, kh, kw = w.shape
    oh, ow = out.shape[2:]
    decoded = np.empty((inputs, height, width), np.float64)
    total = np.empty(ow, np.float64)
    met = np.zeros(ow, np.int8)
    begin = start[o] * 2.0**-16
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


class TapRun(NamedTuple):
    """Places of the terms of a channel's outputs in its planes (`planes.Planes`), and the reach of the outputs."""

    offsets: np.ndarray
    phases: tuple[int, int]
    height: int
    pitch: int
    plane: int
    extent: int
    room: int
    """Elements that the vector code may read and write at one time."""


FROM, TO, LINES, COUNT = range(4)


@compiled(inner=True)
def _parts(x, geometry, run):
    """The lines of halfwords that go into each plane of a channel of x (N, C, H, W): (planes, 4).

    ``FROM``: where they begin, in bytes of the channel; ``TO``: in elements of the planes; ``LINES`` of ``COUNT``.
    """
    sy, sx, _, _, left, top, _ = geometry
    height, width = x.shape[2:]
    parts = np.zeros((run.phases[0] * run.phases[1], 4), np.int64)
    for py in range(run.phases[0]):
        for px in range(run.phases[1]):
            j0, y0 = max(0, -((px - left) // sx)), max(0, -((py - top) // sy))
            part = py * run.phases[1] + px
            parts[part, FROM] = (y0 * sy + py - top) * x.strides[2] + 2 * (j0 * sx + px - left)
            parts[part, TO] = part * run.plane + y0 * run.pitch + j0
            parts[part, LINES] = min(run.height, (height - 1 + top - py) // sy + 1) - y0
            parts[part, COUNT] = min(run.pitch, (width - 1 + left - px) // sx + 1) - j0
    return parts


@compiled(inner=True)
def _decode(kernels, image, row, step, parts, pitch, values, bounds, line):
    """One channel into its planes, which begin at an address; gives its largest magnitude as a halfword, and the least
    that is not zero.

    image: address of a channel of halfwords, lines `row` bytes apart, of which each `step`-th goes to a place, in a row
    and among rows as `_parts` says; values: address of the planes, zero where no pixel goes; bounds, line: room for
    what `vector_depthwise` has seen, and for a line.
    """
    for j in range(LEAST_SEEN):
        bounds[j], bounds[LEAST_SEEN + j] = np.uint16(0), np.uint16(0xFFFF)
    extremes, decode = bounds.ctypes.data, kernels[DECODE_PAIRS if step == 2 else DECODE_LINES]
    for part in range(parts.shape[0]):
        source, place = image + parts[part, FROM], values + 4 * parts[part, TO]
        lines, count = parts[part, LINES], parts[part, COUNT]
        if count <= 0 or lines <= 0:
            continue
        if step <= 2:
            call_decode_lines(decode, source, row, lines, count, place, pitch, extremes)
            continue
        for y in range(lines):
            whole = carray(pointer(source + y * row), ((count - 1) * step + 1,), np.uint16)
            for j in range(count):
                line[j] = whole[j * step]
            call_decode_lines(decode, line.ctypes.data, 0, 1, count, place + 4 * y * pitch, 0, extremes)
    largest, least = np.uint16(0), np.uint16(0xFFFF)
    for j in range(LEAST_SEEN):
        largest, least = max(largest, bounds[j]), min(least, bounds[LEAST_SEEN + j])
    return largest, np.uint16(min(np.int64(least) + 1, 0x7FFF))


@compiled()
def _read_weights(kernels, w, weights, limits, reach):
    """Weights (O, I, KH, KW) as float32, the magnitudes below which a product with each is dropped, both (O, terms),
    and the sums of their magnitudes (O, I)."""
    flat, each = w.reshape(w.size), w.shape[2] * w.shape[3]
    reach[:] = 0
    for o in range(w.shape[0]):
        for t in range(weights.shape[1]):
            weight = multiplier_double(flat[o * weights.shape[1] + t])
            weights[o, t] = weight
            reach[o, t // each] += abs(weight)
    call_three(kernels[THRESHOLDS], weights.ctypes.data, weights.size, limits.ctypes.data)


@compiled(inner=True)
def _order(limits, o, least, order):
    """All terms of output channel o, those first that drop no value; gives how many these are.

    No value but zero is below the least.
    """
    plain, tested = 0, order.size - 1
    for t in range(order.size):
        drops = limits[o, t] > least
        order[tested if drops else plain] = t
        plain += 0 if drops else 1
        tested -= 1 if drops else 0
    return plain


@compiled(inner=True)
def _convolve(
    kernels,
    first,
    last,
    x,
    w,
    weights,
    limits,
    reach,
    start,
    geometry,
    offsets,
    phases,
    height,
    pitch,
    plane,
    extent,
    room,
    scale,
    relu,
    table,
    out,
):
    """Output channels first .. last - 1 of every image: x (N, C, H, W), w (O, I, KH, KW) halfwords, out (N, O, OH, OW).

    In float32 wherever no partial sum can leave its range. weights, limits, reach: as `_read_weights` gives them.
    """
    run = TapRun(offsets, phases, height, pitch, plane, extent, room)
    per_group = geometry[6]
    inputs, terms = reach.shape[1], weights.shape[1]
    oh, ow = out.shape[2:]
    planes = run.phases[0] * run.phases[1] * run.plane
    values = np.zeros(inputs * planes + run.room, np.float32)
    halfwords = np.empty(2 * CHAINS * LEAST_SEEN, np.uint16)
    line = np.empty(x.shape[3] + 1, np.uint16)
    units, halves = np.empty(run.extent + run.room, np.int32), np.empty(run.extent + run.room, np.uint16)
    largest, least = np.empty(inputs, np.float64), np.empty(1, np.float32)
    parts, row = _parts(x, geometry, run), geometry[0] * x.strides[2]
    order, plainly = np.empty(terms, np.int64), scale == 1.0 and table.size <= 1
    lowest, cap = ends(relu, table.ctypes.data, table.size)
    for n in range(x.shape[0]):
        channel_read = -1
        for o in range(first, last):
            group = o if per_group == 1 else o // per_group
            if group != channel_read:
                least[0] = np.inf
                for i in range(inputs):
                    image = x.ctypes.data + n * x.strides[0] + (group * inputs + i) * x.strides[1]
                    place = values.ctypes.data + 4 * i * planes
                    most, fewest = _decode(
                        kernels, image, row, geometry[1], parts, run.pitch, place, halfwords, line
                    )  # fmt: skip
                    largest[i], least[0] = multiplier_double(most), min(least[0], np.float32(multiplier_double(fewest)))
                channel_read = group
            bound = terms * 2.0**-17
            for i in range(inputs):
                bound += reach[o, i] * largest[i]
            if not (bound < PARTIAL and abs(start[o]) < START):
                _exactly(x, w, start, geometry, o, n, scale, relu, table, out)
                continue
            own = 4 * o * terms
            direct = plainly and abs(start[o]) < SMALL_START
            plain = _order(limits, o, least[0], order)
            call_depthwise(
                kernels[DEPTHWISE_HALVES if direct else DEPTHWISE], values.ctypes.data, run.offsets.ctypes.data,
                weights.ctypes.data + own, limits.ctypes.data + own, order.ctypes.data, plain, terms, start[o],
                halves.ctypes.data if direct else units.ctypes.data, run.extent, lowest, cap,
            )  # fmt: skip
            if not direct:
                finish_units(kernels, units, run.extent, scale, relu, table, halves)
            place = out.ctypes.data + n * out.strides[0] + o * out.strides[1]
            copy_lines(place, out.strides[2], halves.ctypes.data, 2 * run.pitch, oh, 2 * ow)


class Depthwise:
    """A convolution of few terms per output; `plain_convolution.PlainConvolution`."""

    def __init__(
        self,
        w: np.ndarray,
        bias: np.ndarray,
        window: plain.PlainWindow,
        groups: int,
        finish: Finish,
        use: VectorKernels,
    ) -> None:
        self.weights = np.array(
            halfwords(w), order="C"
        )  # a copy, because Numba compiles for memory that is read-only by itself
        self.start = multiply.bias_units(bias)
        self.geometry = (*window.strides, *window.dilations, window.pads[0], window.pads[1], w.shape[0] // groups)
        planes = Planes.of(w.shape[1], window)
        oh, ow = window.output
        self.run = TapRun(
            planes.offsets(window),
            planes.phases,
            planes.height,
            planes.pitch,
            planes.plane,
            (oh - 1) * planes.pitch + ow,
            UNROLLED * use.shape.lanes,
        )
        self.input, self.output, self.finish, self.use = window.input, window.output, finish.parts, use
        terms = (w.shape[0], w[0].size)
        self.read = np.empty(terms, np.float32), np.empty(terms, np.float32), np.empty(w.shape[:2], np.float64)
        _read_weights(use.addresses, self.weights, *self.read)

    def keep(self) -> int:
        """Nothing to do: the weights are read already."""
        return 0

    def job(self, x: np.ndarray, out: np.ndarray) -> CompiledJob | None:
        """The same as a job: x (images, groups, channels, H, W) halfwords, in whatever groups, out (images, groups,
        outputs of a group, OH, OW)."""
        source, target = (joined(a) for a in (x, out))
        if source is None or target is None or out.shape[3:] != self.output or x.shape[3:] != self.input:
            return None
        if any(a.strides[3] != 2 and a.shape[3] > 1 for a in (source, target)):
            return None
        sy, sx, dy, dx, left, top, per_group = self.geometry
        scale, relu, table = self.finish
        offsets, phases, height, pitch, plane, extent, room = self.run
        record = record_of(
            self.use.addresses, *array_numbers(source[None]), *NOTHING, *array_numbers(target[None]),
            *map(address_of, (self.weights, *self.read)), *self.weights.shape, address_of(self.start),
            address_of(offsets), height, pitch, plane, extent, room, sy, sx, dy, dx, left, top, per_group, *phases,
            double_number(scale), relu, *table_numbers(table),
        )  # fmt: skip
        outputs = self.weights.shape[0]
        cost = source.shape[0] * self.weights[0].size * extent / PRODUCTS_PER_NS
        buffers = (x, out, self.weights, self.read, self.start, offsets, table, self.use)
        return CompiledJob(body, record, (Phase(outputs, cost),), held=buffers)

    def __call__(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        if out is None:
            out = np.empty((x.shape[0], self.weights.shape[0], *self.output), np.float16)
        job = self.job(together(x.view(np.uint16))[:, None], out.view(np.uint16)[:, None])
        assert job is not None, "the lines of both lie without gaps"
        Span([job]).run()
        return out


(HALVES, WEIGHTS, LIMITS, REACH, OUTPUTS, INPUTS, KERNEL_Y, KERNEL_X, START_AT, OFFSETS, HEIGHT, PITCH, PLANE,
 EXTENT, ROOM, STRIDE_Y, STRIDE_X, DILATION_Y, DILATION_X, LEFT, TOP, PER_GROUP, PHASES_Y, PHASES_X, SCALE, RELU,
 TABLE) = range(MORE, MORE + 27)  # fmt: skip
"""Places in a record; ``TABLE`` is followed by the table's size."""


def body(record, phase, first, last, room):
    """Output channels first .. last - 1 of a job: one phase."""
    n = numbers_at(record)
    outputs, inputs, kh, kw = n[OUTPUTS], n[INPUTS], n[KERNEL_Y], n[KERNEL_X]
    x, out = halves_of(n, SOURCE), halves_of(n, TARGET)
    geometry = (n[STRIDE_Y], n[STRIDE_X], n[DILATION_Y], n[DILATION_X], n[LEFT], n[TOP], n[PER_GROUP])
    _convolve(
        kernels_of(n),
        first,
        last,
        x[0],
        carray(pointer(n[HALVES]), (outputs, inputs, kh, kw), np.uint16),
        carray(pointer(n[WEIGHTS]), (outputs, inputs * kh * kw), np.float32),
        carray(pointer(n[LIMITS]), (outputs, inputs * kh * kw), np.float32),
        carray(pointer(n[REACH]), (outputs, inputs), np.float64),
        carray(pointer(n[START_AT]), (outputs,), np.int64),
        geometry,
        carray(pointer(n[OFFSETS]), (inputs * kh * kw,), np.int64),
        (n[PHASES_Y], n[PHASES_X]),
        n[HEIGHT],
        n[PITCH],
        n[PLANE],
        n[EXTENT],
        n[ROOM],
        bits_double(n[SCALE]),
        n[RELU] != 0,
        table_of(n, TABLE),
        out[0],
    )


PRODUCTS_PER_NS = 2.0
