"""Counters agree with a count of every single product."""

from __future__ import annotations

import numpy as np
import pytest

from arithmetic.test_fast_equals_plain import KINDS, halves
from hexane import arithmetic
from hexane.arithmetic import counters
from hexane.arithmetic.formats import decode_multiplier
from hexane.arithmetic.plain_convolution import PlainWindow


def by_hand(x: np.ndarray, w: np.ndarray) -> tuple[int, int]:
    rounded = dropped = 0
    for row in x.view(np.uint16):
        mx, ex = decode_multiplier(row[:, None])
        mw, ew = decode_multiplier(w.view(np.uint16))
        exact = (mx * mw).astype(np.float64) * 2.0 ** (ex + ew - 4)
        gone = (ex + ew <= -17) & (exact != 0)
        dropped += int(gone.sum())
        rounded += int(((exact != np.trunc(exact)) & ~gone).sum())
    return rounded, dropped


@pytest.mark.parametrize("kind", KINDS)
def test_products(kind):
    rng = np.random.default_rng(7)
    x, w = halves(rng, (9, 40), kind), halves(rng, (40, 11), "small")
    found = counters.product_losses(x.T[None, :, None].copy(), w.T[:, :, None, None].copy())
    assert found == by_hand(x, w)


def test_convolution_counts_its_terms():
    rng = np.random.default_rng(8)
    x, w = halves(rng, (1, 4, 6, 6), "small"), halves(rng, (6, 2, 3, 3), "small")
    found = counters.product_losses(x, w, groups=2, strides=(2, 2), pads=(1, 1), output=(3, 3))
    columns = PlainWindow((3, 3), (2, 2), (1, 1), (1, 1, 1, 1), (6, 6)).taps(x)[0].reshape(2, 18, -1)
    parts = [by_hand(w[3 * g : 3 * g + 3].reshape(3, -1), columns[g]) for g in range(2)]
    assert found == tuple(sum(p) for p in zip(*parts))


def test_table_ends():
    table = arithmetic.function_table("sigmoid")
    x = np.array([-20, -9.9375, -9.93, 0, 8.3, 8.3203125, np.inf, np.nan], np.float16)
    assert counters.table_ends(table, x) == 5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2.0**-6, 1.0, 8.0, 40.0, 2000.0])
def test_no_sum_overflows_that_is_said_not_to(kind, size):
    rng = np.random.default_rng(9)
    with np.errstate(all="ignore"):
        x = (halves(rng, (1, 32, 5, 5), kind) * np.float16(size)).astype(np.float16)
    w, bias = halves(rng, (6, 32, 3, 3), "unit"), (rng.standard_normal(6) * 30).astype(np.float16)
    sums = arithmetic.conv2d(x, w, bias, pads=(1, 1, 1, 1), post_scale=2.0)
    claim = counters.may_overflow(x, w, bias, 2.0)
    assert claim or np.isfinite(sums).all()
    if size <= 1 and kind == "unit":
        assert not claim
