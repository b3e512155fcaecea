"""Kernels whose operands and packed copies end, or begin, at memory that nobody may touch.

    python -m arithmetic.guards SEED COUNT       (from the folder tests; Linux)

A read or write one byte outside ends the process with SIGSEGV; results are compared with the plain statement.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

import numpy as np

from hexane import arithmetic
from hexane.arithmetic.fast import workspace

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
PAGE, READ_WRITE, PRIVATE_ANONYMOUS = mmap.PAGESIZE, 3, 0x22


class Guarded:
    """Arrays between two pages that nobody may touch; gone with `close`."""

    def __init__(self) -> None:
        self.maps: list[tuple[int, int]] = []

    def array(self, like: np.ndarray, at_end: bool) -> np.ndarray:
        """A copy that ends right before the second page, or begins right behind the first."""
        size = like.nbytes
        inner = -(-max(size, 1) // PAGE) * PAGE
        base = libc.mmap(None, inner + 2 * PAGE, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0)
        if libc.mprotect(base, PAGE, 0) or libc.mprotect(base + PAGE + inner, PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
        self.maps.append((base, inner + 2 * PAGE))
        place = (ctypes.c_uint8 * size).from_address(base + PAGE + (inner - size if at_end else 0))
        made = np.frombuffer(place, like.dtype).reshape(like.shape)
        made[...] = like
        return made

    def buffer(self, size: int) -> np.ndarray:
        """Memory of the workspace: it begins at a cache line, so that up to 63 bytes lie before the page."""
        return self.array(np.zeros(size + -size % 64, np.uint8), True)[:size]

    def close(self) -> None:
        workspace._free.clear()
        workspace._kept = 0
        for base, size in self.maps:
            libc.munmap(base, size)
        self.maps.clear()


def one(guarded: Guarded, rng: np.random.Generator) -> str:
    """A product of bytes or a convolution of drawn size, compared with the plain statement."""
    end = bool(rng.integers(2))

    def given(array: Any, dtype: Any) -> np.ndarray:
        return guarded.array(np.asarray(array).astype(dtype), end)

    if rng.random() < 0.4:
        m, k, n = (int(v) for v in rng.integers(1, 60, 3))
        x, w = given(rng.integers(-128, 128, (m, k)), np.int8), given(rng.integers(-128, 128, (k, n)), np.int8)
        assert np.array_equal(arithmetic.mac_int8(x, w, 0.01), arithmetic.mac_int8(x, w, 0.01, exact=True))
        return "int8 products"
    c, o, h, width = (int(v) for v in rng.integers(1, 24, 4))
    kh = int(rng.choice([1, 3]))
    form = "winograd" if rng.random() < 0.7 else "direct"
    x = given(rng.standard_normal((1, c, h + 2, width + 2)), np.float16)
    w = given(rng.standard_normal((o, c, kh, 3)) / 8, np.float16)
    bias, pads = given(rng.standard_normal(o), np.float16), tuple(int(v) for v in rng.integers(0, 3, 4))
    got = arithmetic.conv2d(x, w, bias, pads=pads, form=form)
    if c * o * h * width < 3000:
        assert np.array_equal(got, arithmetic.conv2d(x, w, bias, pads=pads, form=form, exact=True), equal_nan=True)
    return f"{form} convolutions"


def main() -> None:
    guarded, rng = Guarded(), np.random.default_rng(int(sys.argv[1]))
    workspace._aligned = guarded.buffer
    workspace._rounded = lambda size: size
    counts: dict[str, int] = {}
    for _ in range(int(sys.argv[2])):
        kind = one(guarded, rng)
        counts[kind] = counts.get(kind, 0) + 1
        guarded.close()
    print(counts)


if __name__ == "__main__":
    main()
