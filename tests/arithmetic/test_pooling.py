"""Maxima over windows against the largest of the taps, as floats."""

from __future__ import annotations

import numpy as np
import pytest

from hexane.arithmetic.formats import canonical
from hexane.arithmetic.pooling import largest_in_windows


def by_taps(x, window, strides, pads, out):
    padded = np.full((*x.shape[:-2], pads[0] + x.shape[-2] + 20, pads[1] + x.shape[-1] + 20), -np.inf, np.float32)
    padded[..., pads[0] : pads[0] + x.shape[-2], pads[1] : pads[1] + x.shape[-1]] = canonical(x).astype(np.float32)
    taps = [
        padded[..., ky :: strides[0], kx :: strides[1]][..., : out[0], : out[1]]
        for ky in range(window[0])
        for kx in range(window[1])
    ]
    return np.max(taps, axis=0).astype(np.float16)


@pytest.mark.parametrize("seed", range(20))
def test_every_bit_pattern(seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 1 << 16, (*rng.integers(1, 5, 2), *rng.integers(1, 20, 2)), dtype=np.uint16).view(np.float16)
    window, strides = tuple(rng.integers(1, 6, 2)), tuple(rng.integers(1, 4, 2))
    pads = tuple(int(rng.integers(0, k)) for k in window)
    out = tuple(max(1, -(-(n + p) // s)) for n, p, s in zip(x.shape[-2:], pads, strides))
    found, wanted = (f(x, window, strides, pads, out) for f in (largest_in_windows, by_taps))
    assert np.array_equal(found.view(np.uint16), wanted.view(np.uint16))
