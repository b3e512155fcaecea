"""Weights and biases to and from the cores' streams, one pair of functions for each order of §9.

All of them work on unsigned integers, so that every bit pattern survives, and see the streams as one array
``[core, byte]``. Dense and unicast orders are strided views of the OIHW array: one assignment packs a pass.
"""

from __future__ import annotations

import numpy as np

from hexane.errors import FormatError
from hexane.kernels import sparse
from hexane.kernels.layout import CHUNK_ALIGN, KernelLayout, Pass
from hexane.rounding import align

Arrays = tuple[np.ndarray, np.ndarray | None]

AT_ONCE = 1 << 16
"""Elements of sparse bodies that are packed in one go: as many as stay in a processor's cache."""


def _shared(array: np.ndarray, count: int, axis: int) -> np.ndarray:
    """The array with zeros behind it along ``axis`` up to ``count``; the array itself where it is long enough."""
    missing = count - array.shape[axis]
    if missing <= 0:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, missing)
    return np.pad(array, widths)


# ---- dense: passes of lanes (§9.2, §9.3, §9.5) ---


def _span(layout: KernelLayout) -> int:
    """Output channels of a group, counted to the last lane of the last core."""
    return sum(step.lanes * layout.cores for step in layout.passes())


def _lanes(array: np.ndarray, layout: KernelLayout, step: Pass) -> np.ndarray:
    """View [core, group, lane, ...] of the channels [group, channel, ...] of one pass."""
    part = array[:, step.first : step.first + step.lanes * layout.cores]
    return np.moveaxis(part.reshape(part.shape[0], layout.cores, step.lanes, *part.shape[2:]), 1, 0)


def _part(streams: np.ndarray, layout: KernelLayout) -> np.ndarray:
    """View [core, group, element] of the streams behind their prefix."""
    body = streams[:, layout.prefix :].view(layout.element)
    return body.reshape(streams.shape[0], layout.groups, -1)


def pack_dense(layout: KernelLayout, weights: np.ndarray, bias: np.ndarray | None, streams: np.ndarray) -> None:
    """Fill ``streams`` [core, byte] with rows of lanes; ``weights`` [O, I, kh, kw], ``bias`` [O], unsigned."""
    span = _span(layout)
    rows = _shared(weights.reshape(layout.groups, layout.cout, layout.taps), span, 1)
    start = None if bias is None else _shared(bias.reshape(layout.groups, layout.cout), span, 1)
    target, at = _part(streams, layout), 0
    for step in layout.passes():
        if start is not None:
            target[:, :, at : at + step.lanes] = _lanes(start, layout, step)
            at += step.lanes
        end = at + step.lanes * layout.taps
        block = target[:, :, at:end].reshape(layout.cores, layout.groups, layout.taps, step.lanes)
        np.copyto(block, _lanes(rows, layout, step).swapaxes(2, 3))
        at = end


def unpack_dense(layout: KernelLayout, streams: np.ndarray) -> Arrays:
    """The inverse of :func:`pack_dense`: weights [O, I, kh, kw] and bias [O]."""
    span = _span(layout)
    rows = np.empty((layout.groups, span, layout.taps), layout.element)
    start = np.empty((layout.groups, span), layout.element) if layout.bias else None
    source, at = _part(streams, layout), 0
    for step in layout.passes():
        if start is not None:
            _lanes(start, layout, step)[...] = source[:, :, at : at + step.lanes]
            at += step.lanes
        end = at + step.lanes * layout.taps
        block = source[:, :, at:end].reshape(layout.cores, layout.groups, layout.taps, step.lanes)
        np.copyto(_lanes(rows, layout, step), block.swapaxes(2, 3))
        at = end
    weights = np.ascontiguousarray(rows[:, : layout.cout]).reshape(layout.weight_shape)
    return weights, None if start is None else start[:, : layout.cout].reshape(-1)


# ---- unicast: one channel per pass, channels dealt out core by core (§9.4, §9.8, §9.9) ---


def _widen_index(kw: int) -> np.ndarray:
    """For every halfword behind the bias pair the tap that it holds, ``kw`` where it holds zero (§9.8)."""
    positions = [*range(0, kw + 1, 2), *range(1, kw + 1, 2)]
    return np.array([tap if 0 <= tap < kw else kw for p in positions for tap in (p, p - 1)])


def _deal(array: np.ndarray, cores: int) -> np.ndarray:
    """View [core, slot, ...] of channels [channel, ...]: channel = slot * cores + core."""
    return array.reshape(-1, cores, *array.shape[1:]).swapaxes(0, 1)


