"""The body of a sparse stream: a mask for eight (from H14 on, sixteen) elements, then those that are not zero (§9.6).

The unit skips zeros. What counts as an element's zero is its bit pattern, so -0.0 is stored. The place of every mask
depends on all masks before it: reading is one walk, compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from hexane.errors import FormatError
from hexane.frozen import slot_init
from hexane.kernels.layout import SPARSE_LANES, KernelLayout
from hexane.rounding import align

LENGTH_BYTES = 3
"""Before every body stands its length as a little-endian number of 24 bits."""
_SET = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.int64)
"""How many bits of a byte are set."""


@slot_init
@dataclass(frozen=True, slots=True)
class StreamBody:
    """The output channels of one body: ``channels`` from ``first`` on, of the ``lanes`` that its bias row counts."""

    first: int
    channels: int
    lanes: int


def bodies(layout: KernelLayout, core: int) -> list[StreamBody]:
    """The core's bodies in stream order: channel by channel, or group by group and in each pass by pass."""
    if layout.unicast:
        return [StreamBody(channel, 1, 1) for channel in range(core, layout.cout, layout.cores)]
    bodies_read = []
    for group in range(layout.groups):
        for step in layout.passes():
            first = step.first + core * step.lanes
            channels = min(step.lanes, layout.cout - first)
            if channels > 0:
                bodies_read.append(StreamBody(group * layout.cout + first, channels, step.lanes))
    return bodies_read


def tap_order(layout: KernelLayout) -> np.ndarray:
    """For each kernel position of the stream its tap, -1 where the position lies outside the kernel.

    Row phase, column phase, row, column: with stride 2 the four parity phases come one after the other.
    """
    sy, sx = layout.stride
    kh, kw = align(layout.kh, sy), align(layout.kw, sx)
    taps = np.full((kh, kw), -1, np.int64)
    taps[: layout.kh, : layout.kw] = np.arange(layout.kh * layout.kw).reshape(layout.kh, layout.kw)
    return np.ascontiguousarray(taps.reshape(kh // sy, sy, kw // sx, sx).transpose(1, 3, 0, 2)).reshape(-1)


def encode(layout: KernelLayout, weights: np.ndarray, bodies: Sequence[StreamBody], order: np.ndarray) -> list[bytes]:
    """Some bodies of equally many channels and lanes, each with its length in front.

    ``weights``: uint16, contiguous, of the layout's shape. All bodies are one array until they are cut apart: a
    depthwise kernel has a body for each channel.
    """
    channels, lanes = bodies[0].channels, align(bodies[0].lanes, SPARSE_LANES)
    width, inside, taps = layout.mask_elements, order >= 0, layout.kh * layout.kw
    firsts = np.array([body.first for body in bodies])
    coefficients = weights.reshape(-1, layout.cin, taps)[firsts[:, None] + np.arange(channels)]
    count = layout.cin * order.size * lanes
    cells = np.zeros((len(bodies), align(count, width)), np.uint16)
    places = cells[:, :count].reshape(-1, layout.cin, order.size, lanes)
    places[:, :, inside, :channels] = coefficients[..., order[inside]].transpose(0, 2, 3, 1)
    nonzero = cells != 0
    masks = np.packbits(nonzero.reshape(-1), bitorder="little").reshape(-1, width // 8)
    sizes = np.full(len(masks), masks.shape[1])
    data = masks.reshape(-1)
    if not layout.binary:
        values = cells[nonzero].astype("<u2").view(np.uint8)
        sizes += 2 * _SET[masks].sum(axis=1)
        heads = (np.cumsum(sizes) - sizes)[:, None] + np.arange(masks.shape[1])
        data, behind = np.empty(masks.size + values.size, np.uint8), np.ones(masks.size + values.size, bool)
        data[heads], behind[heads] = masks, False
        data[behind] = values
    lengths = sizes.reshape(len(bodies), -1).sum(axis=1).tolist()
    stream, starts, at = data.tobytes(), [], 0
    for length in lengths:
        starts.append(length.to_bytes(LENGTH_BYTES, "little") + stream[at : at + length])
        at += length
    return starts


def decode(
    layout: KernelLayout,
    stream: np.ndarray,
    at: int,
    weights: np.ndarray,
    body: StreamBody,
    order: np.ndarray,
    where: str,
) -> int:
    """Read one body that starts (with its length) at byte ``at`` into ``weights``; gives the byte behind the body.

    A binary body writes 1 where its mask is set.

    Raises
    ------
    FormatError : the body ends before its last element, reaches beyond the stream, has bytes left over, or has values
        where the kernel has none.
    """
    if at + LENGTH_BYTES > stream.size:
        raise FormatError("a sparse stream ends before the length of its body", offset=at, where=where)
    length = int.from_bytes(stream[at : at + LENGTH_BYTES].tobytes(), "little")
    start, end = at + LENGTH_BYTES, at + LENGTH_BYTES + length
    if end > stream.size:
        raise FormatError(
            f"a sparse body of {length} bytes reaches beyond its stream of {stream.size}", offset=at, where=where
        )
    source = stream[start:end]
    source.flags.writeable = False  # one compiled form, whatever the memory is
    size = _walk()(source, *_geometry(layout, body), order, layout.binary, layout.mask_elements, weights.reshape(-1))
    if size == length:
        return end
    if size == -2:
        what = "has values outside its kernel"
    elif size == -1:
        what = "ends before its last element"
    else:
        what = f"has {length - size} bytes too many"
    raise FormatError(f"a sparse body of {length} bytes {what}", offset=at, where=where)


def _geometry(layout: KernelLayout, body: StreamBody) -> tuple[int, int, int, int, int]:
    """First weight, channels, lanes in the stream, input channels, taps of one input channel."""
    wide = align(body.lanes, SPARSE_LANES)
    return body.first * layout.taps, body.channels, wide, layout.cin, layout.kh * layout.kw


@cache
def _walk() -> Callable[..., int]:
    """The walk, compiled when the first sparse kernel is read."""
    from hexane.arithmetic.fast.compiled import compiled

    @compiled()
    def decode(body, first, channels, wide, cin, taps, order, binary, width, weights):
        at, bit, mask, size = 0, width, 0, body.size
        for c in range(cin):
            for tap in order:
                for lane in range(wide):
                    if bit == width:
                        if at + width // 8 > size:
                            return -1
                        bit, mask = 0, np.int64(body[at])
                        if width == 16:
                            mask |= np.int64(body[at + 1]) << 8
                        at += width // 8
                    value = 0
                    if mask >> bit & 1:
                        if binary:
                            value = 1
                        elif at + 2 > size:
                            return -1
                        else:
                            value = body[at] | body[at + 1] << 8
                            at += 2
                        if lane >= channels or tap < 0:
                            return -2
                    if lane < channels and tap >= 0:
                        weights[first + (lane * cin + c) * taps + tap] = value
                    bit += 1
        if bit < width and mask >> bit:
            return -2
        return at

    return decode
