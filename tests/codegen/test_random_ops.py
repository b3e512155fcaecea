"""Single ops at random shapes: the compiled program on the emulator is near the float32 reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import hexane
from hexane.graph import GraphBuilder

from .levels import agreed

quick = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
EXTENTS = st.sampled_from([1, 2, 3, 5, 8, 15, 16, 17, 28, 32, 33, 56, 64, 65, 100])
CHANNELS = st.sampled_from([1, 2, 3, 8, 16, 17, 24, 32, 48, 64, 100, 128, 130])
WIDTHS = st.sampled_from([1, 2, 3, 7, 8, 14, 16, 28, 33, 64, 128, 129, 200, 300, 375, 512])
MAPS = st.tuples(st.sampled_from([1, 1, 2]), CHANNELS, st.sampled_from([1, 2, 4, 7, 14, 16, 28, 33]), WIDTHS).filter(
    lambda s: np.prod(s) <= 120_000
)


def run(graph, rng, *, low=None):
    """Outputs of the compiled program and of the reference; None when the host has a part of it."""
    program = hexane.compile(graph)
    inputs = {}
    for name, type_ in graph.inputs.items():
        values = rng.standard_normal(type_.shape) * 0.5
        if low is not None:
            values = np.abs(values) + low
        inputs[name] = (values > 0) if type_.dtype == "bool" else values.astype(np.float16)
    made, wanted = program.run(inputs), graph.evaluate(inputs)
    return program, made, wanted


def near(made, wanted, tolerance=0.02):
    for name, reference in wanted.items():
        assert made[name].shape == reference.shape
        ours, theirs = made[name].astype(float), reference.astype(float)
        finite = np.isfinite(theirs) & (np.abs(theirs) < 30_000)
        scale = np.maximum(1.0, np.abs(theirs))
        assert np.all(np.abs(ours - theirs)[finite] <= tolerance * scale[finite]), name


def on_engine(program):
    """Whether every op is on the engine; a fallback to the host gives the reference's values and hides a fault."""
    return all(segment.kind == "engine" for segment in program.segments)


@given(MAPS, st.sampled_from(["relu", "sigmoid", "tanh", "silu", "abs", "square"]), st.integers(0, 99))
@quick
def test_unary(shape, op, seed):
    builder = GraphBuilder()
    builder.output(getattr(builder, op)(x=builder.input("x", shape, "fp16"), name="y"))
    program, made, wanted = run(builder.graph, np.random.default_rng(seed))
    assert on_engine(program)
    near(made, wanted)


@given(
    MAPS,
    st.tuples(*[st.booleans()] * 4),
    st.sampled_from(["add", "sub", "mul", "maximum", "minimum", "real_div"]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 99),
)
@quick
def test_binary(shape, ones, op, constant, swap, seed):
    assume(constant or not (ones[0] and shape[0] > 1 and not swap))
    rng = np.random.default_rng(seed)
    builder = GraphBuilder()
    small = tuple(1 if one else extent for one, extent in zip(ones, shape))
    a = builder.input("x", shape, "fp16")
    b = (np.abs(rng.standard_normal(small)) + 0.5).astype(np.float16) if constant else builder.input("z", small, "fp16")
    first, second = (b, a) if swap else (a, b)
    builder.output(getattr(builder, op)(x=first, y=second, name="y"))
    program, made, wanted = run(builder.graph, rng, low=0.5 if op == "real_div" else None)
    assert on_engine(program)
    near(made, wanted)


@given(
    st.sampled_from([1, 3, 8, 16, 24, 32, 64]),
    st.sampled_from([1, 2, 3, 8, 16, 17, 24, 32, 40, 64, 100]),
    st.sampled_from([(1, 1), (3, 3), (5, 5), (1, 3), (3, 1), (7, 7)]),
    st.sampled_from([1, 2]),
    st.sampled_from(["same", "valid", "custom"]),
    st.tuples(st.sampled_from([7, 8, 16, 28]), st.sampled_from([7, 8, 16, 28, 56, 140])),
    st.sampled_from([None, "relu", "silu"]),
    st.booleans(),
    st.integers(0, 99),
)
@quick
def test_convolution(cin, cout, kernel, stride, pad_type, size, activation, bias, seed):
    rng = np.random.default_rng(seed)
    builder = GraphBuilder()
    weight = (rng.standard_normal((cout, cin, *kernel)) / np.sqrt(cin * np.prod(kernel))).astype(np.float16)
    pads = [int(rng.integers(0, k)) for k in kernel for _ in range(2)] if pad_type == "custom" else [0] * 4
    operands = {"bias": rng.standard_normal(cout).astype(np.float16)} if bias else {}
    y = builder.conv(
        x=builder.input("x", (1, cin, *size), "fp16"),
        weight=weight,
        strides=(stride, stride),
        pad_type=pad_type,
        pad=pads,
        name="c",
        **operands,
    )
    builder.output(getattr(builder, activation)(x=y, name="y") if activation else y)
    program, made, wanted = run(builder.graph, rng)
    assert on_engine(program)
    near(made, wanted)


