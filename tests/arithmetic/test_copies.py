"""Copies between views whose axes stand in any order, with gaps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexane.arithmetic.fast.copy import copy, together

ORDERS = st.permutations(range(5))


def view(shape: tuple[int, ...], order: list[int], gap: int, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """A view whose axes stand in memory in an order, and the behind of each of its lines."""
    sizes = [shape[axis] for axis in order]
    room = np.full((*sizes[:-1], sizes[-1] + gap), 7, dtype)
    return room[..., : sizes[-1]].transpose(np.argsort(order)), room[..., sizes[-1] :]


@pytest.mark.parametrize("dtype", [np.uint16, np.uint8])
@given(
    shape=st.tuples(*[st.integers(1, 4)] * 2, *[st.integers(1, 70)] * 3).filter(lambda s: np.prod(s) < 20000),
    orders=st.tuples(ORDERS, ORDERS), gaps=st.tuples(st.integers(0, 3), st.integers(0, 3)), seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_every_order_of_axes(dtype, shape, orders, gaps, seed):
    (source, _), (target, behind) = (view(shape, order, gap, dtype) for order, gap in zip(orders, gaps))
    source[...] = np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape)
    copy(target, source)
    np.testing.assert_array_equal(target, source)
    assert (behind == 7).all()
    np.testing.assert_array_equal(together(source), source)
