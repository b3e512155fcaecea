"""Places in L2: strides and bank-conflict pads (docs/reference/engine-h13.md 7.1 to 7.3)."""

from __future__ import annotations

from functools import cache

from hexane.codegen.plan import Region
from hexane.isa.granules import UNIT
from hexane.rounding import align

BANKS = 64
MOST_PAD = 5 * UNIT
"""Bytes that a row pad takes at most."""
RESULT_ROOM = 4 << 10
"""Bytes left for an automatic result buffer."""
RING_ROOM = 32 << 10
"""Bytes left for the rows that a streamed source or result holds."""


def channel_stride(width: int, element: int = 2) -> int:
    """Bytes from one channel to the next when whole rows of ``width`` stand in L2 (§7.1)."""
    return align(width * element, UNIT)


def odd_channel_stride(width: int) -> int:
    """Channel stride of a transposed copy that feeds a product: an odd number of 16-byte units (§7.1)."""
    units = align(2 * width, UNIT) // UNIT
    return (units | 1) * UNIT


def ne_window(width: int, element: int = 2, *, pixels: int = 128) -> int:
    """Channel stride of a streamed NE source: whole rows up to 128 px, else a window (§7.1).

    ``pixels``: 128 for each step, of a transposing copy with ShPref 3 ``max(32, 128 >> ShMin)``, and the halo of a
    kernel wider than 1.
    """
    if width <= 128:
        return channel_stride(width, element)
    return align(min(pixels, align(width, 128)) * element, UNIT)


def pe_window(width: int, patch_log2: int, element: int = 2) -> int:
    """The same for a PE source: the row, or the patch's 512 or 32 pixels (§7.1)."""
    if width <= 256:
        return channel_stride(width, element)
    return min(channel_stride(width, element), (1 << patch_log2) * element)


def pe_pad(row: int, channel: int, *, reduction: bool = False, height: int = 2, resident: bool = False) -> int:
    """Row pad in bytes of a PE source (§7.2)."""
    if reduction and resident and height == 1:
        return 0
    if channel > 0x80 or (channel == 0x80 and not reduction):
        return 0
    bad = {0, 1} if channel == 0x80 else {0, 1, 32}
    return next(p for p in range(4) if (row // UNIT + p) % BANKS not in bad) * UNIT


def kept_pad(row: int, channel: int, width: int, height: int, shape: tuple[int, int, int]) -> int:
    """Row pad in bytes of what the cores leave in L2 for a planar task, which takes its own pad besides.

    The first rows of every patch that the cores may write, no wider than the map, share no bank (five shapes of maps).
    """
    if channel > 8 * UNIT:
        return 0
    _, low, s = shape
    patches = [t for t in range(low, s + 1) if 128 >> t <= width] or [s]
    for pad in range(BANKS):
        r = (row // UNIT + pad) % BANKS
        if r not in (0, 1, 32) and all(
            _free_of_conflicts(r, min(1 << t, height), min(16 >> t, channel // UNIT)) for t in patches
        ):
            return pad * UNIT
    return 0


def ne_pad(
    row: int,
    height: int,
    shape: tuple[int, int, int],
    width: int,
    *,
    small: bool = False,
    stride: int = 1,
    transposed: bool = False,
    narrow: bool = False,
    pixels: int = 128,
) -> int:
    """Row pad in bytes of an untiled NE source (§7.2): the first rows of every candidate patch share no bank.

    ``transposed``: a copy that transposes, whose cores see several inputs, its patch may be taller than its map.
    ``narrow``: the task reads no more than its patch's own cells. ``pixels``: of a patch.
    """
    if height == 1 and not small and not transposed:
        return 0
    if stride == 2:
        return 0x20 if width <= 32 else 0x30
    pref, low, s = shape
    if pref == low == s or small:
        patches = [(s, min(s, 3))]
    else:
        lowest = low if pref else 2
        candidates = [t for t in range(lowest, s + 1) if (pixels >> t) <= width]
        candidates = candidates or [s] * (pixels >> s <= 16)
        patches = [(t, min(t, 3)) for t in candidates]
    rows_in_map = max(height, 8) if small else 1 << s if transposed and height == 1 else height
    reads = [(1 << t, (16 >> s) + 1 if narrow else max(3, (16 >> t) + 1)) for s, t in patches if t > 1]
    for pad in range(BANKS):
        r = row // UNIT + pad
        if all(_free_of_conflicts(r % BANKS, min(rows, rows_in_map), units) for rows, units in reads):
            return pad * UNIT
    return 0


@cache
def _free_of_conflicts(r: int, rows: int, units: int) -> bool:
    """True where the first ``units`` of rows that are ``r`` units apart, below ``BANKS``, share no bank."""
    used: set[int] = set()
    for i in range(rows):
        banks = {(i * r + k) % BANKS for k in range(units)}
        if len(banks) < units or used & banks:
            return False
        used |= banks
    return True


def patch_pad(block: int, shape: int, *, fat: bool = False) -> int:
    """Row pad in bytes of a result whose patches the cores write: rows of a patch share no bank (two powers on H18)."""
    units = align((128 << fat) >> shape, UNIT // 2) * 2 // UNIT
    free = (pad for pad in range(BANKS) if _free_of_conflicts((block // UNIT + pad) % BANKS, 1 << shape, units))
    return UNIT * next(free, 0)


def column_pad(block: int, width: int) -> int:
    """Pad in bytes of a channel of which 16 are read at once, each ``width`` pixels: they share no bank."""
    units = min(2, channel_stride(width) // UNIT)
    free = (pad for pad in range(BANKS) if _free_of_conflicts((block // UNIT + pad) % BANKS, 16, units))
    return UNIT * next(free, 0)


def second_operand_base(end: int) -> int:
    """Base of the second operand behind the first: its bank is at least 4 (§7.3)."""
    base = end
    while (base // UNIT) % BANKS < 4:
        base += UNIT
    return base


def dma_region(base: int, channels: int, channel: int, pad: int = 0) -> Region:
    """Region of a source that comes by DMA: depth and group step over all channels (§7.1)."""
    block = channels * channel
    return Region(base, channel, block + pad, block, block)


def planar_map(channels: int, height: int, width: int, images: int = 1) -> Region:
    """A map of fp16 at 0 that a planar task finds in L2: its rows are padded where there are several (§7.2)."""
    channel = channel_stride(width)
    block = channels * channel
    row = block + (pe_pad(block, channel) if height > 1 else 0)
    return Region(0, channel, row, block, height * row if images > 1 else 0)
