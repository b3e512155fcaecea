"""Blocks of fp32 numbers become fp16 as NumPy has them, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from hexane.passes.halves import BLOCK, halves


def around_every_half() -> np.ndarray:
    """Every finite number of fp16, the middles between neighbours, and what is right beside either in fp32."""
    known = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    exact = np.concatenate((known, (known[1:] + known[:-1]) / 2))
    near = np.concatenate((exact, np.nextafter(exact, np.float32(0)), np.nextafter(exact, np.float32(65504))))
    return np.concatenate((near, -near))


def any_bits(count: int) -> np.ndarray:
    words = np.random.default_rng(0).integers(0, 1 << 32, count, np.uint32).view(np.float32)
    return words[np.abs(words) <= 65504]


@pytest.mark.parametrize("numbers", [around_every_half(), any_bits(1 << 20), np.zeros(BLOCK, np.float32)])
def test_the_bits_are_those_of_numpy(numbers):
    assert numbers.size >= BLOCK
    assert np.array_equal(halves(numbers).view(np.uint16), numbers.astype(np.float16).view(np.uint16))


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_every_size(size):
    numbers = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    made = halves(numbers)
    assert made.dtype == np.float16 and np.array_equal(made, numbers.astype(np.float16))


def test_shapes_and_strides_are_kept():
    numbers = np.random.default_rng(1).standard_normal((96, 4, 200)).astype(np.float32)
    for view in (numbers, numbers.T, numbers[::-1, :, ::2]):
        before = view.copy()
        made = halves(view)
        assert made.shape == view.shape and np.array_equal(made, view.astype(np.float16))
        assert np.array_equal(view, before)
