"""Memory for packed operands, kept between calls: a fresh page costs more to touch than its content to compute."""

from __future__ import annotations

from threading import Lock
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

KEPT_BYTES = 128 << 20
"""What stays allocated between calls, at most."""

_free: list[np.ndarray] = []
_lock = Lock()


class Workspace:
    """Arrays that live until the end of a `with` block."""

    def __init__(self) -> None:
        self._taken: list[np.ndarray] = []

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with _lock:
            _free.extend(self._taken)
            _free.sort(key=lambda buffer: buffer.nbytes)
            while sum(buffer.nbytes for buffer in _free) > KEPT_BYTES:
                _free.pop()
        self._taken = []

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """An array of undefined content, at the start of a cache line."""
        kind: np.dtype[Any] = np.dtype(dtype)
        size = int(np.prod(shape)) * kind.itemsize
        buffer = self._take(size + 64)
        skip = -buffer.ctypes.data % 64
        return buffer[skip : skip + size].view(kind).reshape(shape)

    def full(self, shape: int | tuple[int, ...], value: float, dtype: DTypeLike) -> np.ndarray:
        """The same, filled."""
        array = self.empty(shape, dtype)
        array.fill(value)
        return array

    def _take(self, size: int) -> np.ndarray:
        with _lock:
            for i, buffer in enumerate(_free):
                if size <= buffer.nbytes <= 2 * size + 4096:
                    self._taken.append(_free.pop(i))
                    return buffer
        buffer = np.empty(size, np.uint8)
        self._taken.append(buffer)
        return buffer
