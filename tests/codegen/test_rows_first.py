"""Maximum pools with planar maxima of rows first: the results of one task, and only where the price is smaller."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder
from hexane.timing.traffic import traffic

from .levels import agreed


def network(shape, sizes, strides, pad=(0, 0, 0, 0), *, ceil_mode=False, inside=True):
    b = GraphBuilder()
    x = b.input("x", shape, "fp16")
    settings = dict(kernel_sizes=sizes, strides=strides, pad_type="custom", pad=list(pad), ceil_mode=ceil_mode)
    b.output(b.max_pool(x=b.abs(x=x) if inside else x, **settings))
    return b.graph


def pooled(x, sizes, strides):
    """Windows without padding, in NumPy."""
    view = np.lib.stride_tricks.sliding_window_view(x, sizes, (2, 3))
    return view[:, :, :: strides[0], :: strides[1]].max((-1, -2))


@pytest.mark.parametrize(
    "shape, sizes, strides",
    [
        ((1, 128, 54, 56), (2, 2), (2, 2)),
        ((1, 48, 99, 99), (3, 3), (2, 2)),
        ((1, 128, 63, 63), (3, 3), (2, 2)),
        ((2, 96, 40, 62), (2, 2), (2, 2)),
        ((1, 256, 33, 40), (3, 2), (2, 1)),
    ],
)
def test_the_same_results(shape, sizes, strides):
    graph = network(shape, sizes, strides)
    rng = np.random.default_rng(2)
    x = rng.normal(size=shape).astype(np.float16)
    x[rng.random(shape) < 0.02] = np.inf
    x[rng.random(shape) < 0.02] = -np.inf
    x[rng.random(shape) < 0.02] = -0.0
    x[rng.random(shape) < 0.02] = 6e-8
    program, plain = hexane.compile(graph), hexane.compile(graph, without=("rows-first-pools",))
    assert program.stats()["tasks"] > plain.stats()["tasks"]
    results = [
        p.run({"x": x}, level=level) for p, level in ((program, "engine"), (program, "graph"), (plain, "engine"))
    ]
    for result in results:
        np.testing.assert_array_equal(next(iter(result.values())), pooled(np.abs(x), sizes, strides))
    assert hexane.estimate(program).engine_us < hexane.estimate(plain).engine_us


@pytest.mark.parametrize(
    "given",
    [
        ((1, 128, 55, 55), (3, 3), (1, 1)),
        ((1, 16, 8, 8), (2, 2), (2, 2)),
        ((1, 128, 55, 55), (3, 3), (2, 2), (1, 1, 1, 1)),
        ((1, 128, 56, 56), (3, 3), (2, 2), (0, 1, 0, 1)),
        ((1, 128, 56, 56), (1, 2), (1, 2)),
    ],
    ids=str,
)
def test_one_task_elsewhere(given):
    """No stride, a small map, rows of padding, windows of one row."""
    program, plain = hexane.compile(network(*given)), hexane.compile(network(*given), without=("rows-first-pools",))
    assert program.stats()["tasks"] == plain.stats()["tasks"]


def behind_a_convolution(shape, sizes, cin=16, *, read_again=False):
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", (1, cin, *shape[2:]), "fp16")
    weight = (rng.normal(size=(shape[1], cin, 3, 3)) / (9 * cin) ** 0.5).astype(np.float16)
    made = b.relu(x=b.conv(x=x, weight=weight, pad_type="same"))
    b.output(b.max_pool(x=made, kernel_sizes=sizes, strides=(2, 2), pad_type="valid", pad=[0] * 4, ceil_mode=False))
    if read_again:
        b.output(b.abs(x=made), name="z")
    return b.graph, {"x": rng.normal(size=(1, cin, *shape[2:])).astype(np.float16)}


@pytest.mark.parametrize("chip", ["M1", "M2", "M4"])
@pytest.mark.parametrize("shape, sizes", [((1, 64, 160, 160), (2, 2)), ((1, 48, 191, 193), (3, 3))])
def test_maps_beyond_l2_go_band_by_band(shape, sizes, chip):
    graph, inputs = behind_a_convolution(shape, sizes)
    program, plain = hexane.compile(graph, chip), hexane.compile(graph, chip, without=("rows-first-pools",))
    agreed(program, inputs)
    assert hexane.estimate(program, chip).engine_us < 0.95 * hexane.estimate(plain, chip).engine_us
    assert traffic(program).moved <= 1.02 * traffic(plain).moved


@pytest.mark.parametrize("change", ["read again", "kernels beyond the cores", "cores in pairs", "no bands"])
def test_maps_beyond_l2_that_do_not(change):
    chip = "M4" if change == "cores in pairs" else "M1"
    given = {"read again": dict(read_again=True), "kernels beyond the cores": dict(cin=512)}.get(change, {})
    shapes = {"kernels beyond the cores": (1, 512, 58, 58), "cores in pairs": (1, 32, 221, 223)}
    shape = shapes.get(change, (1, 64, 160, 160))
    graph, _ = behind_a_convolution(shape, (2, 2), **given)
    off = ("bands",) if change == "no bands" else ()
    program, plain = (hexane.compile(graph, chip, without=(*off, *more)) for more in ((), ("rows-first-pools",)))
    assert [image.to_bytes() for image in program.images] == [image.to_bytes() for image in plain.images]


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_joined_maps_beyond_l2_do_not(chip):
    """The tasks behind a join are not cut together with all of its operands."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", (1, 3, 160, 160), "fp16")
    parts = [b.conv(x=x, weight=rng.normal(size=(32, 3, k, k)).astype(np.float16), pad_type="same") for k in (1, 3)]
    joined = b.concat(values=parts, axis=1)
    b.output(b.max_pool(x=joined, kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid", pad=[0] * 4, ceil_mode=False))
    program, plain = (hexane.compile(b.graph, chip, without=off) for off in ((), ("rows-first-pools",)))
    assert [image.to_bytes() for image in program.images] == [image.to_bytes() for image in plain.images]


def test_a_map_that_is_given_is_read_once():
    graph = network((1, 48, 111, 111), (3, 3), (2, 2), inside=False)
    assert hexane.compile(graph).stats()["tasks"] == 1


def test_strict_and_apple_do_without():
    graph = network((1, 128, 54, 56), (2, 2), (2, 2))
    for options in ({"strict": True}, {"dialect": "apple"}):
        with_it = hexane.compile(graph, **options)
        without = hexane.compile(graph, **options, without=("rows-first-pools",))
        assert with_it.stats()["tasks"] == without.stats()["tasks"]
