"""Ops that move, repeat or compare elements: the tasks on the emulator give exactly the reference's elements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import hexane
from hexane.chips import generation
from hexane.errors import Reason
from hexane.graph import GraphBuilder


def built(make, *shapes):
    b = GraphBuilder()
    values = [b.input(f"x{i}", shape, "fp16") for i, shape in enumerate(shapes)]
    results = make(b, *values)
    for i, value in enumerate(results if isinstance(results, tuple) else (results,)):
        b.output(value, name=f"y{i}")
    return b.graph


def compiled(graph):
    """The program, all of it on the engine."""
    program = hexane.compile(graph)
    host = [segment.reasons for segment in program.segments if segment.kind == "host"]
    assert not host, host
    return program


def exact(make, *shapes, seed=0):
    graph = built(make, *shapes)
    rng = np.random.default_rng(seed)
    given_ = {f"x{i}": rng.standard_normal(shape).astype(np.float16) for i, shape in enumerate(shapes)}
    program = compiled(graph)
    found, wanted = program.run(given_), graph.evaluate(given_)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    return program


SIZES = st.integers(1, 20)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_max_pool(data):
    draw = data.draw
    k = [draw(st.integers(1, 5)), draw(st.integers(1, 5))]
    pad = [draw(st.integers(0, n // 2)) for n in k for _ in range(2)]
    step = [draw(st.integers(1, 3)), draw(st.integers(1, 3))]
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 40)), draw(st.integers(5, 30)), draw(st.integers(5, 30)))
    ceil = draw(st.booleans())
    for extent, size, stride, (before, after) in zip(shape[2:], k, step, (pad[:2], pad[2:])):
        starts = range(0, extent + before + after - size + 1 + (stride - 1) * ceil, stride)
        assume(starts[-1] - before < extent)  # a window that sees padding only has no value
    exact(lambda b, x: b.max_pool(x=x, kernel_sizes=k, strides=step, pad_type="custom", pad=pad, ceil_mode=ceil), shape)


@pytest.mark.parametrize("op", ["pixel_shuffle", "depth_to_space", "pixel_unshuffle", "space_to_depth"])
@settings(deadline=None, max_examples=12)
@given(factor=st.integers(2, 4), n=st.integers(1, 2), c=st.integers(1, 9), h=SIZES, w=SIZES)
def test_shuffles(op, factor, n, c, h, w):
    up = op in ("pixel_shuffle", "depth_to_space")
    shape = (n, c * factor * factor, h, w) if up else (n, c, h * factor, w * factor)
    name = {"pixel_shuffle": "upscale_factor", "pixel_unshuffle": "downscale_factor"}.get(op, "block_size")
    exact(lambda b, x: b.op(op, x=x, **{name: factor}), shape)


@settings(deadline=None, max_examples=20)
@given(tall=st.integers(1, 4), wide=st.integers(1, 4), n=st.integers(1, 2), c=SIZES, h=SIZES, w=SIZES)
def test_nearest_neighbour(tall, wide, n, c, h, w):
    exact(
        lambda b, x: b.upsample_nearest_neighbor(x=x, scale_factor_height=float(tall), scale_factor_width=float(wide)),
        (n, c, h, w),
    )


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_pads(data):
    draw = data.draw
    mode = draw(st.sampled_from(["constant", "reflect", "replicate"]))
    widths = [draw(st.integers(0, 4)) for _ in range(4)]
    if mode == "constant":
        widths = [draw(st.integers(0, 1)) for _ in range(2)] + [draw(st.integers(0, 3)) for _ in range(2)] + widths
    number = draw(st.sampled_from([0.0, -2.5])) if mode == "constant" else 0.0
    shape = (draw(st.integers(1, 2)), draw(SIZES), draw(st.integers(5, 20)), draw(st.integers(5, 40)))
    exact(lambda b, x: b.relu(x=b.pad(x=x, pad=widths, mode=mode, constant_val=number)), shape)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_reshapes(data):
    draw = data.draw
    factors = [draw(st.sampled_from([1, 2, 3, 4, 5, 8])) for _ in range(5)]

    def split():
        cuts = sorted(draw(st.integers(0, 5)) for _ in range(2))
        return [int(np.prod(part)) for part in (factors[: cuts[0]], factors[cuts[0] : cuts[1]], factors[cuts[1] :])]

    before, after = [1, *split()], split()
    if before[1:] != after and int(np.prod(factors)) <= 16384:
        exact(lambda b, x: b.relu(x=b.reshape(x=x, shape=after)), before)


@settings(deadline=None, max_examples=15)
@given(groups=st.integers(2, 5), per=st.integers(2, 5), h=st.integers(1, 9), w=st.integers(2, 40))
def test_channel_shuffle_is_one_task(groups, per, h, w):
    def make(b, x):
        y = b.reshape(x=x, shape=[1, groups, per, h, w])
        return b.reshape(x=b.transpose(x=y, perm=[0, 2, 1, 3, 4]), shape=[1, groups * per, h, w])

    program = exact(make, (1, groups * per, h, w))
    assert program.stats()["tasks"] == 1


@pytest.mark.parametrize("op", ["clip", "sigmoid_hard", "leaky_relu"])
def test_straight_tables_are_as_near_as_fp16(op):
    parameters = {"clip": (0.0, 6.0), "sigmoid_hard": (0.2, 0.5), "leaky_relu": (0.1,)}[op]
    names = dict(zip(("alpha", "beta"), parameters))
    graph = built(lambda b, x: b.op(op, x=x, **names), (1, 16, 8, 33))
    x = (np.random.default_rng(1).standard_normal((1, 16, 8, 33)) * 5).astype(np.float16)
    found, wanted = compiled(graph).run({"x0": x})["y0"], graph.evaluate({"x0": x})["y0"]
    np.testing.assert_allclose(found.astype(np.float32), wanted, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("op", ["erf", "softplus", "softsign", "asin", "acos", "atan", "elu"])
def test_fitted_tables_are_near(op):
    names = {"alpha": 1.0} if op == "elu" else {}
    graph = built(lambda b, x: b.op(op, x=x, **names), (1, 16, 8, 33))
    x = np.random.default_rng(1).uniform(-1, 1, (1, 16, 8, 33)).astype(np.float16)
    found, wanted = compiled(graph).run({"x0": x})["y0"], graph.evaluate({"x0": x})["y0"]
    np.testing.assert_allclose(found.astype(np.float32), wanted, atol=5e-2)


@pytest.mark.parametrize("shape", [(1, 96, 80, 80), (1, 64, 100, 100), (1, 130, 60, 120), (1, 16, 300, 200)])
def test_means_of_large_maps(shape):
    graph = built(lambda b, x: b.reduce_mean(x=x, axes=[2, 3], keep_dims=True), shape)
    x = np.random.default_rng(3).uniform(0, 1, shape).astype(np.float16)
    program = compiled(graph)
    found, wanted = program.run({"x0": x})["y0"], graph.evaluate({"x0": x})["y0"]
    np.testing.assert_allclose(found.astype(np.float32), wanted, atol=2e-3)
    np.testing.assert_array_equal(found, program.run({"x0": x}, level="graph")["y0"])


@settings(deadline=None, max_examples=15)
@given(n=st.integers(1, 3), c=st.sampled_from([1, 3]), h=st.sampled_from([1, 4]), w=st.sampled_from([1, 5]))
def test_tiles_of_a_batch(n, c, h, w):
    reps = [1, *(r if extent == 1 else 1 for r, extent in zip((4, 3, 7), (c, h, w)))]
    exact(lambda b, x: b.tile(x=x, reps=reps), (n, c, h, w))


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize(
    ("shape", "reps", "planar"),
    [
        ((1, 6, 1, 1), (1, 1, 3, 1), True),
        ((6, 1), (1, 7), True),
        ((1, 1, 6), (3, 1, 1), True),
        ((1, 6, 1, 1), (2, 1, 1, 1), False),
        ((3, 2), (2, 1), False),
        ((1, 1, 6, 1, 1), (1, 2, 1, 3, 1), True),
    ],
)
def test_a_tile_of_numbers_that_are_none(shape, reps, planar, chip):
    """The planar engine makes infinity of NaN and +0 of -0 where it broadcasts; copies of the cores keep every bit."""
    special = np.array([0x7E00, 0xFE01, 0x8000, 0x7C00, 0xFC00, 0x0001], np.uint16)
    x = special.view(np.float16).reshape(shape)
    program = hexane.compile(built(lambda b, v: b.tile(x=v, reps=reps), shape), chip)
    assert [segment.kind for segment in program.segments] == ["engine"]
    found, bits = program.run({"x0": x})["y0"], program.run({"x0": x}, level="graph")["y0"]
    read = np.array([0x7C00, 0x7C00, 0, 0x7C00, 0xFC00, 0x0001], np.uint16) if planar else special
    wanted = np.tile(read.reshape(shape), reps)
    np.testing.assert_array_equal(found.view(np.uint16), wanted)
    np.testing.assert_array_equal(bits.view(np.uint16), wanted)


@pytest.mark.parametrize("dtype, least", [("fp16", 32), ("uint8", 64)])
def test_columns_at_multiples_of_64_bytes_are_joined_by_a_copy_each(dtype, least):
    """Others are turned: each part, and the whole back."""
    for width, tasks in (
        (least, 2),
        (3 * least, 2),
        (4 * least, 2),
        (least // 2, 3),
        (least - 1, 3),
        (2 * least + 1, 3),
    ):
        if dtype == "uint8" and tasks > 2:
            continue  # bytes are not turned
        b = GraphBuilder()
        x, y = (b.input(name, (1, 3, 4, size), dtype) for name, size in (("x", width), ("y", 5)))
        b.output(b.concat(values=(x, y), axis=-1))
        (segment,) = compiled(b.graph).segments
        assert len(segment.plans) == tasks, width


def test_concat_with_a_constant():
    constant = np.arange(2 * 3 * 5, dtype=np.float16).reshape(1, 2, 3, 5)
    for axis in (1, 3):
        part = constant if axis == 1 else constant.reshape(1, 2, 3, 5)[:, :1].repeat(4, 1)
        exact(lambda b, x, part=part, axis=axis: b.concat(values=(x, part, x), axis=axis), (1, 4, 3, 5))


@pytest.mark.parametrize("perm", [(0, 1, 3, 2), (0, 3, 1, 2), (3, 0, 1, 2), (1, 2, 0, 3), (2, 1, 0, 3), (3, 2, 1, 0)])
def test_long_columns(perm):
    """More pixels than a task's height field holds, if all of them stood in one column."""
    graph = built(lambda b, x: b.transpose(x=b.relu(x=x), perm=perm), (15, 56, 56, 1))
    x = np.random.default_rng(0).standard_normal((15, 56, 56, 1)).astype(np.float16)
    np.testing.assert_array_equal(compiled(graph).run({"x0": x})["y0"], graph.evaluate({"x0": x})["y0"])
    shape = [graph.main.outputs[0].shape, (1, 1, 1, 15 * 56 * 56), (56, 15 * 56)]
    for wanted in shape:
        graph = built(lambda b, x, wanted=wanted: b.relu(x=b.reshape(x=b.relu(x=x), shape=wanted)), (15, 56, 56, 1))
        program = hexane.compile(graph)
        codes = {code for segment in program.segments for code in segment.codes.values()}
        assert codes == ({Reason.EXTENT} if max(wanted) > generation("h13").max_width else set())
        np.testing.assert_array_equal(program.run({"x0": x})["y0"], graph.evaluate({"x0": x})["y0"])


@pytest.mark.parametrize("axis", [1, 2, 3, 4])
def test_slices_of_five_axes(axis: int) -> None:
    """A leading axis of one element is dropped from the bounds as from the shape."""
    shape = (1, 3, 5, 4, 6)
    begin, size = [0] * 5, list(shape)
    begin[axis], size[axis] = 1, 2
    exact(lambda b, x: b.slice_by_size(x=x, begin=begin, size=size), shape)
    exact(lambda b, x: b.slice_by_size(x=b.relu(x=x), begin=begin, size=size), shape)
