"""Computations as jobs give the bits that they give by themselves, in whatever pieces, wherever operands lie."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numba import njit

from hexane.arithmetic import convolution, elementwise, function_table
from hexane.arithmetic.elementwise import whole_function
from hexane.arithmetic.fast import jobs, matrix, planar_job, product_record, windows_job
from hexane.arithmetic.plain_convolution import WindowPlaces
from hexane.arithmetic.pooling import largest_in_windows
from hexane.arithmetic.reduction import reduce
from hexane.kernels.exact_tables import clip_table

RNG = np.random.default_rng(5)
RELU6 = np.frombuffer(clip_table(0.0, 6.0).to_bytes(), np.uint16)


@pytest.fixture(params=[False, True], ids=["whole", "in pieces"])
def pieces(request, monkeypatch):
    """Work as it is shared by itself, and in as many pieces as there may be."""
    if request.param:
        monkeypatch.setattr(jobs, "COST", 1)
        monkeypatch.setattr(jobs, "thread_count", lambda: 3)


def values(*shape: int, wild: bool = False) -> np.ndarray:
    """fp16; ``wild``: any bits."""
    if wild:
        return RNG.integers(0, 1 << 16, shape).astype(np.uint16).view(np.float16)
    return (RNG.standard_normal(shape) * 2.0 ** RNG.integers(-8, 4, shape)).astype(np.float16)


def spread(x: np.ndarray, gaps: bool) -> np.ndarray:
    """The same values with room behind every row and channel, as they lie in the engine's memories."""
    if not gaps:
        return np.ascontiguousarray(x)
    wide = np.zeros((*x.shape[:-2], x.shape[-2] + 1, x.shape[-1] + 3), x.dtype)
    wide[..., : x.shape[-2], : x.shape[-1]] = x
    return wide[..., : x.shape[-2], : x.shape[-1]]


def ran(*made: jobs.CompiledJob | None) -> None:
    """All of them, twice: nothing of a run is left for the next."""
    assert None not in made
    span = jobs.Span([job for job in made if job is not None])
    span.run()
    span.run()


