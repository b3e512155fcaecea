"""The fast kernels give the bits of the plain statements, on random and on hostile inputs, for every vector code
here."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexane import arithmetic
from hexane.arithmetic import formats, multiply, planar, reduction
from hexane.arithmetic.elementwise import Pointwise, shift_scale
from hexane.arithmetic.fast import convolution as fast_convolution
from hexane.arithmetic.fast import elementwise as fast_elementwise
from hexane.arithmetic.fast import mac as fast_mac
from hexane.arithmetic.fast import rounding, targets
from hexane.arithmetic.fast.targets import best, kernels
from hexane.arithmetic.plain_convolution import Plain
from hexane.errors import UsageError

CODES = {"avx512": ["avx512", "avx2", "generic"], "avx2": ["avx2", "generic"], "neon": ["neon", "generic"]}.get(
    best(), ["generic"]
)

# Ends of the range, ties, exponents around the drop, subnormals, exponent 31 (inf, NaN), both signs.
HOSTILE = np.array(
    [0x0000, 0x0001, 0x0040, 0x0080, 0x00C0, 0x03FF, 0x0400, 0x0C00, 0x0FFF, 0x1000, 0x1400, 0x2400, 0x2800, 0x2A00,
     0x2BFF, 0x2C00, 0x2E00, 0x3000, 0x3400, 0x3800, 0x3BFF, 0x3C00, 0x3C01, 0x3E00, 0x5800, 0x5BFF, 0x5C00, 0x6400,
     0x7000, 0x73FF, 0x7400, 0x77FF, 0x7800, 0x7BFF, 0x7C00, 0x7E00, 0x7FFF],
    np.uint16,
)  # fmt: skip
HOSTILE = np.concatenate([HOSTILE, HOSTILE | 0x8000])

KINDS = ("unit", "small", "tiny", "large", "huge", "hostile", "sparse", "integers", "any", "outlier")


def halves(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """Test data of one kind, float16."""
    normal = rng.standard_normal(shape)
    if kind == "hostile":
        return rng.choice(HOSTILE, shape).view(np.float16)
    if kind == "any":
        return rng.integers(0, 1 << 16, shape).astype(np.uint16).view(np.float16)
    if kind == "integers":
        return rng.integers(-128, 128, shape).astype(np.float16)
    if kind == "sparse":
        return (normal * (rng.random(shape) < 0.1) * (rng.random(shape[-1:]) < 0.5)).astype(np.float16)
    if kind == "outlier":
        return np.where(rng.random(shape) < 0.01, normal * 3000, normal).astype(np.float16)
    scale = {"unit": 1.0, "small": 0.03, "tiny": 2e-4, "large": 8.0, "huge": 150.0}[kind]
    return (normal * scale).astype(np.float16)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a.view(np.uint16), b.view(np.uint16))


@pytest.mark.parametrize("code", CODES)
@given(
    m=st.integers(1, 30), k=st.integers(1, 600), n=st.integers(1, 70), seed=st.integers(0, 1 << 30),
    x_kind=st.sampled_from(KINDS), w_kind=st.sampled_from(KINDS), bias=st.sampled_from([None, "unit", "huge",
    "hostile"]),
    scale=st.sampled_from([1.0, 0.125, -3.0, 0.0, 1.4424]), relu=st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_products(code, m, k, n, seed, x_kind, w_kind, bias, scale, relu):
    rng = np.random.default_rng(seed)
    x, w = halves(rng, (m, k), x_kind), halves(rng, (k, n), w_kind)
    b = np.zeros(n, np.float16) if bias is None else halves(rng, (n,), bias)
    activation = "relu" if relu else None
    plain = arithmetic.mac(x, w, b, scale, exact=True, activation=activation)
    assert same(fast_mac.mac(x, w, b, float(np.float16(scale)), activation, kernels(code)), plain)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("k", [64, 300])
def test_products_whose_rows_and_columns_drop_terms_from_different_sizes_on(code, k):
    """Many panels in one block, each with thresholds of its own."""
    rng = np.random.default_rng(k)
    x = (rng.standard_normal((80, k)) * 2.0 ** -(np.arange(80) % 16)[:, None]).astype(np.float16)
    w = (rng.standard_normal((k, 80)) * 2.0 ** -(4 + np.arange(80) % 12)).astype(np.float16)
    plain = arithmetic.mac(x, w, exact=True)
    assert same(fast_mac.mac(x, w, np.zeros(80, np.float16), 1.0, None, kernels(code)), plain)


@pytest.mark.parametrize("code", CODES)
def test_every_single_product_of_hostile_operands(code):
    x = HOSTILE[:, None].view(np.float16)
    w = HOSTILE[None, :].view(np.float16)
    zero = np.zeros(HOSTILE.size, np.float16)
    assert same(fast_mac.mac(x, w, zero, 1.0, None, kernels(code)), arithmetic.mac(x, w, exact=True))


@pytest.mark.parametrize("code", CODES)
def test_sums_at_the_edge_of_the_limit(code):
    """Rows that reach +-32768 exactly, miss it by a unit, come back from it, or cross both ends."""
    rows = [
        [16384, 16384, 0, 0], [16384, 16383.99, 0, 0], [-16384, -16384, 0, 0], [16384, 16384, -16384, -16384],
        [16384, -16384, 16384, 16380], [-16384, -16384, 16384, 16384], [32752, 15.99, 2.0**-7, 0], [32752, 16, -16, 0],
        [30000, 3000, -60000, -30000], [-30000, -3000, 60000, 30000], [65504, -65504, 1, 1], [32752, 15.98, 2.0**-6,
        2.0**-16],
    ]  # fmt: skip
    x = np.array(rows, np.float16)
    w = np.ones((4, 3), np.float16)
    w[:, 1] = [1, -1, 1, -1]
    w[:, 2] = 0.5
    bias = np.array([0, 2.0**-16, -16384], np.float16)
    for b in (np.zeros(3, np.float16), bias):
        plain = arithmetic.mac(x, w, b, exact=True)
        assert np.isinf(plain).any() and np.isfinite(plain).any()
        assert same(fast_mac.mac(x, w, b, 1.0, None, kernels(code)), plain)


@pytest.mark.parametrize("code", CODES)
@given(
    k=st.sampled_from([1, 2, 16, 17, 255, 256, 257, 700]), seed=st.integers(0, 1 << 30),
    steps=st.sampled_from(["levels", "walk", "infinities"]), relu=st.booleans(),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_running_sums_that_come_within_units_of_the_limit(code, k, seed, steps, relu):
    """Sums at the limit again and again, where only exact ones tell; large steps over both ends; infinite operands."""
    rng = np.random.default_rng(seed)
    m, n = 13, 35
    w = rng.choice(np.array([1, 1, 1, -1, 1 + 2.0**-10, 0.5, 2.0**-16], np.float16), (k, n))
    if steps == "levels":
        x = rng.choice(np.array([16384, 16368, -16384, 15.99, 2.0**-6, 2.0**-9, -(2.0**-9), 0], np.float16), (m, k))
    elif steps == "walk":
        x = (np.where(np.arange(k) % 2, -30000, 30000) + 32 * rng.integers(-90, 90, (m, k))).astype(np.float16)
    else:
        x = rng.choice(np.array([np.inf, -np.inf, np.nan, 0, 1, -3], np.float16), (m, k))
        w = (w * rng.choice([1, 1e-3, 1e-5], (k, n))).astype(np.float16)
    bias = rng.choice(np.array([0, 16384, -16384, 32752, -32768, 65504, np.inf, np.nan], np.float16), n)
    activation = "relu" if relu else None
    plain = arithmetic.mac(x, w, bias, exact=True, activation=activation)
    assert same(fast_mac.mac(x, w, bias, 1.0, activation, kernels(code)), plain)


@pytest.mark.parametrize("code", CODES)
def test_many_small_terms_near_the_limit(code):
    """What float32 loses of 4,100 terms of less than half its step there, and what it rounds up over the limit."""
    small = np.full((4, 4100), 0.00095, np.float16)
    small[1:3, 2000:] = -0.00095
    small[:, 0] = 32752
    small[:, 1] = [14.5, 14.5, 15.99, 11]
    small[2, 2:] = 0
    small[2, 2] = 0.0072
    x = np.concatenate([small, -small])
    w = np.ones((4100, 2), np.float16)
    plain = arithmetic.mac(x, w, exact=True)
    assert list(np.isinf(plain[:, 0])) == 2 * [True, True, False, False]
    assert same(fast_mac.mac(x, w, np.zeros(2, np.float16), 1.0, None, kernels(code)), plain)


def test_cancelling_sums_keep_their_last_unit():
    rng = np.random.default_rng(5)
    half = halves(rng, (6, 400), "large")
    x = np.concatenate([half, -half, np.full((6, 1), 2.0**-16, np.float16)], 1)
    w = halves(rng, (400, 40), "unit")
    w = np.concatenate([w, w, np.ones((1, 40), np.float16)])
    result = arithmetic.mac(x, w)
    assert same(result, arithmetic.mac(x, w, exact=True))
    assert (result == np.float16(2.0**-16)).all()


@pytest.mark.parametrize("code", CODES)
@given(
    seed=st.integers(0, 1 << 30), n=st.integers(1, 2), channels=st.integers(1, 5), outputs=st.integers(1, 5),
    groups=st.sampled_from([1, 1, 2, 3]), kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)), dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pads=st.tuples(*[st.integers(0, 3)] * 4), size=st.tuples(st.integers(7, 14), st.integers(7, 14)),
    kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)), relu=st.booleans(),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_convolutions(code, seed, n, channels, outputs, groups, kernel, strides, dilations, pads, size, kinds, relu):
    rng = np.random.default_rng(seed)
    x = halves(rng, (n, channels * groups, *size), kinds[0])
    w = halves(rng, (outputs * groups, channels, *kernel), kinds[1])
    bias = halves(rng, (outputs * groups,), "unit")
    activation = "relu" if relu else None
    options = {"strides": strides, "dilations": dilations, "pads": pads, "groups": groups, "activation": activation}
    plain = arithmetic.conv2d(x, w, bias, exact=True, **options)
    window = arithmetic.convolution.PlainWindow(kernel, strides, dilations, pads, size)
    ready = fast_convolution.prepare(Plain(w, bias, window, groups, 1.0, activation, False), kernels(code))
    assert same(ready(x), plain)
    ready.keep()
    room = np.full((*plain.shape[:3], plain.shape[3] + 3), np.nan, np.float16)
    assert same(np.ascontiguousarray(ready(x, room[..., :-3])), plain)  # lines with gaps between them
    assert np.isnan(room[..., -3:]).all()


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("width", [3, 5, 11, 40])
@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("far", [False, True])
def test_depthwise_convolutions_of_every_halfword(code, width, step, far):
    """Lines shorter and longer than vectors; maps with exponent 31 and without; a pixel far from all others."""
    every = np.sort(np.arange(1 << 16, dtype=np.uint16) & 0x7FFF)[: 65536 // (32 * width) * 32 * width]
    x = (every | (np.arange(every.size) % 3 == 0).astype(np.uint16) << 15).reshape(1, -1, 32, width).view(np.float16)
    x[..., 0, 0] = np.float16(30000) if far else x[..., 0, 0]
    maps = x.shape[1]
    rng = np.random.default_rng(width)
    w = halves(rng, (maps, 1, 2, 2), "unit") * np.exp2(rng.integers(-8, 1, (maps, 1, 1, 1))).astype(np.float16)
    bias = halves(rng, (maps,), "large") * rng.choice([1, 30], maps).astype(np.float16)
    window = arithmetic.convolution.PlainWindow((2, 2), (1, step), (1, 1), (1, 0, 1, 0), (32, width))
    for activation in (None, "relu"):
        ready = fast_convolution.prepare(Plain(w, bias, window, maps, 1.0, activation, False), kernels(code))
        assert same(ready(x), Plain(w, bias, window, maps, 1.0, activation, False)(x))


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("strides", [(2, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (2, 2, 0, 0), (0, 3, 1, 0)])
def test_depthwise_convolutions_that_step_over_padding(code, strides, pads):
    """The rows of each phase begin in the padding or behind it."""
    rng = np.random.default_rng(0)
    x, w, bias = halves(rng, (2, 5, 13, 21), "unit"), halves(rng, (5, 1, 4, 3), "unit"), halves(rng, (5,), "unit")
    plain = arithmetic.conv2d(x, w, bias, exact=True, strides=strides, pads=pads, groups=5)
    window = arithmetic.convolution.PlainWindow((4, 3), strides, (1, 1), pads, (13, 21))
    assert same(fast_convolution.prepare(Plain(w, bias, window, 5, 1.0, None, False), kernels(code))(x), plain)


@pytest.mark.parametrize("code", CODES)
@given(
    seed=st.integers(0, 1 << 30), channels=st.integers(1, 6), outputs=st.integers(1, 14), height=st.sampled_from([1,
    3]),
    pads=st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(-1, 2), st.integers(-1, 2)),
    size=st.tuples(st.integers(4, 9), st.integers(4, 44)), activation=st.sampled_from([None, "relu", "tanh"]),
    kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS), st.sampled_from(KINDS)),
    scale=st.sampled_from([1.0, 1.0, 0.25]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_winograd_form(code, seed, channels, outputs, height, pads, size, activation, kinds, scale):
    rng = np.random.default_rng(seed)
    x, w = halves(rng, (2, channels, *size), kinds[0]), halves(rng, (outputs, channels, height, 3), kinds[1])
    bias = halves(rng, (outputs,), kinds[2])
    follows = arithmetic.function_table("tanh") if activation == "tanh" else activation
    options = {"pads": pads, "form": "winograd", "post_scale": scale, "activation": follows}
    plain = arithmetic.conv2d(x, w, bias, exact=True, **options)
    window = arithmetic.convolution.PlainWindow((height, 3), (1, 1), (1, 1), pads, size)
    fast = fast_convolution.prepare(Plain(w, bias, window, 1, scale, follows, True), kernels(code))(x)
    assert same(fast, plain)


@pytest.mark.parametrize("code", CODES)
def test_winograd_transforms_of_hostile_values(code):
    """Every pair of hostile values side by side, and every kernel row of three of them."""
    zero = np.zeros(1, np.float16)
    pairs = np.array([[a, b, 0, b, a, 0] for a in HOSTILE for b in HOSTILE[::2]], np.uint16)
    x, one = pairs.reshape(1, 1, HOSTILE.size, -1).view(np.float16), np.array([[[[1, 0, 0]]]], np.float16)
    rows = np.array(np.meshgrid(HOSTILE[::3], HOSTILE[1::3], HOSTILE[2::3])).T.reshape(-1, 1, 1, 3)
    small = np.array([[[[1, 2.0**-10, 0.5, 1]]]], np.float16)
    for image, kernel in ((x, one), (x, one[..., ::-1]), (x, one + np.float16(1)), (small, rows.view(np.float16))):
        bias = np.repeat(zero, kernel.shape[0])
        plain = arithmetic.conv2d(image, kernel, bias, form="winograd", exact=True)
        window = arithmetic.convolution.PlainWindow((1, 3), (1, 1), (1, 1), (0, 0, 0, 0), image.shape[2:])
        fast = fast_convolution.prepare(Plain(kernel, bias, window, 1, 1.0, None, True), kernels(code))
        assert same(fast(image), plain)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "max", "min", "sumsq"])
def test_elementwise(op):
    rng = np.random.default_rng(1)
    a, b = halves(rng, (600, 700), "any"), halves(rng, (600, 700), "any")
    assert same(arithmetic.elementwise(op, a, b), arithmetic.elementwise(op, a, b, exact=True))
    hostile = HOSTILE.view(np.float16)
    for left, right in (
        (hostile[:, None], hostile[None]),
        (a[0], a[0]),
        (a, b[:1]),
        (b[:, :1], a),
        (a[:, ::2], b[:, 1::2]),
    ):
        assert same(arithmetic.elementwise(op, left, right), arithmetic.elementwise(op, left, right, exact=True))


PLANAR = ("add", "sub", "mul", "max", "min", "sumsq")


@pytest.mark.parametrize("code", CODES)
def test_planar_operations_on_every_halfword(code, monkeypatch):
    """Each of the 65536 values on the left, and on the right the hostile ones, itself, its negative, others."""
    monkeypatch.setattr(fast_elementwise, "kernels", lambda: kernels(code))
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    partners = [np.full_like(every, h) for h in HOSTILE[::5]] + [every, every ^ 0x8000, every[::-1], every * 31 + 7]
    for op in PLANAR:
        for partner in partners:
            a, b = every.view(np.float16), np.ascontiguousarray(partner).view(np.float16)
            assert same(arithmetic.elementwise(op, a, b), arithmetic.elementwise(op, a, b, exact=True)), op


@given(
    seed=st.integers(0, 1 << 30), op=st.sampled_from(PLANAR), table=st.booleans(), kept=st.booleans(),
    shape=st.tuples(*[st.integers(1, 4)] * 3, st.integers(1, 6), st.integers(1, 40)),
    ones=st.tuples(*[st.sets(st.integers(0, 4), max_size=3)] * 2), turned=st.booleans(),
    gap=st.integers(0, 3),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_elementwise_of_strided_views(seed, op, table, kept, shape, ones, turned, gap):
    """Operands that repeat along axes, stand turned or with gaps; a function behind; a result with gaps."""
    rng = np.random.default_rng(seed)
    if turned:
        shape = (*shape[:2], shape[4], shape[3], shape[2])
    a, b = (halves(rng, tuple(1 if i in axes else n for i, n in enumerate(shape)), "any") for axes in ones)
    if turned:
        a, b = a.swapaxes(2, 4), b.swapaxes(2, 4)
    full = np.broadcast_shapes(a.shape, b.shape)
    follow = Pointwise(lambda x: planar.formula("add", x, scale=0.3, relu=True), "test") if table else None
    if follow and kept:
        follow.tabulate()
    plain = arithmetic.elementwise(op, a, b, exact=True, follow=follow)
    room = np.full((*full[:4], full[4] + gap), np.nan, np.float16)
    out = room[..., : full[4]]
    assert same(arithmetic.elementwise(op, a, b, follow=follow), plain)
    assert same(np.ascontiguousarray(arithmetic.elementwise(op, a, b, follow=follow, out=out)), plain)
    assert np.isnan(room[..., full[4] :]).all()


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "max", "min"])
def test_results_in_the_place_of_an_operand(op, code, monkeypatch):
    """Lines of every length up to a few vectors; what lies between them stays."""
    monkeypatch.setattr(fast_elementwise, "kernels", lambda: kernels(code))
    rng = np.random.default_rng(3)
    for width in range(1, 40):
        a, b = (halves(rng, (1, 1, 3, 2, width), "any") for _ in range(2))
        room = np.full((*a.shape[:4], width + 3), 7, np.float16)
        place = room[..., :width]
        place[:] = a
        arithmetic.elementwise(op, place, b, out=place)
        assert same(np.ascontiguousarray(place), arithmetic.elementwise(op, a, b, exact=True)), width
        assert (room[..., width:] == 7).all()


@pytest.mark.parametrize("known", [False, True])
def test_results_lie_where_they_were_wanted(known):
    """Those of a function behind, too, whether it brings its table or another of its name has one."""
    a, b = halves(np.random.default_rng(0), (2, 1, 8, 30, 40), "any"), np.float16([[[[[0.5]]]]])
    follow, other = (Pointwise(lambda x: np.maximum(x, np.float16(1)), "at least one") for _ in range(2))
    (follow if known else other).tabulate()
    out = np.zeros_like(a)
    assert arithmetic.elementwise("mul", a, b, follow=follow, out=out) is out
    assert same(out, arithmetic.elementwise("mul", a, b, exact=True, follow=follow))


@pytest.mark.parametrize("subtract", [False, True])
def test_shift_and_scale(subtract):
    rng = np.random.default_rng(11)
    for shape, turned in (((2, 1, 7, 24, 31), False), ((1, 1, 256, 16, 16), False), ((1, 1, 30, 9, 70), True)):
        x = halves(rng, shape, "any")
        x = x.swapaxes(2, 4) if turned else x
        groups, channels = x.shape[0], x.shape[2]
        shift, scale = (halves(rng, (groups, 1, channels, 1, 1), "any") for _ in range(2))
        plain = shift_scale(x, shift, scale, subtract=subtract, exact=True)
        assert same(shift_scale(x, shift, scale, subtract=subtract), plain)
        out = np.empty((*x.shape[:4], x.shape[4] + 5), np.float16)[..., :-5]
        assert same(np.ascontiguousarray(shift_scale(x, shift, scale, subtract=subtract, out=out)), plain)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_sums_that_meet_the_limit_in_the_middle(code, scale):
    """Sums that reach the limit after some hundred terms and come back, beside sums that only come near."""
    rng = np.random.default_rng(12)
    depth = 700
    x = (rng.standard_normal((depth, 90)) * 300).astype(np.float16)
    w = (rng.standard_normal((50, depth)) * 3).astype(np.float16)
    x[200:300, ::3], x[300:400, ::3] = np.abs(x[200:300, ::3]), -np.abs(x[300:400, ::3])
    w[::4, 200:400] = np.abs(w[::4, 200:400])
    bias = rng.choice(np.array([0, 1, 30000, 32768, -40000], np.float16), 50)
    image, kernel = x.reshape(1, depth, 9, 10), w.reshape(50, depth, 1, 1)
    plain = arithmetic.conv2d(image, kernel, bias, post_scale=scale, exact=True)
    met = np.isinf(plain).mean()
    assert 0.05 < met < 0.95
    window = arithmetic.convolution.PlainWindow((1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (9, 10))
    for activation in (None, "relu"):
        plain = arithmetic.conv2d(image, kernel, bias, post_scale=scale, activation=activation, exact=True)
        fast = fast_convolution.prepare(Plain(kernel, bias, window, 1, scale, activation, False), kernels(code))
        assert same(fast(image), plain)


@pytest.mark.parametrize("mode", ["sum", "max"])
@pytest.mark.parametrize("kind", KINDS)
def test_reductions(kind, mode):
    rng = np.random.default_rng(4)
    for length in (1, 3, 4, 37, 256):
        x = halves(rng, (5, length, 9), kind)
        options = {"axes": 1, "mode": mode, "scale": 1 / length, "epsilon": 1e-3, "nonlinear": "reciprocal"}
        for options["nonlinear"] in (None, "reciprocal", "rsqrt", "sqrt"):
            assert same(reduction.reduce(x, **options), reduction.reduce(x, exact=True, **options))
        assert same(reduction.reduce(x, (1, 2), mode), reduction.reduce(x, (1, 2), mode, exact=True))
    squares = reduction.reduce(x, 1, op="sumsq", other=-x[:, :1])
    assert same(squares, reduction.reduce(x, 1, op="sumsq", other=-x[:, :1], exact=True))


def test_rounding_half_away():
    rng = np.random.default_rng(2)
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16).astype(np.float64)
    every = np.sort(every[np.isfinite(every)])
    middle = (every[1:] + every[:-1]) / 2
    values = np.concatenate([
        every, middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf), rng.standard_normal(10000) * 1e5,
        [np.inf, -np.inf, np.nan, 65519.99, 65520.0, -65520.0, 1e300, 5e-324, 2.0**-25, np.nextafter(2.0**-25, 0),
        -0.0],
    ])  # fmt: skip
    plain = formats.round_half_away(values)
    assert same(rounding.round_half_away(values), plain)
    assert not np.signbit(plain[plain == 0]).any()
    away = np.where(np.abs(every[1:]) > np.abs(every[:-1]), every[1:], every[:-1])
    assert np.array_equal(formats.round_half_away(middle).astype(np.float64), away + 0.0)


def test_tables_over_large_arrays():
    rng = np.random.default_rng(3)
    x = halves(rng, (80, 100), "any")
    for name in arithmetic.FUNCTIONS:
        table = arithmetic.function_table(name)
        assert same(arithmetic.lookup(table, x), arithmetic.lookup(table, x, exact=True))


@given(
    m=st.integers(1, 9), k=st.integers(1, 3000), n=st.integers(1, 9), seed=st.integers(0, 1 << 30),
    scale=st.sampled_from([2.0**-14, 0.0123, 1.0, 3.7e-5]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_int8_products(m, k, n, seed, scale):
    rng = np.random.default_rng(seed)
    x, w = rng.integers(-128, 128, (m, k)).astype(np.int8), rng.integers(-128, 128, (k, n)).astype(np.int8)
    assert same(arithmetic.mac_int8(x, w, scale), arithmetic.mac_int8(x, w, scale, exact=True))


@pytest.mark.slow
def test_int8_overflow_comes_back_only_in_the_sum():
    x = np.full((2, 200_000), -128, np.int8)
    w = np.full((200_000, 1), -128, np.int8)
    w[140_000:] = 127
    x[1, ::2] = 127
    assert same(arithmetic.mac_int8(x, w, 2.0**-16), arithmetic.mac_int8(x, w, 2.0**-16, exact=True))


def test_the_scale_of_an_int8_sum_is_rounded_once():
    """A product of a 30-bit sum and a 24-bit scale that lies just beside a tie."""
    total, scale = np.array([float((1 << 30) - 1)]), float(np.float32(1.00000012))
    exact = ((1 << 30) - 1) * int(scale * 2**23)
    rounded = multiply.scaled_exactly(total, scale)[0]
    assert abs(int(rounded * 2**23) - exact) <= 2**10


def test_a_vector_code_that_the_processor_lacks_is_refused(monkeypatch):
    """Before it can end the process with an illegal instruction."""
    monkeypatch.setattr(targets, "_has", lambda name: name == "avx2")
    monkeypatch.setenv("HEXANE_SIMD", "avx512")
    with pytest.raises(UsageError, match="cannot run"):
        best.__wrapped__()
