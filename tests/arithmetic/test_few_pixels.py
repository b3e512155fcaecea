"""Convolutions with few output pixels: kept weights give the bits of the plain statement and of unpacked ones."""

from __future__ import annotations

import numpy as np
import pytest

from hexane.arithmetic import convolution
from hexane.arithmetic import plain_convolution as plain
from hexane.arithmetic.fast import convolution as fast
from hexane.arithmetic.fast import few_pixels, targets
from hexane.arithmetic.function_tables import function_table

SIMD = [name for name in targets.SHAPES if name not in targets._NEEDED or targets._has(name)]
ACTIVATIONS = (None, "relu", np.asarray(function_table("sigmoid"), np.uint16))


def case(seed):
    rng = np.random.default_rng(seed)
    kernel = [(1, 1), (3, 3), (2, 5)][seed % 3]
    extent = tuple(k + int(n) for k, n in zip(kernel, rng.integers(0, 2, 2)))
    outputs = int(rng.integers(60, 150))
    channels = few_pixels.LEAST_WEIGHTS // (outputs * kernel[0] * kernel[1]) + int(rng.integers(1, 9))
    size = [1, 1 / 8, 1e-3, 30.0][seed % 4]
    w = (rng.normal(size=(outputs, channels, *kernel)) * size).astype(np.float16)
    x = rng.normal(size=(1 + seed % 2, channels, *extent)).astype(np.float16)
    if seed % 4 == 3:  # sums that meet the limit, infinities
        w[rng.random(w.shape) < 0.01] = 6e4
        x[rng.random(x.shape) < 0.01] = np.inf
    if seed % 5 == 0:
        x[rng.random(x.shape) < 0.6] = 0
    bias = rng.normal(size=outputs).astype(np.float16)
    window = plain.PlainWindow(kernel, (1 + seed % 2, 1), (1, 1), (0, 0, 0, 0), extent)
    return w, x, bias, window, ACTIVATIONS[seed % 3]


@pytest.mark.parametrize("simd", SIMD)
@pytest.mark.parametrize("seed", range(6))
def test_kept_weights_give_the_same_bits(seed, simd):
    w, x, bias, window, activation = case(seed)
    ready = fast.prepare(plain.Plain(w, bias, window, 1, 1.0, activation, False), targets.kernels(simd))
    assert isinstance(ready, few_pixels.FewPixels)
    before = ready(x).copy()
    assert ready.keep() > 4 * w.size
    out = np.zeros((*before.shape[:3], 32), np.float16)[..., : before.shape[3]]
    assert np.array_equal(ready(x, out).view(np.uint16), before.view(np.uint16))
    if simd == SIMD[0]:
        wanted = plain.Plain(w, bias, window, 1, 1.0, activation, False)(x)
        assert np.array_equal(before.view(np.uint16), wanted.view(np.uint16))


def test_what_has_many_pixels_or_few_weights_stays():
    x = np.zeros((1, 64, 3, 3), np.float16)
    for outputs, kernel in ((64, (3, 3)), (8, (3, 3)), (256, (1, 1))):
        ready = convolution.prepare(
            x.shape[1:], np.zeros((outputs, 64, *kernel), np.float16), None, strides=(1, 1), pads=(0, 0, 0, 0)
        )
        assert isinstance(ready, few_pixels.FewPixels) == (outputs == 64)
