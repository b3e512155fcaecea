"""IOSurfaces: the memory behind inputs and outputs, seen from here as NumPy views while they are locked.

One-dimensional, as every public runner makes them: width = bytes per row = allocation, height 1, one byte per element,
pixel format 0; data packed from byte 0 (docs/private-api.md, "Surfaces").
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from hexane.runtime.macos.border import BorderError, SystemBorder
from hexane.runtime.macos.foundation import Objects

READ_ONLY = 1
"""kIOSurfaceLockReadOnly."""


class SharedSurface:
    """An IOSurface of ``nbytes``; ``pointer`` is its reference. Close it when nothing uses it any more."""

    def __init__(self, border: SystemBorder, nbytes: int) -> None:
        self.border = border
        self.nbytes = nbytes
        form = {
            "kIOSurfaceWidth": nbytes,
            "kIOSurfaceHeight": 1,
            "kIOSurfaceBytesPerElement": 1,
            "kIOSurfaceBytesPerRow": nbytes,
            "kIOSurfaceAllocSize": nbytes,
            "kIOSurfacePixelFormat": 0,
        }
        with Objects(border) as objects:
            properties = objects.dictionary(
                {border.constant(key): objects.number(value) for key, value in form.items()}
            )
            self.pointer = border.call("IOSurfaceCreate", properties)
        if not self.pointer:
            raise BorderError(f"there is no surface of {nbytes} bytes to be had", hint="memory may be short")
        allocated = border.call("IOSurfaceGetAllocSize", self.pointer)
        if allocated < nbytes:
            self.close()
            raise BorderError(f"a surface of {nbytes} bytes came with {allocated}")

    @contextmanager
    def bytes(self, *, read_only: bool = False) -> Iterator[np.ndarray]:
        """The memory as bytes, locked for the host; the view ends with the block."""
        flags = READ_ONLY if read_only else 0
        self._done(self.border.call("IOSurfaceLock", self.pointer, flags, 0), "locked")
        try:
            base = self.border.call("IOSurfaceGetBaseAddress", self.pointer)
            if not base:
                raise BorderError("a locked surface has no address")
            yield self.border.memory(base, self.nbytes)
        finally:
            if self.border.call("IOSurfaceUnlock", self.pointer, flags, 0):  # a lock that stays spoils every later call
                self._done(self.border.call("IOSurfaceUnlock", self.pointer, flags, 0), "unlocked")

    def _done(self, result: int, what: str) -> None:
        if result:
            raise BorderError(f"a surface could not be {what} (IOReturn {result & 0xFFFFFFFF:#010x})")

    def close(self) -> None:
        """Give the memory back."""
        if self.pointer:
            pointer, self.pointer = self.pointer, 0
            self.border.call("CFRelease", pointer)
