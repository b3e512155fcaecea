"""The graph level gives the bits of the compiled tasks on the emulator, op by op and for decoded programs' networks."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from codegen.programs import graph_of, load
from facts import fact_params
from hexane import numerics
from hexane.arithmetic import planar
from hexane.graph import GraphBuilder
from hexane.lowering.transformations import KEY, active
from hexane.program import ENGINE


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def check(graph, rng, scale=1.0, dialect="default"):
    program = hexane.compile(graph, dialect=dialect)
    assert all(segment.kind == ENGINE for segment in program.segments)
    inputs = {
        name: (rng.standard_normal(t.shape) * scale).astype(np.float16)
        if t.dtype == "fp16"
        else rng.integers(0, 2, t.shape).astype(t.carrier)
        for name, t in graph.inputs.items()
    }
    by_tasks = program.run(inputs)
    graph.metadata[KEY] = sorted(active(dialect).names)
    alone = numerics.evaluate(graph, inputs)
    for by_rules in (alone, program.run(inputs, level="graph")):
        for name, array in by_tasks.items():
            assert same_bits(array, by_rules[name]), name


UNARY = ["relu", "abs", "square", "sigmoid", "tanh", "silu", "exp", "exp2", "sqrt"]


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("shape", [(1, 64, 1, 1), (1, 3, 9, 17), (2, 8, 4, 4)])
def test_one_operand(op, shape):
    b = GraphBuilder()
    b.output(b.op(op, x=b.input("x", shape, "fp16")))
    check(b.graph, np.random.default_rng(1), 4.0)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "maximum", "minimum", "real_div"])
@pytest.mark.parametrize("other", [(1, 16, 4, 8), (1, 16, 1, 1), (1, 1, 4, 8)])
def test_two_operands(op, other):
    b = GraphBuilder()
    x, y = b.input("x", (1, 16, 4, 8), "fp16"), b.input("y", other, "fp16")
    b.output(b.op(op, x=x, y=y))
    check(b.graph, np.random.default_rng(2), 30.0)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "maximum", "minimum", "real_div", "pow"])
@pytest.mark.parametrize("number", [2.0, 0.3, -1.5])
def test_a_number(op, number):
    b = GraphBuilder()
    b.output(b.op(op, x=b.input("x", (1, 16, 4, 8), "fp16"), y=np.float16(number)))
    check(b.graph, np.random.default_rng(3), 30.0)


@pytest.mark.parametrize("op", ["add", "sub", "mul"])
@pytest.mark.parametrize("first", [False, True])
def test_a_constant_per_channel(op, first):
    rng = np.random.default_rng(4)
    b = GraphBuilder()
    x, c = b.input("x", (1, 16, 4, 8), "fp16"), b.const(rng.standard_normal((1, 16, 1, 1)).astype(np.float16))
    b.output(b.op(op, x=c if first else x, y=x if first else c))
    check(b.graph, rng, 30.0)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("tail", [(), ("relu",), ("sigmoid",), ("mul", "tanh"), ("add", "relu"), ("add", "mul")])
def test_convolution_with_what_rides_along(kernel, stride, tail):
    rng = np.random.default_rng(5)
    b = GraphBuilder()
    x = b.input("x", (1, 16, 12, 10), "fp16")
    weight = rng.standard_normal((32, 16, kernel, kernel)).astype(np.float16)
    y = b.conv(x=x, weight=weight, strides=(stride, stride), pad_type="same")
    for op in tail:
        if op == "add":
            y = b.add(x=y, y=rng.standard_normal((1, 32, 1, 1)).astype(np.float16))
        elif op == "mul":
            y = b.mul(x=y, y=np.float16(0.125))
        else:
            y = b.op(op, x=y)
    b.output(y)
    check(b.graph, rng)


def test_a_factor_of_zero_is_a_factor():
    rng = np.random.default_rng(20)
    b = GraphBuilder()
    y = b.conv(x=b.input("x", (1, 16, 6, 6), "fp16"), weight=rng.standard_normal((16, 16, 1, 1)).astype(np.float16))
    b.output(b.mul(x=y, y=np.float16(0.0)))
    check(b.graph, rng)
    inputs = {"x": rng.standard_normal((1, 16, 6, 6)).astype(np.float16)}
    (result,) = hexane.compile(b.graph).run(inputs).values()
    assert not result.any()


@pytest.mark.parametrize(("groups", "cin"), [(32, 32), (4, 32)])
def test_grouped_convolution(groups, cin):
    rng = np.random.default_rng(6)
    b = GraphBuilder()
    weight = rng.standard_normal((32, cin // groups, 3, 3)).astype(np.float16)
    b.output(b.conv(x=b.input("x", (1, cin, 9, 9), "fp16"), weight=weight, groups=groups, pad_type="same"))
    check(b.graph, rng)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 64, 32), (16, 64, 48), (40, 128, 64), (64, 256, 512)])
def test_products(m, k, n):
    rng = np.random.default_rng(7)
    b = GraphBuilder()
    x = b.input("x", (m, k), "fp16")
    b.output(b.relu(x=b.linear(x=x, weight=rng.standard_normal((n, k)).astype(np.float16))))
    check(b.graph, rng)
    b = GraphBuilder()
    b.output(b.matmul(x=b.input("x", (m, k), "fp16"), y=b.input("y", (k, n), "fp16")))
    check(b.graph, rng)


@pytest.mark.parametrize("op", ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_l2_norm"])
@pytest.mark.parametrize("axes", [(1,), (2,), (3,), (2, 3), (1, 2, 3), (1, 3)])
def test_reductions(op, axes):
    b = GraphBuilder()
    b.output(b.op(op, x=b.input("x", (1, 24, 6, 10), "fp16"), axes=axes, keep_dims=True))
    check(b.graph, np.random.default_rng(8))


@pytest.mark.parametrize("op", ["less", "greater", "equal", "not_equal", "greater_equal", "less_equal"])
def test_comparisons(op):
    b = GraphBuilder()
    x, y = b.input("x", (1, 16, 4, 8), "fp16"), b.input("y", (1, 16, 4, 8), "fp16")
    b.output(b.op(op, x=x, y=y))
    values = np.round(np.random.default_rng(21).standard_normal((2, 1, 16, 4, 8)) * 2).astype(np.float16)
    inputs = {"x": values[0], "y": values[1]}
    made = hexane.compile(b.graph).run(inputs)
    for other in (numerics.evaluate(b.graph, inputs), b.graph.evaluate(inputs)):
        assert all(same_bits(array, other[name]) for name, array in made.items())


@pytest.mark.parametrize("op", ["floor", "ceil"])
@pytest.mark.parametrize("shape", [(1, 64, 1, 1), (1, 3, 9, 17)])
def test_rounding(op, shape):
    b = GraphBuilder()
    b.output(b.op(op, x=b.input("x", shape, "fp16")))
    check(b.graph, np.random.default_rng(22), 20.0)


@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 2), (3, 1)])
def test_maximum_pools(kernel, stride):
    b = GraphBuilder()
    x = b.input("x", (1, 16, 12, 14), "fp16")
    b.output(b.max_pool(x=x, kernel_sizes=(kernel, kernel), strides=(stride, stride), pad_type="same"))
    check(b.graph, np.random.default_rng(23))


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate"])
def test_pads(mode):
    b = GraphBuilder()
    x = b.input("x", (1, 8, 6, 10), "fp16")
    b.output(b.pad(x=x, pad=(1, 2, 2, 1), mode=mode, constant_val=np.float16(0.5)))
    check(b.graph, np.random.default_rng(24))


@pytest.mark.parametrize("channels", [2, 3, 8, 16, 32])
def test_a_column_of_padding_before_a_depthwise_pixel(channels):
    """Small numbers: the product that shifts the map drops their lowest bits (2 to 16 channels, powers of two)."""
    rng = np.random.default_rng(26)
    b = GraphBuilder()
    x, weight = b.input("x", (1, channels, 7, 17), "fp16"), rng.standard_normal((channels, 1, 1, 1)).astype(np.float16)
    b.output(b.conv(x=x, weight=weight, groups=channels, pad_type="custom", pad=(0, 0, 1, 0)))
    check(b.graph, rng, 0.001)


@pytest.mark.parametrize("extent", [80, 112])
def test_large_planes_are_reduced_in_one_step_or_by_rows(extent):
    b = GraphBuilder()
    b.output(b.reduce_mean(x=b.input("x", (1, 96, extent, extent), "fp16"), axes=(2, 3), keep_dims=True))
    check(b.graph, np.random.default_rng(25))


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_softmax(axis):
    b = GraphBuilder()
    b.output(b.softmax(x=b.input("x", (1, 16, 8, 24), "fp16"), axis=axis))
    check(b.graph, np.random.default_rng(9), 3.0)


@pytest.mark.parametrize("axes", [(3,), (2, 3), (1, 2, 3), (1,)])
def test_layer_norm(axes):
    rng = np.random.default_rng(10)
    b = GraphBuilder()
    x = b.input("x", (1, 16, 8, 24), "fp16")
    b.output(b.layer_norm(x=x, axes=axes, epsilon=1e-5))
    check(b.graph, rng)


@pytest.mark.parametrize("path", fact_params("apple/h13/*.json")[::12])
def test_networks_of_decoded_programs(path):
    check(graph_of(load(path)), np.random.default_rng(11))


@pytest.mark.slow
@pytest.mark.parametrize("path", fact_params("apple/h13/*.json"))
def test_networks_of_all_decoded_programs(path):
    dialect = "apple" if "binary_pow" in path.stem else "default"  # by default the host takes that power
    check(graph_of(load(path)), np.random.default_rng(12), dialect=dialect)


def test_a_large_map_of_bytes_is_looked_up(monkeypatch) -> None:
    """A planar task of one source is a function of 65,536 values: a map of more is not computed one by one."""
    b = GraphBuilder()
    scale, zero = np.float32(0.05), np.uint8(120)
    x = b.input("x", (1, 16, 128, 128), "fp32")
    packed = b.quantize(input=x, scale=scale, zero_point=zero, output_dtype="uint8")
    b.output(b.dequantize(input=packed, scale=scale, zero_point=zero))
    program = hexane.compile(b.graph)
    values = {"x": np.random.default_rng(5).standard_normal((1, 16, 128, 128)).astype(np.float32)}
    elements, exact = [], planar.round_half_away
    with monkeypatch.context() as patched:
        patched.setattr(planar, "round_half_away", lambda v: (elements.append(np.size(v)), exact(v))[1])
        ((_, by_rules),) = program.run(values, level="graph").items()
    ((_, by_tasks),) = program.run(values).items()
    assert same_bits(by_tasks, by_rules)
    assert 0 < max(elements) <= 1 << 16
