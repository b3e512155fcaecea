"""Functions of one table with the numbers around them, behind sums; maps of channels as depthwise convolutions."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.errors import UsageError
from hexane.graph import GraphBuilder
from hexane.kernels import fitted_table, known_table, scaled_table
from hexane.lowering.fusion import table_call

from .levels import agreed

NAMES = ("single-tables", "scaled-tables", "table-epilogues", "affine-maps")


def hard_swish(b, x):
    return b.mul(x=x, y=b.sigmoid_hard(x=x, alpha=1 / 6, beta=0.5))


def mish(b, x):
    return b.mul(x=b.tanh(x=b.softplus(x=x)), y=x)


FUNCTIONS = {
    "hard_swish": hard_swish,
    "mish": mish,
    "silu": lambda b, x: b.silu(x=x),
    "gelu": lambda b, x: b.gelu(x=x),
    "scaled hard_swish": lambda b, x: b.add(x=b.mul(x=1.25, y=hard_swish(b, x)), y=-0.5),
    "moved silu": lambda b, x: b.sub(x=0.25, y=b.silu(x=x)),
    "divided mish": lambda b, x: b.real_div(x=mish(b, x), y=2.0),
    "relu6": lambda b, x: b.relu6(x=x),
    "clip": lambda b, x: b.clip(x=x, alpha=-0.5, beta=0.75),
    "maximum": lambda b, x: b.maximum(x=x, y=-0.25),
    "minimum": lambda b, x: b.minimum(x=x, y=0.25),
    "leaky_relu": lambda b, x: b.leaky_relu(x=x, alpha=0.1),
    "sigmoid_hard": lambda b, x: b.sigmoid_hard(x=x, alpha=0.2, beta=0.5),
    "softplus": lambda b, x: b.softplus(x=x),
    "elu": lambda b, x: b.elu(x=x, alpha=1.0),
}


def network(function, head):
    """A sum (or nothing) and a function behind it."""
    rng = np.random.default_rng(len(head))
    b = GraphBuilder()
    if head == "linear":
        x = b.input("x", (8, 32), "fp16")
        y = b.linear(
            x=x, weight=rng.normal(size=(24, 32)).astype(np.float16), bias=rng.normal(size=24).astype(np.float16)
        )
    else:
        x = b.input("x", (1, 8, 7, 9), "fp16")
        bias = rng.normal(size=16).astype(np.float16)
        weight = rng.normal(size=(16, 8, 3, 3)).astype(np.float16)
        y = b.conv(x=x, weight=weight, bias=bias, pad_type="same") if head == "conv" else x
    b.output(function(b, y))
    return b.graph, {"x": (0.4 * rng.normal(size=x.shape)).astype(np.float16)}


def tasks(program):
    return sum(len(image.tasks) for image in program.images)


def results(graph, inputs, chip="M1", **switches):
    """Engine and graph level agree; the result, the float32 reference, and how many tasks it took."""
    program = hexane.compile(graph, chip, accuracy="fast", **switches)
    assert not any(segment.kind == "host" for segment in program.segments)
    (name,) = (v.name for v in graph.main.outputs)
    found = agreed(program, inputs)[name]
    return found.astype(np.float32), graph.evaluate(inputs)[name].astype(np.float32), tasks(program)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("head", ["conv", "nothing", "linear"])
def test_a_function_is_one_table(head, name):
    graph, inputs = network(FUNCTIONS[name], head)
    found, reference, count = results(graph, inputs)
    plain, _, before = results(graph, inputs, without=NAMES)
    assert np.abs(found - reference).max() < 0.02 and np.abs(plain - reference).max() < 0.02
    assert count <= before
    if head != "linear":
        assert count == 1


@pytest.mark.parametrize("chip", ["M2", "M3", "M4", "M5"])
@pytest.mark.parametrize("name", ["scaled hard_swish", "relu6", "mish"])
def test_on_later_chips(name, chip):
    graph, inputs = network(FUNCTIONS[name], "conv")
    found, reference, count = results(graph, inputs, chip)
    assert count == 1 and np.abs(found - reference).max() < 0.02


def test_what_is_used_twice_stays():
    b = GraphBuilder()
    x = b.input("x", (1, 8, 5, 5), "fp16")
    y = hard_swish(b, x)
    b.output(b.mul(x=y, y=2.0), b.relu(x=y))
    program = hexane.compile(b.graph, accuracy="fast")
    inputs = {"x": np.linspace(-6, 6, 200).reshape(1, 8, 5, 5).astype(np.float16)}
    agreed(program, inputs)
    assert tasks(program) == 3


@pytest.mark.parametrize("function", ["silu", "gelu", "sigmoid", "softplus"])
@pytest.mark.parametrize("numbers", [(1.25, -0.5), (0.3, 0.0), (1.0, 100.0), (-3.7, 2.0)])
def test_a_number_in_a_table_errs_by_one_rounding_more_at_most(function, numbers):
    """Against float64: the table's own error times the scale, and what fp16 rounds behind it."""
    x = np.linspace(-8, 8, 20001).astype(np.float16)
    table = known_table(function) if function != "softplus" else fitted_table(function).table
    scale, shift = numbers
    behind = (table(x) * np.float16(scale)).astype(float) + float(np.float16(shift))
    right = table(x).astype(float) * scale + shift
    unit = 2.0 ** (np.floor(np.log2(np.abs(right).max())) - 10)
    apart = np.abs(behind.astype(np.float16) - right).max()
    assert np.abs(scaled_table(table, scale, shift)(x) - right).max() <= apart + unit


