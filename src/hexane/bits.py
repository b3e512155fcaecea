"""Numbers of 1 to 8 bits side by side in bytes, least significant bit first, in MIL files and kernel streams; bfloat16.

Widths that do not divide 8 straddle bytes: eight 3-bit numbers fill three bytes, four 6-bit numbers do
(docs/reference/compressed.md).
"""

from __future__ import annotations

from math import lcm

import numpy as np

from hexane.errors import UsageError
from hexane.rounding import ceil_div


def bf16_values(words: np.ndarray) -> np.ndarray:
    """The numbers of bfloat16's words (uint16) as float32, which holds all of them: its upper halves."""
    return (words.astype(np.uint32) << 16).view(np.float32)


def in_bf16(array: np.ndarray) -> np.ndarray:
    """Numbers rounded to bfloat16, ties to even, as float32."""
    array = np.asarray(array, np.float32)
    words = array.view(np.uint32)
    nearest = (words + np.uint32(0x7FFF) + (words >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(array), np.float32(np.nan), nearest.view(np.float32))


def packed_bytes(count: int, bits: int) -> int:
    """Bytes that ``count`` numbers of ``bits`` bits take."""
    return ceil_div(count * bits, 8)


def pack_bits(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Pack along the last axis: unsigned numbers below 2^bits to ``uint8[..., ceil(count * bits / 8)]``.

    What is left of the last byte is zero. Raises `UsageError` for a number that does not fit.
    """
    numbers = np.asarray(numbers)
    if numbers.size and (int(numbers.max()) >> bits or int(numbers.min()) < 0):
        raise UsageError(f"{int(numbers.max())} does not fit in {bits} bits", where="pack_bits")
    numbers = numbers.astype(np.uint8, copy=False)
    if bits == 8:
        return np.ascontiguousarray(numbers)
    count = numbers.shape[-1]
    per_word, word_bytes = _word(bits)
    words = ceil_div(count, per_word)
    padded = np.zeros((*numbers.shape[:-1], words * per_word), np.uint8)
    padded[..., :count] = numbers
    lanes = padded.reshape(*numbers.shape[:-1], words, per_word)
    joined = np.zeros(lanes.shape[:-1], np.uint32)
    for lane in range(per_word):
        joined |= lanes[..., lane].astype(np.uint32) << np.uint32(bits * lane)
    packed = np.empty((*joined.shape, word_bytes), np.uint8)
    for byte in range(word_bytes):
        packed[..., byte] = joined >> np.uint32(8 * byte)
    return packed.reshape(*numbers.shape[:-1], words * word_bytes)[..., : packed_bytes(count, bits)]


def unpack_bits(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The inverse of `pack_bits` along the last axis: ``uint8[..., count]``. Raises `UsageError` for too few bytes."""
    packed = np.asarray(packed, np.uint8)
    needed = packed_bytes(count, bits)
    if packed.shape[-1] < needed:
        raise UsageError(
            f"{packed.shape[-1]} bytes hold fewer than {count} numbers of {bits} bits", where="unpack_bits"
        )
    if bits == 8:
        return np.ascontiguousarray(packed[..., :count])
    per_word, word_bytes = _word(bits)
    words = ceil_div(count, per_word)
    padded = np.zeros((*packed.shape[:-1], words * word_bytes), np.uint8)
    padded[..., :needed] = packed[..., :needed]
    lanes = padded.reshape(*packed.shape[:-1], words, word_bytes)
    fields = np.zeros(lanes.shape[:-1], np.uint32)
    for byte in range(word_bytes):
        fields |= lanes[..., byte].astype(np.uint32) << np.uint32(8 * byte)
    numbers = np.empty((*fields.shape, per_word), np.uint8)
    for lane in range(per_word):
        numbers[..., lane] = fields >> np.uint32(bits * lane) & np.uint32((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], words * per_word)[..., :count]


def _word(bits: int) -> tuple[int, int]:
    """Numbers, and bytes, of the smallest group that fills whole bytes."""
    if not 1 <= bits <= 8:
        raise UsageError(f"numbers of {bits} bits are not packed here", hint="1 to 8", where="bits")
    whole = lcm(bits, 8)
    return whole // bits, whole // 8


def in_dtype(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """``array.astype(dtype, copy=False)`` without warnings: the same bits, also where float32 leaves fp16's range.

    NumPy takes 60 ns for every number that fp16 cannot hold, 4 ns for others, so those are brought to numbers that it
    holds first: to infinity, or to a multiple of 2^-24, ties to even. A thousand numbers tell whether that pays.
    """
    with np.errstate(all="ignore"):
        if dtype == np.float16 and array.dtype == np.float32:
            some = np.abs(array.reshape(-1)[:: max(1, array.size // 1024)])
            if ((some < _SMALLEST_NORMAL) & (some > 0) | (some >= _BEYOND)).any():
                size = np.abs(array)
                nearest = (size + _TIES) - _TIES  # float32 counts in steps of 2^-24 from 0.5 to 1
                nearest = np.where(
                    size < _SMALLEST_NORMAL, nearest, np.where(size >= _BEYOND, np.float32(np.inf), size)
                )
                array = np.asarray(np.copysign(nearest, array))
        return array.astype(dtype, copy=False)


_SMALLEST_NORMAL, _BEYOND, _TIES = np.float32(2.0**-14), np.float32(65520), np.float32(0.75)
