"""Integer weights: exact sums and two roundings, against whole-number arithmetic and published measurements."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexane.arithmetic import assume, conv2d, evidence, mac_int8, mac_integer
from hexane.arithmetic.convolution import PlainWindow
from hexane.arithmetic.integer import IntegerConvolution, exact_sums
from hexane.arithmetic.multiply import relative
from hexane.errors import UsageError


def eleven_bits(value: Fraction, least: int | None = None) -> Fraction:
    """To eleven significant bits, ties away from zero; ``least`` is the exponent of the smallest step."""
    if value == 0:
        return value
    step = Fraction(1)
    while abs(value) >= step * 2048:
        step *= 2
    while abs(value) < step * 1024:
        step /= 2
    if least is not None:
        step = max(step, Fraction(2) ** least)
    steps, rest = divmod(abs(value), step)
    steps += rest * 2 >= step
    return (steps * step) * (1 if value > 0 else -1)


def halfword(value: Fraction) -> float:
    rounded = eleven_bits(value, -24)
    return float(rounded) if abs(rounded) < 65536 else float("inf") * (1 if value > 0 else -1)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.sampled_from((0.01, 1.0, 300.0, 60000.0)))
def test_products_of_integers_are_exact_and_rounded_twice(seed, depth, spread):
    rng = np.random.default_rng(seed)
    x = (rng.normal(0, 1, (2, depth)) * spread).clip(-65504, 65504).astype(np.float16)
    w = rng.integers(-128, 128, (depth, 3)).astype(np.int8)
    scale = (rng.uniform(0.1, 1, 3) / 64).astype(np.float32)
    got = mac_integer(x, w, scale)
    for i in range(2):
        for j in range(3):
            total = sum(Fraction(float(a)) * int(b) for a, b in zip(x[i], w[:, j]))
            assert float(got[i, j]) == halfword(eleven_bits(total) * Fraction(float(scale[j])))


def test_sums_beyond_float64_keep_their_side_of_a_tie():
    """A sum of large and tiny terms whose rounding hangs on the last bit."""
    x = np.array([[2049.0 * 16, 2.0**-24]])  # a tie of eleven bits, and a hair above it
    w = np.array([[127.0], [1.0]])
    for sign, tail in ((1, 1), (1, -1), (-1, 1)):
        w[1, 0] = tail
        total = Fraction(2049 * 16 * 127) + Fraction(tail, 2**24)
        assert Fraction(float(relative(exact_sums(sign * x, w))[0, 0])) == sign * eleven_bits(total)


def test_sums_above_the_range_of_fp16_survive_until_the_scale():
    """Rows of an M6 up to 2.6e8 stay finite behind 2^-12 (docs/reference/compressed.md 4)."""
    x = np.full((1, 16384), 127, np.float16)
    w = np.full((16384, 1), 127, np.int8)
    assert float(mac_integer(x, w, 2.0**-12)[0, 0]) == halfword(eleven_bits(Fraction(127 * 127 * 16384)) / 4096)
    assert float(mac_int8(x.astype(np.int8), w, 2.0**-12)[0, 0]) == float(mac_integer(x, w, 2.0**-12)[0, 0])


def test_int8_sums_are_rounded_before_their_scale():
    x, w = np.array([[127, 127, 1]], np.int8), np.array([[16], [1], [-110]], np.int8)
    total, scale = Fraction(127 * 17 - 110), Fraction(float(np.float32(0.7)))
    assert float(mac_int8(x, w, 0.7)[0, 0]) == halfword(eleven_bits(total) * scale)
    with assume("integer-scale", "once"):
        assert float(mac_int8(x, w, 0.7)[0, 0]) == halfword(total * scale)


@pytest.mark.parametrize("rule", ["with-scale", "rounded-before"])
def test_a_bias_comes_behind_the_scale(rule):
    x, w = np.array([[1.0, 3.0]], np.float16), np.array([[100], [7]], np.int8)
    bias = np.array([0.37], np.float16)
    scaled = eleven_bits(Fraction(121)) * Fraction(float(np.float32(0.013)))
    if rule == "rounded-before":
        scaled = Fraction(halfword(scaled))
    with assume("scaled-bias", rule):
        assert float(mac_integer(x, w, 0.013, bias)[0, 0]) == halfword(scaled + Fraction(float(bias[0])))


@pytest.mark.parametrize("groups, stride", [(1, 1), (2, 1), (4, 2)])
def test_a_convolution_is_its_products(groups, stride):
    rng = np.random.default_rng(3)
    x = rng.normal(0, 2, (2, 8, 9, 7)).astype(np.float16)
    w = rng.integers(-127, 128, (12, 8 // groups, 3, 3)).astype(np.int8)
    scales = rng.uniform(0.001, 0.02, 12).astype(np.float32)
    bias = rng.normal(0, 1, 12).astype(np.float16)
    window = PlainWindow((3, 3), (stride, stride), (1, 1), (1, 1, 1, 1), (9, 7))
    made = IntegerConvolution(w, scales.astype(np.float64), bias, window, groups, "relu")(x)
    terms = window.taps(x)
    for n in range(2):
        for o in range(12):
            group = o // (12 // groups)
            rows = terms[n].reshape(groups, -1, terms.shape[2])[group].T
            column = mac_integer(rows, w[o].reshape(-1, 1), scales[o], bias[o : o + 1], activation="relu")
            assert made[n, o].reshape(-1).tobytes() == column[:, 0].tobytes()


def test_scales_of_one_are_the_plain_convolution_of_small_integers():
    """Where every product and sum is exact, the two rules meet."""
    rng = np.random.default_rng(5)
    x = rng.integers(-8, 9, (1, 4, 6, 6)).astype(np.float16)
    w = rng.integers(-8, 9, (5, 4, 3, 3)).astype(np.int8)
    window = PlainWindow((3, 3), (1, 1), (1, 1), (0, 0, 0, 0), (6, 6))
    made = IntegerConvolution(w, np.ones(5), np.zeros(5, np.float16), window, 1, None)(x)
    assert made.tobytes() == conv2d(x, w.astype(np.float16)).tobytes()


def test_published_measurements_follow_from_the_rules():
    for row in evidence.rows():
        assert row.verdict == ("ruled out" if row.rival else "agrees"), row


def test_wrong_operands():
    with pytest.raises(UsageError, match="int8"):
        mac_integer(np.ones((1, 2), np.float16), np.ones((2, 1), np.float16))
    with pytest.raises(UsageError, match="float16"):
        mac_integer(np.ones((1, 2), np.float32), np.ones((2, 1), np.int8))
