"""Dense streams whose passes are not plain rows of elements: palettes, scales of outputs, bias beside 8-bit weights.

Behind the prefix every pass of a core is ``[bias row][scale row][coefficients]``: rows of one halfword per lane, then
the coefficients of all inputs and taps, output fastest, each in as many bits as the layout says. Nothing is aligned
inside; a group's part and the chunk end on 64 bytes (docs/reference/compressed.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hexane.bits import pack_bits, packed_bytes, unpack_bits
from hexane.kernels.layout import CHUNK_ALIGN, KernelLayout, Pass
from hexane.rounding import align


@dataclass
class KernelParts:
    """Contents of the streams, as unsigned integers: elements [O, I, kh, kw], rows [O] or None."""

    elements: np.ndarray
    bias: np.ndarray | None = None
    scales: np.ndarray | None = None


def pack_compressed(layout: KernelLayout, parts: KernelParts, prefix: bytes) -> list[bytes]:
    """The stream of every core that is switched on."""
    elements = parts.elements.reshape(-1, layout.taps)
    chunks = []
    for core in range(layout.active):
        chunk = bytearray(prefix)
        for group in range(layout.groups):
            start = len(chunk)
            for step in layout.passes():
                own = _channels(layout, group, step, core)
                if not len(own):
                    continue
                for row in (parts.bias, parts.scales):
                    if row is not None:
                        chunk += _row(row, own, step).tobytes()
                block = np.zeros((layout.taps, step.lanes), elements.dtype)
                block[:, : len(own)] = elements[own.start : own.stop].T
                chunk += pack_bits(block.reshape(-1), layout.bits).tobytes()
            chunk += bytes(-(len(chunk) - start) % 64)
        chunks.append(bytes(chunk))
    return chunks


def unpack_compressed(layout: KernelLayout, chunks: list[np.ndarray]) -> KernelParts:
    """The inverse; the chunks are long enough (`KernelLayout.least_bytes`)."""
    outputs = layout.weight_shape[0]
    parts = KernelParts(
        np.zeros((outputs, layout.taps), np.uint8),
        np.zeros(outputs, "<u2") if layout.bias else None,
        np.zeros(outputs, "<u2") if layout.scales else None,
    )
    for core, chunk in enumerate(chunks):
        at = layout.prefix
        for group in range(layout.groups):
            start = at
            for step in layout.passes():
                own = _channels(layout, group, step, core)
                if not len(own):
                    continue
                here = slice(own.start, own.stop)
                for row in (parts.bias, parts.scales):
                    if row is not None:
                        row[here] = chunk[at : at + 2 * step.lanes].view("<u2")[: len(own)]
                        at += 2 * step.lanes
                size = packed_bytes(layout.taps * step.lanes, layout.bits)
                block = unpack_bits(chunk[at : at + size], layout.bits, layout.taps * step.lanes)
                parts.elements[here] = block.reshape(layout.taps, step.lanes)[:, : len(own)].T
                at += size
            at = start + align(at - start, CHUNK_ALIGN)
    parts.elements = parts.elements.reshape(layout.weight_shape)
    return parts


def _channels(layout: KernelLayout, group: int, step: Pass, core: int) -> range:
    """Output channels that a core computes in a pass, over all groups."""
    first = step.first + core * step.lanes
    count = max(0, min(step.lanes, layout.cout - first))
    return range(group * layout.cout + first, group * layout.cout + first + count)


def _row(row: np.ndarray, own: range, step: Pass) -> np.ndarray:
    lanes = np.zeros(step.lanes, "<u2")
    lanes[: len(own)] = row[own.start : own.stop]
    return lanes


def palette_head(entries: np.ndarray, layout: KernelLayout) -> bytes:
    """The palette in units of 64 bytes: fp16 entries from its start, zeros behind."""
    return entries.astype("<f2", copy=False).tobytes().ljust(layout.palette_bytes, b"\0")


def indices_of(values: np.ndarray, palette: np.ndarray) -> np.ndarray | None:
    """For every value the first entry of the palette with its bits, None where one is in no entry."""
    order = np.argsort(palette.view(np.uint16), kind="stable")
    sorted_values = palette.view(np.uint16)[order]
    bits = values.view(np.uint16)
    at = np.searchsorted(sorted_values, bits)
    at = np.minimum(at, len(sorted_values) - 1)
    if not np.array_equal(sorted_values[at], bits):
        return None
    return order[at].astype(np.uint8)