CONVOLUTIONS = [  # channels in and out, groups, kernel, strides, pads, map
    (24, 40, 1, (1, 1), (1, 1), (0, 0, 0, 0), (9, 13)),
    (24, 40, 1, (1, 1), (2, 1), (0, 0, 0, 0), (9, 13)),
    (8, 30, 1, (3, 3), (1, 1), (1, 1, 1, 1), (17, 40)),
    (6, 13, 1, (5, 3), (2, 2), (1, 2, 1, 2), (14, 15)),
    (48, 48, 4, (1, 1), (1, 1), (0, 0, 0, 0), (7, 7)),
    (32, 64, 2, (3, 1), (1, 2), (0, 1, 0, 0), (10, 11)),
    (20, 20, 20, (3, 3), (1, 1), (1, 1, 1, 1), (12, 9)),
    (20, 20, 20, (5, 5), (2, 2), (2, 2, 2, 2), (12, 19)),
    (10, 10, 10, (3, 3), (2, 2), (1, 1, 0, 0), (9, 71)),
    (10, 20, 10, (3, 3), (3, 3), (1, 1, 1, 1), (10, 70)),
    (8, 8, 4, (3, 3), (1, 1), (1, 1, 1, 1), (5, 37)),
    (300, 70, 1, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    (300, 70, 1, (1, 1), (1, 1), (0, 0, 0, 0), (2, 2)),
    (30, 70, 1, (3, 3), (1, 1), (0, 0, 0, 0), (3, 4)),
    (30, 70, 1, (2, 4), (2, 2), (0, 0, 0, 0), (3, 5)),
    (30, 16, 1, (1, 1), (1, 1), (0, 0, 0, 0), (9, 21)),
    (30, 28, 1, (3, 3), (1, 1), (1, 1, 1, 1), (8, 8)),
    (20, 48, 1, (3, 3), (1, 1), (1, 1, 1, 1), (3, 14)),
]


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("scale, activation", [(1.0, None), (1.0, "relu"), (0.37, "tanh"), (1.0, "relu6")])
def test_convolution(pieces, shape, gaps, scale, activation):
    cin, cout, groups, kernel, strides, pads, size = shape
    x = values(2, cin, *size)
    w, bias = values(cout, cin // groups, *kernel) / np.float16(kernel[0] * cin**0.5), values(cout)
    table = {"tanh": function_table("tanh"), "relu6": RELU6}.get(activation, activation)
    ready = convolution.prepare(
        x.shape[1:], w, bias, strides=strides, pads=pads, groups=groups, post_scale=scale, activation=table
    )
    ready.keep()
    for image in x:
        wanted = ready(image[None])
        source = spread(image, gaps).view(np.uint16)
        out = spread(np.zeros_like(wanted[0]), gaps).view(np.uint16)
        ran(ready.job(source[None, None], _grouped(out, groups)))
        np.testing.assert_array_equal(out, wanted[0].view(np.uint16))


def _grouped(x: np.ndarray, groups: int) -> np.ndarray:
    """(C, H, W) as (1, groups, C / groups, H, W), a view."""
    c, h, w = x.shape
    per = c // groups
    steps = (0, per * x.strides[0], *x.strides)
    return np.lib.stride_tricks.as_strided(x, (1, groups, per, h, w), steps)


@pytest.mark.parametrize("woven", [False, True])
@pytest.mark.parametrize("count, outputs", [(4, 48), (2, 26), (3, 72), (6, 96)])
def test_blocks_of_zeros(pieces, count, outputs, woven):
    x, w = values(1, 24, 6, 7), values(outputs, 24, 3, 3)
    w[RNG.random(w.shape) < 0.1] = -0.0
    for o in range(outputs):
        block = o % count if woven else o // (outputs // count)
        w[o, np.arange(24) % count != block] = 0
    bias = values(outputs)
    ready = convolution.prepare(x.shape[1:], w, bias, pads=(1, 1, 1, 1))
    assert ready.blocks is not None and (ready.blocks.number, ready.blocks.woven) == (count, woven)
    wanted = convolution.prepare(x.shape[1:], w, bias, pads=(1, 1, 1, 1), exact=True)(x)
    np.testing.assert_array_equal(ready(x), wanted)
    ready.keep()
    np.testing.assert_array_equal(ready(x), wanted)
    for gaps in (False, True):
        out = spread(np.zeros_like(wanted[0]), gaps).view(np.uint16)
        ran(ready.job(x.view(np.uint16)[None], out[None, None]))
        np.testing.assert_array_equal(out, wanted[0].view(np.uint16))


@pytest.mark.parametrize("groups", [1, 16])
def test_a_table_that_is_a_relu_with_a_bound(groups):
    x, w = values(1, 16, 8, 8) * np.float16(8), values(16, 16 // groups, 3, 3) * np.float16(4)
    x[0, 3], bias = 1000, values(16)
    for scale in (1.0, 0.37):
        options = {"pads": (1, 1, 1, 1), "groups": groups, "post_scale": scale, "activation": RELU6}
        ready = convolution.prepare(x.shape[1:], w, bias, **options)
        np.testing.assert_array_equal(ready(x), convolution.prepare(x.shape[1:], w, bias, **options, exact=True)(x))
        np.testing.assert_array_equal(ready(x).max(), np.float16(6))
    capped = [matrix.capped(matrix.Finish(table=whole_function(t.tobytes()))) for t in (RELU6, function_table("tanh"))]
    assert [finish.parts[2].size for finish in capped] == [1, 1 << 16]
    assert capped[0].relu and not capped[1].relu


def test_sums_that_meet_the_limit(pieces):
    x, w = np.full((1, 64, 6, 6), 900, np.float16), np.full((24, 64, 1, 1), 3, np.float16)
    w[::2] *= -1
    x[0, ::3] *= -1
    ready = convolution.prepare(x.shape[1:], w)
    ready.keep()
    wanted = ready(x)
    assert np.isinf(wanted).any()
    out = np.zeros(wanted.shape, np.uint16)
    ran(ready.job(x.view(np.uint16)[None], out[None]))
    np.testing.assert_array_equal(out, wanted.view(np.uint16))


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "max", "min", "sumsq"])
def test_element_wise(pieces, op, gaps):
    table = RNG.integers(0, 1 << 16, 1 << 16).astype(np.uint16)
    for shape, other in [
        ((1, 2, 7, 5, 9), (1, 1, 7, 1, 1)),
        ((3, 1, 4, 6, 8), (3, 1, 4, 6, 8)),
        ((1, 1, 5, 4, 3),) * 2,
    ]:
        a, b = values(*shape, wild=True), values(*other, wild=True)
        wanted = elementwise(op, a, b).view(np.uint16)
        for follow in (None, table):
            out = spread(np.zeros(shape, np.uint16), gaps)
            ran(planar_job.operate(op, spread(a, gaps).view(np.uint16), b.view(np.uint16), follow, out))
            np.testing.assert_array_equal(out, wanted if follow is None else table[wanted])
        ran(planar_job.operate(op, a.view(np.uint16), b.view(np.uint16), None, out, relu=True))
        np.testing.assert_array_equal(out, np.where(wanted < 0x8000, wanted, 0))
        place = spread(a, gaps).view(np.uint16)
        jobs.Span([planar_job.operate(op, place, b.view(np.uint16), table, place)]).run()
        np.testing.assert_array_equal(place, table[wanted])


def test_tables_and_copies(pieces):
    table = RNG.integers(0, 1 << 16, 1 << 16).astype(np.uint16)
    x = values(2, 1, 5, 6, 7, wild=True).view(np.uint16)
    for source in (x, spread(x, True), x.swapaxes(2, 4)):
        out, other = np.zeros(source.shape, np.uint16), np.zeros(source.shape[::-1], np.uint16).transpose()
        ran(planar_job.look_up(table, source, out), planar_job.copied(out, other))
        np.testing.assert_array_equal(out, table[source])
        np.testing.assert_array_equal(other, out)


@pytest.mark.parametrize("mode, function", [("max", None), ("sum", None), ("sum", "rsqrt"), ("sum", "reciprocal")])
def test_reduction(pieces, mode, function):
    for shape in [(1, 1, 20, 7, 7), (2, 3, 4, 5, 6), (1, 1, 1, 1, 1000)]:
        x = values(*shape)
        scale, epsilon = (0.03125, 0.001) if function == "rsqrt" else (1.0, 0.0)
        wanted = reduce(x, (1, 3, 4), mode, scale=scale, epsilon=epsilon, nonlinear=function, keepdims=True).view(
            np.uint16
        )
        for source in (x, spread(x, True)):
            out = np.zeros(wanted.shape, np.uint16)
            which = (None, "reciprocal", "rsqrt", "sqrt").index(function)
            ran(planar_job.reduce(source.view(np.uint16), mode == "max", scale, float(np.float16(epsilon)), which, out))
            np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize(
    "window, strides, pads", [((3, 3), (2, 2), (1, 1)), ((2, 3), (1, 1), (0, 1)), ((5, 2), (2, 1), (2, 0))]
)
def test_windows(pieces, window, strides, pads, gaps):
    table = RNG.integers(0, 1 << 16, 1 << 16).astype(np.uint16)
    x = values(2, 3, 5, 13, 17, wild=True)
    out = tuple((n + 2 * p - k) // s + 1 for n, p, k, s in zip(x.shape[3:], pads, window, strides))
    wanted = largest_in_windows(x, window, strides, pads, out).view(np.uint16)
    for follow in (None, table):
        found = spread(np.zeros(wanted.shape, np.uint16), gaps)
        ran(windows_job.job(spread(x, gaps).view(np.uint16), window, strides, pads, follow, found))
        np.testing.assert_array_equal(found, wanted if follow is None else table[wanted])


def test_an_image_that_is_decoded_serves_the_next_product(pieces):
    x = values(1, 40, 9, 11)
    ready = [convolution.prepare(x.shape[1:], values(n, 40, 3, 3), pads=(1, 1, 1, 1)) for n in (8, 16, 8)]
    outs = [np.zeros((1, 1, n, 9, 11), np.uint16) for n in (8, 16, 8)]
    for one in ready:
        one.keep()
    other = values(1, 40, 9, 11)
    seen = x, x, other
    made = [one.job(y.view(np.uint16)[None], out) for one, y, out in zip(ready, seen, outs)]
    assert made[0].first == made[1].first != made[2].first
    ran(*made)
    for one, y, out in zip(ready, seen, outs):
        np.testing.assert_array_equal(out[0], one(y).view(np.uint16))


def test_spans_of_several_threads_do_not_meet(pieces):
    x = values(1, 32, 20, 20)
    ready = convolution.prepare(x.shape[1:], values(32, 32, 3, 3), pads=(1, 1, 1, 1))
    ready.keep()
    wanted = ready(x).view(np.uint16)

    def many(_: int) -> bool:
        out = np.zeros(wanted.shape, np.uint16)
        span = jobs.Span([ready.job(x.view(np.uint16)[None], out[None])] * 3)
        for _ in range(20):
            out[...] = 0
            span.run()
            if not np.array_equal(out, wanted):
                return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(many, range(8)))


@pytest.mark.parametrize("wild", [False, True])
@pytest.mark.parametrize("groups, kernel, size", [(1, (1, 1), (9, 13)), (3, (1, 1), (1, 50)), (2, (3, 2), (6, 7))])
def test_weights_that_are_read_in_every_run(pieces, groups, kernel, size, wild):
    x = values(1, 30 * groups, *size, wild=wild)
    w = [values(17 * groups, 30, *kernel, wild=wild) for _ in range(2)]
    options = {"groups": groups, "post_scale": 0.37, "activation": "relu"}
    like = convolution.prepare(x.shape[1:], np.ones_like(w[0]), **options)
    index = RNG.permutation(2 * w[0].size)[: w[0].size].reshape(w[0].shape)
    data = np.zeros(4 * w[0].size, np.uint8)
    out = np.zeros((1, groups, 17, *like.window.output), np.uint16)
    source = x.view(np.uint16).reshape(1, groups, 30, *size)
    span = jobs.Span([like.reading(WindowPlaces(data, index), source, out)] * 2)  # the second finds the image
    for weights in (*w, w[0]):
        data.view(np.uint16)[index] = weights.view(np.uint16)
        span.run()
        wanted = convolution.prepare(x.shape[1:], weights, **options, exact=True)(x)
        np.testing.assert_array_equal(out.reshape(wanted.shape), wanted.view(np.uint16))


@njit
def _places(numbers):
    return product_record._places(numbers, np.int64(0), np.int64(100))


@pytest.mark.parametrize("tile", [(6, 16, 1, 1), (4, 8, 5, 7), (12, 32, 2, 3), (6, 24, 16, 4)])
def test_parts_of_a_thread_s_memory_do_not_meet(tile):
    """Each has room for what is written there of a block of panels: by cell, by tile, by panel, by term of a pass."""
    record, depth = product_record, product_record.DEPTH
    numbers = np.zeros(len(record.ProductRecord._fields), np.int64)
    numbers[[record.TILE_ROWS, record.TILE_COLUMNS, record.TILE_PANELS, record.TILE_ACROSS]] = tile
    at = _places(numbers)
    names = at._fields[at._fields.index("sums") :]
    room = dict(zip(names, np.diff([getattr(at, name) for name in names]).tolist()))
    rows, columns, panels, across = tile
    needed = {
        "sums": 4 * rows * columns * panels * across, "met": 4 * rows * columns * panels * across,
        "bounds": 8 * panels * across, "starts": 4 * rows * columns * panels, "halves": 2 * rows * columns,
        "have_limits": panels, "limits": 4 * rows * panels * depth, "wide_rows": 8 * rows * depth,
        "wide_limits": 8 * rows * depth, "wide_columns": 8 * columns * depth, "packed": 4 * columns * depth,
        "packed_norms": 4 * depth // record.SEGMENT, "every": 4 * depth, "least": depth, "plain": 4 * depth,
        "tested": 4 * depth,
    }  # fmt: skip
    assert room.keys() == needed.keys()
    assert not {name: (room[name], size) for name, size in needed.items() if room[name] < size}