@given(
    st.sampled_from([1, 2, 8, 15, 16, 24, 32, 64, 100, 200]),
    st.sampled_from([8, 33, 64, 128, 300]),
    st.sampled_from([1, 7, 16, 24, 40, 64, 128, 250]),
    st.booleans(),
    st.sampled_from([None, "uniform", "vector"]),
    st.integers(0, 99),
)
@quick
def test_product_with_constant(m, k, n, relu, bias, seed):
    rng = np.random.default_rng(seed)
    builder = GraphBuilder()
    operands = {}
    if bias:
        operands["bias"] = (
            np.full(n, 0.25, np.float16) if bias == "uniform" else rng.standard_normal(n).astype(np.float16)
        )
    weight = (rng.standard_normal((n, k)) / np.sqrt(k)).astype(np.float16)
    y = builder.linear(x=builder.input("x", (m, k), "fp16"), weight=weight, name="p", **operands)
    builder.output(builder.relu(x=y, name="y") if relu else y)
    program, made, wanted = run(builder.graph, rng)
    assert on_engine(program)
    near(made, wanted)


@given(
    st.sampled_from([1, 3, 16, 17, 32, 48, 64, 96, 160]),
    st.sampled_from([8, 33, 64, 128]),
    st.sampled_from([8, 33, 64, 100]),
    st.booleans(),
    st.sampled_from([(), (1,), (2,), (1, 3)]),
    st.integers(0, 99),
)
@quick
def test_product_of_computed(m, k, n, turned, lead, seed):
    builder = GraphBuilder()
    x = builder.input("x", (*lead, m, k), "fp16")
    w = builder.input("w", (*lead, n, k) if turned else (*lead, k, n), "fp16")
    builder.output(builder.matmul(x=x, y=w, transpose_y=turned, name="y"))
    program, made, wanted = run(builder.graph, np.random.default_rng(seed))
    assert on_engine(program)
    near(made, wanted)


@given(
    MAPS,
    st.sampled_from(["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_l2_norm"]),
    st.sampled_from([(1,), (2,), (3,), (2, 3), (1, 2, 3)]),
    st.booleans(),
    st.integers(0, 99),
)
@quick
def test_reduction(shape, op, axes, keep, seed):
    builder = GraphBuilder()
    builder.output(getattr(builder, op)(x=builder.input("x", shape, "fp16"), axes=axes, keep_dims=keep, name="y"))
    if op == "reduce_sum":
        near_sum(builder.graph, shape, axes, keep, seed)
        return
    program, made, wanted = run(builder.graph, np.random.default_rng(seed))
    assert on_engine(program)
    near(made, wanted)


def near_sum(graph, shape, axes, keep, seed):
    """Against float64: a sum may end near zero, partial sums that are rounded to fp16 are as large as a random walk."""
    program = hexane.compile(graph)
    assert on_engine(program)
    x = (np.random.default_rng(seed).standard_normal(shape) * 0.5).astype(np.float16)
    exact = x.astype(float).sum(axis=axes, keepdims=keep)
    walk = np.sqrt(np.square(x.astype(float)).sum(axis=axes, keepdims=keep))
    error = np.abs(program.run({"x": x})["y"] - exact)
    assert (error <= 8 * 2.0**-11 * np.maximum(np.abs(exact), walk)).all()  # 2.3 units were the most of 150 draws


COMPARISONS = st.sampled_from(["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"])


@given(MAPS, COMPARISONS, st.booleans(), st.integers(0, 99))
@quick
def test_comparison(shape, op, number, seed):
    builder, rng = GraphBuilder(), np.random.default_rng(seed)
    x = builder.input("x", shape, "fp16")
    y = np.float16(0.5) if number else builder.input("z", shape, "fp16")
    builder.output(builder.cast(x=getattr(builder, op)(x=x, y=y), dtype="fp16", name="y"))
    program = hexane.compile(builder.graph)
    assert on_engine(program) or (number and shape[0] > 1)  # a number beside a batch has no recipe
    inputs = {name: (rng.integers(-3, 4, shape) * 0.5).astype(np.float16) for name in builder.graph.inputs}
    made, wanted = program.run(inputs), builder.graph.evaluate(inputs)
    np.testing.assert_array_equal(made["y"], wanted["y"])


