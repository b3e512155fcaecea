"""Strided views of byte memories: bounds, overlap, and the view itself, for all five axes at once.

Every tensor that a task touches, in DRAM or in L2, is a set of elements at
``base + g*group + d*depth + c*channel + h*row + x*element`` (docs/reference/engine-h13.md 8.6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided


class Extent(NamedTuple):
    """Sizes along groups, depth, channels, height and width."""

    g: int
    d: int
    c: int
    h: int
    w: int

    def transposed(self) -> Extent:
        """The extent of the stored tensor where channels and width change places."""
        return self._replace(c=self.w, w=self.c)

    def __str__(self) -> str:
        return f"{self.g}x{self.d}x{self.c}x{self.h}x{self.w}"


def last_byte(base: int, shape: Sequence[int], strides: Sequence[int], element: int) -> int:
    """The byte address one past the highest element (all strides are 0 or more)."""
    return base + sum((n - 1) * s for n, s in zip(shape, strides)) + element


def strided(memory: np.ndarray, base: int, shape: Sequence[int], strides: Sequence[int], element: int) -> np.ndarray:
    """A view of ``memory`` (1-D uint8) as unsigned integers of ``element`` bytes. The caller has checked the bounds."""
    return np.ndarray(shape, _UNSIGNED[element], memory, base, strides)


_UNSIGNED: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}


def overlaps_itself(shape: Sequence[int], strides: Sequence[int], element: int) -> bool:
    """True where two elements of a strided tensor share a byte."""
    axes = sorted((s, n) for n, s in zip(shape, strides) if n > 1)
    reach = element
    for stride, count in axes:
        if stride < reach:
            return not _all_distinct(axes, element)
        reach = stride * (count - 1) + reach
    return False


MOST_MARKS = 1 << 30
"""Bytes that the exact answer below may mark; no buffer that the emulator holds comes near."""


def _all_distinct(axes: list[tuple[int, int]], element: int) -> bool:
    """The exact answer for strides that are not nested (interleaved pairs, for example): mark all places and count."""
    if axes[0][0] == 0:
        return False
    unit = element if all(stride % element == 0 for stride, _ in axes) else 1
    places = [(stride // unit, size) for stride, size in axes] + ([(1, element)] if unit != element else [])
    span = sum((size - 1) * stride for stride, size in places) + 1
    if span > MOST_MARKS:
        return False
    marks = np.zeros(span, np.bool_)
    as_strided(marks, [size for _, size in places], [stride for stride, _ in places])[...] = True
    return int(np.count_nonzero(marks)) == math.prod(size for _, size in places)
