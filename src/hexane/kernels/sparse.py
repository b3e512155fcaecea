"""The body of a sparse stream: a mask byte for eight elements, then the elements that are not zero (§9.6).

The unit skips zeros. What counts as an element's zero is its bit pattern, so -0.0 is stored.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from hexane.errors import FormatError
from hexane.kernels.layout import MASK_ELEMENTS, align

LENGTH_BYTES = 3
"""Before every body stands its length as a little-endian number of 24 bits."""


def encode(values: np.ndarray, binary: bool = False) -> list[bytes]:
    """Rows of halfwords as bodies, their length in front.

    Parameters
    ----------
    values : uint16 array [rows, elements].
    binary : masks only.
    """
    rows, count = values.shape
    groups = -(-count // MASK_ELEMENTS)
    cells = np.zeros((rows, groups * MASK_ELEMENTS), "<u2")
    cells[:, :count] = values
    cells = cells.reshape(rows, groups, MASK_ELEMENTS)
    present = cells != 0
    masks = np.packbits(present, axis=-1, bitorder="little")
    if binary:
        return [len(row).to_bytes(LENGTH_BYTES, "little") + row.tobytes() for row in masks[..., 0]]
    record = np.empty((rows, groups, 1 + 2 * MASK_ELEMENTS), np.uint8)
    record[..., :1] = masks
    record[..., 1:] = cells.view(np.uint8)
    keep = np.empty(record.shape, bool)
    keep[..., 0] = True
    keep[..., 1::2] = present
    keep[..., 2::2] = present
    stream = record[keep]
    lengths = groups + 2 * np.count_nonzero(present, axis=(1, 2))
    ends = np.cumsum(lengths)
    return [
        int(length).to_bytes(LENGTH_BYTES, "little") + stream[end - length : end].tobytes()
        for length, end in zip(lengths, ends)
    ]


def decode(stream: np.ndarray, at: int, out: np.ndarray, binary: bool = False, where: str = "kernel") -> int:
    """Read one body that starts (with its length) at byte ``at``; fills ``out`` and gives the byte behind the body.

    Parameters
    ----------
    stream : uint8 array, one core's stream.
    out : uint16 array [elements]; with ``binary`` it receives 0 and 1.

    Raises
    ------
    FormatError : the body ends before its last element, reaches beyond the stream, or has bytes left over.
    """
    if at + LENGTH_BYTES > stream.size:
        raise FormatError("a sparse stream ends before the length of its body", offset=at, where=where)
    length = int.from_bytes(stream[at : at + LENGTH_BYTES].tobytes(), "little")
    start, end = at + LENGTH_BYTES, at + LENGTH_BYTES + length
    if end > stream.size:
        raise FormatError(
            f"a sparse body of {length} bytes reaches beyond its stream of {stream.size}", offset=at, where=where
        )
    body = stream[start:end]
    count = out.size
    groups = -(-count // MASK_ELEMENTS)
    if binary:
        used = groups
        if length >= groups:
            bits = np.unpackbits(body[:groups], bitorder="little")
            out[:] = bits[:count]
            overhang = bits[count:].any()
    else:
        full = np.zeros(align(count, MASK_ELEMENTS), np.uint16)
        used = _expander()(body, groups, full)
        out[:] = full[:count]
        overhang = full[count:].any()
    if used != length or used < 0:
        what = "does not hold all its elements" if used < 0 or used > length else f"has {length - used} bytes too many"
        raise FormatError(f"a sparse body of {length} bytes {what} ({count} expected)", offset=at, where=where)
    if overhang:
        raise FormatError("a sparse body has values behind its last element", offset=at, where=where)
    return end


@cache
def _expander():
    """The walk from mask to mask, compiled: the place of a mask depends on all masks before it."""
    from numba import njit

    @njit(cache=True)
    def expand(body, groups, out):
        at = 0
        size = body.size
        for group in range(groups):
            if at >= size:
                return -1
            mask = body[at]
            at += 1
            for bit in range(8):
                if mask >> bit & 1:
                    if at + 2 > size:
                        return -1
                    out[group * 8 + bit] = np.uint16(body[at]) | (np.uint16(body[at + 1]) << 8)
                    at += 2
        return at

    return expand
