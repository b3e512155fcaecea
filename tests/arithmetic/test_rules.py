"""Rules of single units, errors at the border, and hypotheses that can be swapped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexane import arithmetic
from hexane.arithmetic import formats, hypotheses, multiply, planar, reduction
from hexane.arithmetic.multiply import product
from hexane.errors import UnsupportedError, UsageError

f16 = np.float16


def bits(*halfwords: int) -> np.ndarray:
    return np.array(halfwords, np.uint16)


@pytest.mark.parametrize(
    ("x", "w", "units"),
    [
        (0x2C00, 0x0C00, 1), (0x2E00, 0x0C00, 2), (0xAE00, 0x0C00, -2), (0x2A00, 0x0C00, 0), (0x0080, 0x3C00, 1),
        (0x0040, 0x3C00, 0), (0x0001, 0x5C00, 1), (0x7E00, 0x0C00, 1572864), (0x7C00, 0x3C00, 65536 << 16),
    ],
)  # fmt: skip
def test_products_of_the_specification(x, w, units):
    """The table of docs/reference/numerics.md 3.1."""
    assert product(bits(x), bits(w)).tolist() == [units]


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
@settings(max_examples=300, deadline=None)
def test_products_are_odd_and_commute(x, w):
    straight = product(bits(x), bits(w))
    assert product(bits(w), bits(x)) == straight
    assert product(bits(x ^ 0x8000), bits(w)) == -straight


def test_convolution_is_the_sum_that_it_says():
    """Against a float64 sum, where nothing can be rounded or dropped."""
    rng = np.random.default_rng(0)
    x = rng.integers(-8, 8, (2, 4, 9, 8)).astype(f16)
    w = rng.integers(-8, 8, (6, 2, 3, 2)).astype(f16)
    result = arithmetic.conv2d(x, w, groups=2, strides=(2, 1), pads=(1, 2, 0, 1), dilations=(1, 2))
    padded = np.zeros((2, 4, 12, 9))
    padded[:, :, 2:11, 1:9] = x
    for n, o, y, z in np.ndindex(*result.shape):
        window = padded[n, 2 * (o // 3) : 2 * (o // 3) + 2, 2 * y : 2 * y + 3, z : z + 3 : 2]
        assert result[n, o, y, z] == (window * w[o]).sum()


def test_winograd_differs_from_the_direct_form_only_in_rounding():
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((1, 8, 9, 9)).astype(f16), rng.standard_normal((5, 8, 3, 3)).astype(f16)
    direct = arithmetic.conv2d(x, w, pads=(1, 1, 1, 1))
    winograd = arithmetic.conv2d(x, w, pads=(1, 1, 1, 1), form="winograd")
    assert not np.array_equal(direct, winograd)
    assert np.abs(direct.astype(float) - winograd.astype(float)).max() < 0.1
    strided = arithmetic.conv2d(x, w, strides=2, form="winograd")
    assert np.array_equal(strided, arithmetic.conv2d(x, w, strides=2))


def test_batched_products_broadcast():
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((3, 1, 5, 7)).astype(f16), rng.standard_normal((2, 7, 4)).astype(f16)
    result = arithmetic.matmul(a, b, post_scale=0.5)
    assert result.shape == (3, 2, 5, 4)
    assert np.array_equal(result[2, 1], arithmetic.mac(a[2, 0], b[1], post_scale=0.5, exact=True))


def test_an_overflow_is_sticky_and_has_the_sign_that_came_first():
    x = np.array([[20000, 20000, -30000, -30000], [-20000, -20000, 30000, 30000]], f16)
    assert arithmetic.mac(x, np.ones((4, 1), f16)).ravel().tolist() == [np.inf, -np.inf]
    assert arithmetic.mac(x, np.ones((4, 1), f16), post_scale=-1.0).ravel().tolist() == [-np.inf, np.inf]
    assert arithmetic.mac(x, np.ones((4, 1), f16), activation="relu").ravel().tolist() == [np.inf, 0]


def test_post_scale_hypotheses_part_where_the_specification_says():
    """docs/reference/numerics.md 3.5: sum 2049 times 3 is 6148 or 6152; one unit times 0.25 is 2^-18 or 0."""
    x, one = np.array([[2048, 1]], f16), np.ones((2, 1), f16)
    tiny = np.array([[2.0**-16, 0]], f16)
    found = {}
    for choice in hypotheses.ALL["post-scale"].choices:
        with arithmetic.assume("post-scale", choice):
            found[choice] = (
                float(arithmetic.mac(x, one, post_scale=3.0)[0, 0]),
                float(arithmetic.mac(tiny, one, post_scale=0.25)[0, 0]),
            )
    assert found == {"once": (6148, 2.0**-18), "twice": (6152, 2.0**-18), "fixed-point": (6148, 0.0)}
    assert arithmetic.chosen("post-scale") == "once"


def test_planar_scale_hypotheses_part():
    a, b = np.array([2049], f16), np.array([0], f16)
    a = planar.elementwise_plain("sub", np.array([2048], f16), np.array([-1], f16))
    assert a[0] == 2050
    found = {}
    for choice in hypotheses.ALL["planar-scale"].choices:
        with arithmetic.assume("planar-scale", choice):
            found[choice] = float(planar.formula("add", np.array([2048], f16), np.array([1], f16), scale=3.0)[0])
    assert found["each-step"] == found["after-operation"] == 6152 and found["once"] == 6148
    assert planar.formula("add", a, b, absolute=True)[0] == 2050


def test_every_hypothesis_can_be_chosen_and_nothing_else():
    for name, hypothesis in hypotheses.ALL.items():
        assert hypothesis.default in hypothesis.choices and hypothesis.source
        for choice in hypothesis.choices:
            with arithmetic.assume(name, choice):
                assert arithmetic.chosen(name) == choice
    for name, choice in (("no such", "once"), ("post-scale", "no such")):
        with pytest.raises(UsageError), arithmetic.assume(name, choice):
            pass


def test_reductions():
    rng = np.random.default_rng(3)
    x = rng.integers(-20, 20, (3, 4, 10)).astype(f16)
    assert np.array_equal(reduction.reduce(x, (1, 2)), x.sum((1, 2), dtype=float).astype(f16))
    assert np.array_equal(reduction.reduce(x, -1, "max", keepdims=True), x.max(-1, keepdims=True))
    assert reduction.reduce(np.full((1, 4), np.nan, f16), -1, "max")[0] == np.inf
    assert reduction.reduce(np.array([1, 2, 3, 2], f16), scale=0.25, nonlinear="reciprocal") == 0.5
    assert reduction.reduce(np.array([2, 2], f16), op="sumsq", scale=0.5, nonlinear="rsqrt") == 0.5
    # Twelve bits: 4096 and 1 in one group of four lose the 1, in two groups they do not.
    assert reduction.reduce(np.array([4096, 1, -4096, 0], f16)) == 0
    assert reduction.reduce(np.array([4096, 0, 0, 0, 1, 0, 0, 0, -4096], f16)) == 1
    with arithmetic.assume("reduction-sum", "exact"):
        assert reduction.reduce(np.array([4096, 1, -4096, 0], f16)) == 1


def test_formats():
    assert formats.canonical(bits(0x8000, 0x7E00, 0xFE01, 0xFC00, 0x8001)).view(np.uint16).tolist() == [
        0, 0x7C00, 0x7C00, 0xFC00, 0x8001,
    ]  # fmt: skip
    assert formats.to_bytes(np.array([-1, 0.5, 1.49, 254.5, 300, np.nan], f16)).tolist() == [0, 1, 1, 255, 255, 255]
    assert formats.to_bytes(np.array([-0.5, -200, 127.6], f16), "int8").tolist() == [-1, -128, 127]
    with arithmetic.assume("byte-store", "truncate"):
        assert formats.to_bytes(np.array([-0.9, 1.99], f16), "int8").tolist() == [0, 1]
    every = np.arange(-128, 128).astype(np.int8)
    assert np.array_equal(formats.quantize(formats.dequantize(every, 0.5), 0.5), every)
    assert formats.from_bytes(np.array([255], np.uint8))[0] == 255
    assert formats.from_float32([65520.0, 1 + 2.0**-11, 2.0**-25])[:2].tolist() == [np.inf, 1.0]


def test_compiled_conversions_are_numpys():
    """Every halfword and its neighbours in float32, all kinds of bits, and NaN that are quietened or would vanish."""
    from hexane.arithmetic.fast.narrowing import narrow

    exact = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    drawn = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, np.uint32)
    edges = np.array([0x7F800001, 0xFF802000, 0x477FEFFF, 0x477FF000, 0x387FFFFF, 0x33000000, 0x33000001], np.uint32)
    for given_bits in (drawn, edges, *(exact + np.uint32(d) for d in (0, 1, 0xFFF, 0x1000, 0x1001, 0xFFFFF000))):
        halves = np.empty(given_bits.shape, np.uint16)
        narrow(given_bits.view(np.int32), halves)
        with np.errstate(all="ignore"):
            assert np.array_equal(halves, given_bits.view(np.float32).astype(np.float16).view(np.uint16))


@pytest.mark.parametrize("in_use", [False, True])
def test_a_hosts_conversion_in_either_form(in_use: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats.tier, "in_use", lambda: in_use)
    x = np.linspace(-70000, 70000, 2 * formats.WORTH_COMPILED, dtype=np.float32).reshape(2, -1)
    with np.errstate(over="ignore"):
        for some in (x, x[:, ::2]):
            assert np.array_equal(formats.from_float32(some), some.astype(np.float16))


def test_tables_of_steps_and_parts():
    """The derived tables of docs/reference/engine-h13.md 10: sign test, fraction, integer part, leaky relu."""
    x = np.array([-3.75, -(2.0**-24), 0, 2.0**-24, 2.5, np.inf, -np.inf], f16)
    below = np.zeros(64, np.uint16)
    below[[0, 1, 2, 38, 41, 42]] = 0x8001, 0x0001, 0x3C00, 0x3C00, 0x40, 1
    assert arithmetic.lookup(below, x).tolist() == [1, 1, 0, 0, 0, 0, 1]
    part = np.zeros(64, np.uint16)
    part[[0, 1, 42]] = 0xFC00, 0x7C00, 0x63
    assert arithmetic.lookup(part, x[:5]).tolist() == [-0.75, -(2.0**-24), 0, 2.0**-24, 0.5]
    part[[2, 3, 41, 42]] = 0xFC00, 0x7C00, 5, 0x64
    assert arithmetic.lookup(part, x).tolist() == [-3, 0, 0, 0, 2, np.inf, -np.inf]
    leaky = np.zeros(64, np.uint16)
    leaky[[0, 1, 2, 3, 37, 39, 41, 42]] = 0xFC00, 0x7C00, 0xFC00, 0x7C00, 0x3400, 0x3C00, 0x40, 1
    assert arithmetic.lookup(leaky, x[[0, 2, 4, 5]]).tolist() == [-0.9375, 0, 2.5, np.inf]


def test_constant_multiplier_reads_infinity_as_a_number():
    """log(0) = -45440 (M1): the table's -inf times ln 2."""
    assert multiply.scale_input(np.array([-np.inf], f16), post_scale=arithmetic.LN_2)[0] == -45440
    with arithmetic.assume("scalar-exponent-31", "infinity"):
        assert multiply.scale_input(np.array([-np.inf], f16), post_scale=arithmetic.LN_2)[0] == -np.inf
    assert multiply.scale_input(np.array([-np.inf, np.inf], f16)).tolist() == [-np.inf, np.inf]