def pack_unicast(layout: KernelLayout, weights: np.ndarray, bias: np.ndarray | None, streams: np.ndarray) -> None:
    """Fill ``streams`` with each channel's bias and taps, channel after channel."""
    slots = align(layout.cout, layout.cores) // layout.cores
    count = layout.channel_bytes // layout.element.itemsize
    copies = 2 if layout.widened else 1
    cells = np.zeros((layout.cout, count), layout.element)
    head = copies * layout.bias
    if bias is not None:
        cells[:, :head] = bias[:, None]
    taps = weights.reshape(layout.cout, layout.taps)
    cells[:, head:] = _shared(taps, layout.kw + 1, 1)[:, _widen_index(layout.kw)] if layout.widened else taps
    target = streams[:, layout.prefix : layout.prefix + slots * layout.channel_bytes].view(layout.element)
    target.reshape(layout.cores, slots, count)[...] = _deal(_shared(cells, slots * layout.cores, 0), layout.cores)


def unpack_unicast(layout: KernelLayout, streams: np.ndarray, where: str) -> Arrays:
    """The inverse of :func:`pack_unicast`."""
    slots = align(layout.cout, layout.cores) // layout.cores
    count = layout.channel_bytes // layout.element.itemsize
    source = streams[:, layout.prefix : layout.prefix + slots * layout.channel_bytes].view(layout.element)
    cells = np.empty((slots * layout.cores, count), layout.element)
    _deal(cells, layout.cores)[...] = source.reshape(layout.cores, slots, count)
    cells = cells[: layout.cout]
    head = (2 if layout.widened else 1) * layout.bias
    taps, bias = cells[:, head:], cells[:, 0].copy() if layout.bias else None
    if layout.widened:
        index = _widen_index(layout.kw)
        order = [int(np.flatnonzero(index == tap)[0]) for tap in range(layout.kw)]
        narrow = taps[:, order]
        if (taps != _shared(narrow, layout.kw + 1, 1)[:, index]).any() or (cells[:, :head] != cells[:, :1]).any():
            raise FormatError("a widened kernel whose two columns disagree is no plain kernel", where=where)
        taps = narrow
    return np.ascontiguousarray(taps).reshape(layout.weight_shape), bias


# ---- sparse (§9.6, §9.10) ---


def pack_sparse(layout: KernelLayout, weights: np.ndarray, bias: np.ndarray | None, prefix: bytes) -> list[bytes]:
    """The cores' streams; their sizes depend on the zeros among the weights."""
    cores = [sparse.bodies(layout, core) for core in range(layout.active)]
    alike: dict[tuple[int, int], list[sparse.StreamBody]] = {}
    for body in (body for bodies in cores for body in bodies):
        alike.setdefault((body.channels, body.lanes), []).append(body)
    order = sparse.tap_order(layout)
    encoded: dict[sparse.StreamBody, bytes] = {}
    for bodies in alike.values():
        count = max(1, AT_ONCE // (layout.cin * order.size * bodies[0].lanes))
        for some in (bodies[i : i + count] for i in range(0, len(bodies), count)):
            encoded.update(zip(some, sparse.encode(layout, weights, some, order)))
    chunks = []
    for bodies in cores:
        pieces = [prefix]
        for body in bodies:
            piece = encoded[body]
            if bias is not None:
                row = bias[body.first : body.first + body.channels]
                piece = _shared(row, body.lanes, 0).tobytes() + piece
            pieces.append(piece + bytes(-len(piece) % CHUNK_ALIGN) if layout.groups > 1 else piece)
        chunk = b"".join(pieces)
        chunks.append(chunk + bytes(-len(chunk) % CHUNK_ALIGN))
    return chunks


def unpack_sparse(layout: KernelLayout, chunks: list[np.ndarray], where: str) -> tuple[Arrays, tuple[int, ...]]:
    """The inverse of :func:`pack_sparse`, and the bytes that each core read."""
    order = sparse.tap_order(layout)
    weights = np.empty(layout.weight_shape, np.uint16)
    bias = np.empty(layout.weight_shape[0], np.uint16) if layout.bias else None
    ends = []
    for core, stream in enumerate(chunks):
        at = layout.prefix
        place = f"{where}, core {core}"
        for body in sparse.bodies(layout, core):
            if bias is not None:
                behind = at + 2 * body.lanes
                if behind > stream.size:
                    raise FormatError("a sparse stream ends in its bias", offset=at, where=place)
                row = stream[at:behind].view("<u2")
                bias[body.first : body.first + body.channels] = row[: body.channels]
                at = behind
            at = sparse.decode(layout, stream, at, weights, body, order, place)
            if layout.groups > 1:
                at = align(at, CHUNK_ALIGN)
        ends.append(align(at, CHUNK_ALIGN))
    return (weights, bias), tuple(ends)
