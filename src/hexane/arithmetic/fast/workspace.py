"""Memory for packed operands, kept between calls: a fresh page costs more to touch than its content to compute."""

from __future__ import annotations

import math
from threading import Lock
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hexane.rounding import align

KEPT_BYTES = 128 << 20
"""What stays allocated between calls, at most."""

_free: dict[int, list[np.ndarray]] = {}
"""Buffers by size."""
_lock = Lock()
_kept = 0


class Room:
    """Arrays that live as long as somebody holds them."""

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """An array of undefined content, at the start of a cache line."""
        kind: np.dtype[Any] = np.dtype(dtype)
        size = kind.itemsize * (math.prod(shape) if isinstance(shape, tuple) else shape)
        return self._take(size)[:size].view(kind).reshape(shape)

    def full(self, shape: int | tuple[int, ...], value: float, dtype: DTypeLike) -> np.ndarray:
        """The same, filled."""
        array = self.empty(shape, dtype)
        array.fill(value)
        return array

    def _take(self, size: int) -> np.ndarray:
        return _aligned(size)


class Workspace(Room):
    """Arrays that live until the end of a `with` block."""

    def __init__(self) -> None:
        self._taken: list[np.ndarray] = []

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        global _kept
        if kind is not None:  # nobody else gets memory that an unfinished computation wrote to
            self._taken = []
            return
        with _lock:
            for buffer in self._taken:
                if _kept + buffer.size > KEPT_BYTES:
                    _free.clear()
                    _kept = 0
                if buffer.size <= KEPT_BYTES:
                    _free.setdefault(buffer.size, []).append(buffer)
                    _kept += buffer.size
        self._taken = []

    def _take(self, size: int) -> np.ndarray:
        global _kept
        size = _rounded(size)
        with _lock:
            same = _free.get(size)
            buffer = same.pop() if same else None
            _kept -= size if buffer is not None else 0
        if buffer is None:
            buffer = _aligned(size)
        self._taken.append(buffer)
        return buffer


def _aligned(size: int) -> np.ndarray:
    buffer = np.empty(size + 64, np.uint8)
    skip = -buffer.ctypes.data % 64
    return buffer[skip : skip + size]


def _rounded(size: int) -> int:
    """Up to the next of the sizes that buffers have, so that they fit again: an eighth more at most."""
    step = max(4096, 1 << max(0, size.bit_length() - 4))
    return align(size, step)
