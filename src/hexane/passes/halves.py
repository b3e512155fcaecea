"""fp32 to fp16 by whole blocks: NumPy converts number by number where a processor's own conversion is not compiled in.

A number that is added to the power of two 13 places above its own leading bit is rounded to fp16's last place by the
addition itself, to nearest and ties to even. What is left is arithmetic on integers.
"""

from __future__ import annotations

import numpy as np

BLOCK = 1 << 15  # numbers at a time, so that they stay in the cache; fewer are left to NumPy
EXPONENT, SIGN = 0x7F800000, 0x8000
SMALLEST = 113  # exponent field of 2^-14: below it all of fp16 has one last place
PLACES = 13  # bits of mantissa that fp16 lacks


def halves(numbers: np.ndarray) -> np.ndarray:
    """Numbers, none of them NaN and none beyond 65504, as float16: the bits of ``astype(np.float16)``."""
    if numbers.size < BLOCK or numbers.dtype != np.float32:
        return numbers.astype(np.float16)
    flat = np.ascontiguousarray(numbers).reshape(-1)
    words, half = flat.view(np.uint32), np.empty(flat.size, np.uint16)
    powers, sums = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.float32)
    for at in range(0, flat.size, BLOCK):
        word, result = words[at : at + BLOCK], half[at : at + BLOCK]
        power, rounded = powers[: word.size], sums[: word.size]
        bits = rounded.view(np.uint32)
        np.bitwise_and(word, EXPONENT, out=power)
        np.maximum(power, SMALLEST << 23, out=power)
        power += PLACES << 23
        np.absolute(flat[at : at + BLOCK], out=rounded)
        rounded += power.view(np.float32)
        bits -= power  # the mantissa with its leading one, counted in last places
        power >>= PLACES
        bits += power
        np.right_shift(word, 16, out=power)
        power &= SIGN
        bits += power
        np.subtract(bits, (SMALLEST + PLACES) << 10, out=result, casting="unsafe")
    return half.view(np.float16).reshape(numbers.shape)