def test_scaled_tables():
    table = known_table("silu")
    assert scaled_table(table, 1.0, 0.0) is table
    x = np.linspace(-9, 9, 4001).astype(np.float16)
    moved = scaled_table(table, -1.5, 0.75)(x).astype(float)
    assert np.abs(moved - (-1.5 * table(x).astype(float) + 0.75)).max() < 0.012
    for numbers in ((0.0, 1.0), (np.inf, 0.0), (1.0, np.nan)):
        with pytest.raises(UsageError):
            scaled_table(table, *numbers)
    with pytest.raises(UsageError):
        scaled_table(known_table("sqrt"), 2.0, 0.0)
    assert fitted_table("hard_swish").max_error < 0.003


def test_what_is_a_table():
    b = GraphBuilder()
    x = b.input("x", (1, 4, 5, 5), "fp16")
    assert table_call(b.maximum(x=x, y=1.0).op) == ("maximum", (1.0,))
    assert table_call(b.maximum(x=x, y=b.relu(x=x)).op) is None
    assert table_call(b.maximum(x=x, y=np.ones((1, 4, 1, 1), np.float16)).op) is None
    assert table_call(b.elu(x=x, alpha=0.5).op) is None
    assert table_call(b.op("log", x=x).op) is None


def chain(seed):
    """A random chain of numbers per channel, and a ReLU."""
    rng = np.random.default_rng(seed)
    b = GraphBuilder()
    x = value = b.input("x", (int(rng.integers(1, 3)), int(rng.integers(1, 40)), 6, 7), "fp16")
    for kind in rng.choice(["mul", "add", "sub", "real_div"], int(rng.integers(2, 6))):
        numbers = np.exp(rng.normal(size=(1, x.shape[1], 1, 1)) / 4).astype(np.float16)
        if rng.integers(4) == 0:
            numbers = numbers.reshape(-1)[:1]
        first = kind != "real_div" and bool(rng.integers(2))
        value = b.op(str(kind), x=numbers, y=value) if first else b.op(str(kind), x=value, y=numbers)
    b.output(b.relu(x=value) if seed % 2 else value)
    return b.graph, {"x": rng.normal(size=x.shape).astype(np.float16)}


@pytest.mark.parametrize("seed", range(20))
def test_chains_of_numbers_per_channel(seed):
    graph, inputs = chain(seed)
    found, reference, count = results(graph, inputs)
    plain, _, before = results(graph, inputs, without=NAMES)
    assert count <= before
    assert np.abs(found - reference).max() <= np.abs(plain - reference).max() + 2**-9 * np.abs(reference).max()


def test_a_norm_behind_a_concatenation_is_one_task():
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", (1, 16, 6, 6), "fp16")
    y = b.concat(values=(b.relu(x=x), b.abs(x=x)), axis=1)
    vectors = {name: rng.normal(size=32).astype(np.float16) for name in ("mean", "gamma", "beta")}
    y = b.batch_norm(x=y, variance=np.abs(rng.normal(size=32)).astype(np.float16) + np.float16(1), **vectors)
    b.output(b.relu(x=y))
    inputs = {"x": rng.normal(size=(1, 16, 6, 6)).astype(np.float16)}
    assert results(b.graph, inputs)[2] == 3


