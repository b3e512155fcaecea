"""Strided copies put every element where the permutation says."""

from __future__ import annotations

import numpy as np
import pytest

from hexane.mil.grids import grids_of

RNG = np.random.default_rng(5)


def packed(cin: int, cout: int, lanes: int) -> np.ndarray:
    """Elements of [cout, cin] in blocks of lanes, as kernels are packed."""
    numbers = np.arange(cin * cout).reshape(cout // lanes, lanes, cin)
    return numbers.transpose(0, 2, 1).reshape(-1)


@pytest.mark.parametrize(
    ("at", "element"),
    [
        (np.arange(4096), packed(64, 64, 16)),
        (np.concatenate([np.arange(2048), np.arange(5000, 7048)]), packed(64, 64, 16)),
        (np.arange(4096), RNG.permutation(4096)),
        (np.sort(RNG.permutation(9000)[:4096]), packed(64, 64, 16)),
        (np.arange(1000), np.arange(1000)[::-1].copy()),
        (np.arange(7), np.full(7, 3)),
        (np.arange(1), np.zeros(1, int)),
        (np.zeros(0, int), np.zeros(0, int)),
        (np.arange(4096 + 333), np.concatenate([packed(64, 64, 16), RNG.integers(0, 4096, 333)])),
    ],
)
def test_every_element_is_copied(at: np.ndarray, element: np.ndarray) -> None:
    source = RNG.integers(0, 60000, max(1, element.max(initial=0) + 1)).astype(np.uint16)
    target, expected = np.zeros((2, 9100), np.uint16)
    expected[at] = source[element]
    grids = grids_of(at.astype(np.uint32), element.astype(np.uint32))
    grids.copy(source, target)
    assert np.array_equal(target, expected)
    assert grids.at.size + int((grids.table[:, 1] * grids.table[:, 2]).sum()) == at.size


def test_packed_kernels_take_few_copies() -> None:
    grids = grids_of(np.arange(1 << 16), packed(256, 256, 16))
    assert len(grids.table) <= 32
    assert grids.at.size == 0