X, W = np.ones((2, 3), f16), np.ones((3, 4), f16)
IMAGE, KERNEL = np.ones((1, 4, 5, 5), f16), np.ones((6, 4, 3, 3), f16)


@pytest.mark.parametrize(
    "call",
    [
        lambda: arithmetic.mac(X.astype(np.float32), W),
        lambda: arithmetic.mac(X, W.T),
        lambda: arithmetic.mac(X[0], W),
        lambda: arithmetic.mac(X[:0], W),
        lambda: arithmetic.mac(X, W, np.ones(3, f16)),
        lambda: arithmetic.mac(X, W, np.ones(4)),
        lambda: arithmetic.mac(X, W, post_scale=1e6),
        lambda: arithmetic.mac(X, W, post_scale="two"),
        lambda: arithmetic.mac([[1.0], [1.0, 2.0]], W),
        lambda: arithmetic.mac_int8(X.astype(np.int8), W.astype(np.int8), "two"),
        lambda: arithmetic.mac_int8(X.astype(np.int8), W.astype(np.int8), 1j),
        lambda: arithmetic.mac_int8(X.astype(np.int8), W.astype(np.int8), 1e300),
        lambda: arithmetic.mac(X, W, activation="gelu"),
        lambda: arithmetic.mac(X, W, activation=np.zeros(63, np.uint16)),
        lambda: arithmetic.mac_int8(X, W, 1.0),
        lambda: arithmetic.mac_int8(X.astype(np.int8), W.astype(np.int8), [1.0, 2.0]),
        lambda: arithmetic.mac_int8(X.astype(np.int8), W.astype(np.int8), np.nan),
        lambda: arithmetic.elementwise("pow", X, X),
        lambda: arithmetic.elementwise("add", X, W),
        lambda: arithmetic.elementwise("add", X, X.astype(int)),
        lambda: arithmetic.lookup(np.zeros((8, 8), np.uint16), X),
        lambda: arithmetic.lookup(np.zeros(64), X),
        lambda: arithmetic.lookup(arithmetic.function_table("tanh"), X.astype(float)),
        lambda: arithmetic.matmul(X, X),
        lambda: arithmetic.matmul(np.ones((2, 2, 3), f16), np.ones((3, 3, 4), f16)),
        lambda: arithmetic.conv2d(IMAGE, KERNEL[:, :3]),
        lambda: arithmetic.conv2d(IMAGE[0], KERNEL),
        lambda: arithmetic.conv2d(IMAGE, KERNEL, strides=0),
        lambda: arithmetic.conv2d(IMAGE, KERNEL, strides=1.5),
        lambda: arithmetic.conv2d(IMAGE, KERNEL, pads=(-1, 0, 0, 0)),
        lambda: arithmetic.conv2d(IMAGE, KERNEL, pads=(0, 0, 0)),
        lambda: arithmetic.conv2d(IMAGE, KERNEL, dilations=3),
        lambda: arithmetic.conv2d(IMAGE, KERNEL, groups=4),
        lambda: arithmetic.conv2d(IMAGE, KERNEL, form="fast"),
        lambda: reduction.reduce(X, 5),
        lambda: reduction.reduce(X, -1, "mean"),
        lambda: formats.to_bytes(X, "int4"),
        lambda: formats.from_bytes(X),
    ],
)
def test_what_cannot_be_computed_is_refused(call):
    with pytest.raises(UsageError):
        call()