def batch_norms(scale, shift):
    """Two norms of channels, one behind the other, with a relu, as exporters of densenet leave them."""
    b = GraphBuilder()
    y = b.input("x", (1, scale.size, 9, 13), "fp16")
    for factor in (scale, scale[::-1]):
        y = b.add(x=b.mul(x=y, y=factor.reshape(1, -1, 1, 1)), y=shift.reshape(1, -1, 1, 1))
    b.output(b.relu(x=y))
    return b.graph


@pytest.mark.parametrize("chip", ["M1", "M2", "M4", "A19"])
def test_apples_batch_norm_is_one_planar_task(chip):
    """Exact to the roundings of the numbers: no further from float64 than the product and the sum apart."""
    rng = np.random.default_rng(5)
    scale, shift = (rng.normal(size=24).astype(np.float16) for _ in range(2))
    graph, x = batch_norms(scale, shift), rng.normal(size=(1, 24, 9, 13)).astype(np.float16)
    merged, apart = (hexane.compile(graph, chip, dialect="apple", without=off) for off in ((), ("batch-norms",)))
    assert tasks(apart) - tasks(merged) == (4 if chip in ("M1", "M2") else 2)  # there a task loads each pair of rows
    wide = [array.astype(np.float64).reshape(1, -1, 1, 1) for array in (scale, scale[::-1], shift)]
    truth = np.maximum((x * wide[0] + wide[2]) * wide[1] + wide[2], 0)
    errors = [np.square(next(iter(agreed(program, {"x": x}).values())) - truth).mean() for program in (merged, apart)]
    assert errors[0] < 1.5 * errors[1] and errors[0] ** 0.5 < 2e-3


@pytest.mark.parametrize("scale", [0.0, 2.0**-20])
def test_a_batch_norm_without_a_finite_quotient_stays(scale):
    """The sum of the first and the product of the second are one task without a quotient: nothing changes in a bit."""
    factors = np.full(8, 1.5, np.float16)
    factors[3] = scale
    graph, x = batch_norms(factors, np.linspace(-1, 1, 8).astype(np.float16)), np.ones((1, 8, 9, 13), np.float16)
    merged, apart = (hexane.compile(graph, dialect="apple", without=off) for off in ((), ("batch-norms",)))
    assert tasks(apart) - tasks(merged) == 2
    (one,), (other,) = (agreed(program, {"x": x}).values() for program in (merged, apart))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("chip", ["M1", "M2", "M4", "A19"])
@pytest.mark.parametrize("name", ["gelu", "tanh", "exp"])
def test_apples_pixel_and_its_table(name, chip):
    """Two tasks: the table as a row, the pixel kept for the sum or product that reads both."""
    for second, channels in (("add", 256), ("mul", 24)):
        programs = []
        for length in (1, 2):
            b = GraphBuilder()
            x = b.input("x", (1, channels, 1, 1), "fp16")
            table = b.op(name, x=x)
            b.output(table if length == 1 else b.op(second, x=x, y=table))
            programs.append(hexane.compile(b.graph, chip, dialect="apple"))
        inputs = {"x": np.random.default_rng(channels).normal(size=x.shape).astype(np.float16)}
        (table,), (found,) = (agreed(program, inputs).values() for program in programs)
        assert tasks(programs[1]) == 2
        assert programs[1].stats()["evidence"].get("INFERRED", 0) == (0 if chip == "M2" else 2)
        wide = inputs["x"].astype(np.float32), table.astype(np.float32)
        np.testing.assert_allclose(found, np.add(*wide) if second == "add" else np.multiply(*wide), rtol=2**-10)


@pytest.mark.parametrize("slope", [0.0, -0.5])
def test_a_hard_sigmoid_that_does_not_rise_is_no_table(slope):
    b = GraphBuilder()
    x = b.input("x", (1, 8, 4, 4), "fp16")
    y = b.conv(x=x, weight=np.ones((8, 8, 1, 1), np.float16))
    b.output(b.sigmoid_hard(x=y, alpha=slope, beta=0.25, name="y"))
    program = hexane.compile(b.graph, "M1")
    _, host = program.segments
    assert host.kind == "host" and f"slope {slope}" in host.reason
    data = np.linspace(-3, 3, 128).reshape(1, 8, 4, 4).astype(np.float16)
    wanted = np.clip(slope * data.sum(1, keepdims=True) + 0.25, 0, 1) * np.ones((1, 8, 1, 1))
    np.testing.assert_allclose(program.run({"x": data})["y"], wanted, atol=2e-3)