@given(MAPS, st.sampled_from([1, 2, 3]), st.integers(0, 99))
@quick
def test_softmax(shape, axis, seed):
    builder = GraphBuilder()
    builder.output(builder.softmax(x=builder.input("x", shape, "fp16"), axis=axis, name="y"))
    program, made, wanted = run(builder.graph, np.random.default_rng(seed))
    assert on_engine(program) or shape[axis] == 1
    near(made, wanted)


@given(MAPS, st.sampled_from([(1,), (3,), (2, 3), (1, 2, 3)]), st.integers(0, 99))
@quick
def test_layer_norm(shape, axes, seed):
    assume(np.prod([shape[a] for a in axes]) >= 8)  # few values: the variance is rounded away in float16
    builder = GraphBuilder()
    builder.output(builder.layer_norm(x=builder.input("x", shape, "fp16"), axes=axes, epsilon=1e-5, name="y"))
    program, made, wanted = run(builder.graph, np.random.default_rng(seed))
    assert on_engine(program) or (len(axes) > 1 and shape[3] > 256)  # the planar engine's window of a row
    near(made, wanted, 0.05)


@given(st.lists(EXTENTS, min_size=2, max_size=4), st.randoms(use_true_random=False), st.integers(0, 99))
@quick
def test_transpose(shape, random, seed):
    assume(np.prod(shape) <= 200_000)
    order = list(range(len(shape)))
    random.shuffle(order)
    builder = GraphBuilder()
    builder.output(builder.transpose(x=builder.input("x", tuple(shape), "fp16"), perm=order, name="y"))
    program, made, wanted = run(builder.graph, np.random.default_rng(seed))
    assert on_engine(program)
    near(made, wanted, 0)


@given(MAPS, st.tuples(*[st.floats(0, 0.99)] * 4), st.tuples(*[st.sampled_from([1, 1, 2, 3])] * 4), st.integers(0, 99))
@quick
def test_slice(shape, starts, steps, seed):
    begin = [int(f * extent) for f, extent in zip(starts, shape)]
    builder = GraphBuilder()
    x = builder.input("x", shape, "fp16")
    builder.output(builder.slice_by_index(x=x, begin=begin, end=shape, stride=steps, name="y"))
    program, made, wanted = run(builder.graph, np.random.default_rng(seed))
    assert on_engine(program)
    near(made, wanted, 0)


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("widths", [(32, 64), (5, 7, 1), (33, 2)])
def test_concat(axis, widths):
    builder = GraphBuilder()
    parts = []
    for i, width in enumerate(widths):
        shape = [2, 5, 6, 40]
        shape[axis] = width
        parts.append(builder.input(f"x{i}", tuple(shape), "fp16"))
    builder.output(builder.concat(values=tuple(parts), axis=axis, name="y"))
    program, made, wanted = run(builder.graph, np.random.default_rng(1))
    assert on_engine(program)
    near(made, wanted, 0)


@given(MAPS, st.tuples(*[st.booleans()] * 4), st.integers(0, 99))
@quick
def test_select(shape, ones, seed):
    builder = GraphBuilder()
    small = tuple(1 if one else extent for one, extent in zip(ones, shape))
    assume(small[0] == shape[0])
    cond = builder.input("c", small, "bool")
    a, b = builder.input("a", shape, "fp16"), builder.input("b", shape, "fp16")
    builder.output(builder.select(cond=cond, a=a, b=b, name="y"))
    program, made, wanted = run(builder.graph, np.random.default_rng(seed))
    assert on_engine(program)
    near(made, wanted)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("m", "k", "n", "lead"), [(64, 32, 48, ()), (7, 33, 100, ()), (100, 64, 17, (2,)), (300, 512, 64, ())]
)
def test_product_with_a_constant_first_operand(m, k, n, lead, turned):
    rng = np.random.default_rng(m)
    builder = GraphBuilder()
    weight = (rng.standard_normal((m, k)) / np.sqrt(k)).astype(np.float16)
    y = builder.input("x", (*lead, n, k) if turned else (*lead, k, n), "fp16")
    builder.output(builder.relu(x=builder.matmul(x=weight, y=y, transpose_y=turned), name="y"))
    program, made, wanted = run(builder.graph, rng)
    assert on_engine(program)
    near(made, wanted)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("shape", [(1, 5, 21, 5, 1), (1, 1, 3, 21, 10)])
def test_softmax_of_five_axes(shape, axis):
    """A leading axis of one element is no axis of the surface: not the last one instead."""
    rng, builder = np.random.default_rng(axis), GraphBuilder()
    builder.output(builder.softmax(x=builder.input("x", shape, "fp16"), axis=axis, name="y"))
    program, made, wanted = run(builder.graph, rng)
    near(made, wanted, 0.005)
    inputs = {"x": rng.standard_normal(shape).astype(np.float16)}
    agreed(program, inputs)