def test_an_unknown_table_mode_and_function_are_refused():
    table = arithmetic.function_table("tanh")
    table[42] = 0x62
    with pytest.raises(UnsupportedError, match="0x62"):
        arithmetic.lookup(table, X)
    table[41:43] = 0x7777, 1
    with pytest.raises(UnsupportedError, match=r"table\[41\]"):
        arithmetic.lookup(table, X)
    with pytest.raises(UnsupportedError, match="erf"):
        arithmetic.function_table("erf")


@pytest.mark.parametrize(
    "options",
    [
        {"pads": (1 << 40, 0, 0, 0)},
        {"pads": (10**30,) * 4},
        {"pads": (float("inf"), 0, 0, 0)},
        {"pads": (30000,) * 4},
        {"groups": "a"},
        {"groups": None},
        {"groups": True},
        {"groups": 1.5},
        {"strides": 10**20},
        {"strides": float("inf")},
        {"dilations": 1 << 62},
    ],
)
def test_absurd_windows_are_refused(options: dict) -> None:
    """Once an OverflowError, a TypeError, or 28 GB."""
    x, w = np.ones((1, 2, 4, 4), np.float16), np.ones((2, 2, 3, 3), np.float16)
    with pytest.raises(UsageError):
        arithmetic.conv2d(x, w, **options)
