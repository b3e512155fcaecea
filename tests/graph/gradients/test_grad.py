"""hexane.grad as a whole: what goes in and comes out, sharing, zeros, recomputation, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from graph.gradients.differences import check
from hexane.graph import GraphBuilder

RNG = np.random.default_rng(5)


def network(dtype="fp64"):
    b = GraphBuilder()
    x = b.input("x", (2, 3), dtype)
    w = b.const(RNG.normal(size=(4, 3)), dtype, name="w")
    h = b.tanh(x=b.linear(x=x, weight=w), name="h")
    b.output(b.mul(x=h, y=h), name="y")
    return b.graph


def test_inputs_and_outputs():
    graph = network("fp16")
    gradients = hexane.grad(graph, of="y", wrt=["x", "w"]).verify()
    assert list(gradients.inputs) == ["x", "d_y"]
    assert list(gradients.outputs) == ["y", "d_x", "d_w"]
    assert {str(type_) for type_ in gradients.outputs.values()} == {
        "tensor<fp16, [2, 4]>", "tensor<fp16, [2, 3]>", "tensor<fp16, [4, 3]>"
    }  # fmt: skip
    assert all(v.dtype != "fp32" for op in gradients.ops for v in op.operands()), "fp16 graphs stay fp16"
    assert [op.type for op in gradients.ops][: len(graph.ops)] == [op.type for op in graph.ops]
    assert list(graph.inputs) == ["x"] and list(graph.outputs) == ["y"], "the graph itself stays"


def test_a_constant_gets_a_gradient():
    b = GraphBuilder()
    x, w = b.input("x", (2, 3), "fp64"), b.input("w", (4, 3), "fp64")
    b.output(b.tanh(x=b.linear(x=x, weight=w)), name="y")
    inputs = {"x": RNG.normal(size=(2, 3)), "w": RNG.normal(size=(4, 3))}
    truth = check(b.graph, inputs, "y", ["x", "w"])
    c = GraphBuilder()
    x = c.input("x", (2, 3), "fp64")
    c.output(c.tanh(x=c.linear(x=x, weight=c.const(inputs["w"], name="w"))), name="y")
    seed = RNG.normal(size=(2, 4))
    mine = hexane.grad(c.graph, of="y", wrt=["w"]).evaluate({"x": inputs["x"], "d_y": seed})
    assert np.allclose(mine["d_w"], truth.evaluate({**inputs, "d_y": seed})["d_w"], rtol=1e-14)


def test_an_input_that_is_used_more_than_once():
    b = GraphBuilder()
    x = b.input("x", (3,), "fp64")
    h = b.add(x=b.mul(x=x, y=x), y=b.mul(x=b.sin(x=x), y=x))
    b.output(b.add(x=h, y=x), name="y")
    check(b.graph, {"x": RNG.normal(size=3)}, "y", ["x"])


def test_what_does_not_depend_gets_zeros():
    b = GraphBuilder()
    x, z = b.input("x", (3,), "fp16"), b.input("z", (2, 2), "fp16")
    b.output(b.exp(x=x), name="y")
    b.output(b.exp(x=z), name="other")
    results = (
        hexane.grad(b.graph, of="y", wrt=["z", "x"])
        .verify()
        .evaluate({"x": np.ones(3), "z": np.ones((2, 2)), "d_y": np.ones(3)})
    )
    assert list(results) == ["y", "other", "d_z", "d_x"]
    assert results["d_z"].dtype == np.float16 and not results["d_z"].any()


def test_of_may_be_inside_and_wrt_an_activation():
    graph = network()
    gradients = hexane.grad(graph, of="h", wrt=["x"])
    assert list(gradients.inputs) == ["x", "d_h"]
    inside = hexane.grad(graph, of="y", wrt=["h"]).evaluate({"x": np.ones((2, 3)), "d_y": np.ones((2, 4))})
    h = graph.cut(["h"]).evaluate({"x": np.ones((2, 3))})["h"]
    assert np.allclose(inside["d_h"], 2 * h)


def test_the_same_gradient_for_two_inputs():
    b = GraphBuilder()
    x, z = b.input("x", (3,), "fp64"), b.input("z", (3,), "fp64")
    b.output(b.add(x=x, y=z), name="y")
    check(b.graph, {"x": np.ones(3), "z": np.ones(3)}, "y", ["x", "z"])


def test_names_that_are_taken():
    b = GraphBuilder()
    x = b.input("x", (3,), "fp64")
    b.output(b.exp(x=b.sin(x=x, name="d_x")), name="y")
    assert list(hexane.grad(b.graph, of="y", wrt=["x"]).verify().outputs) == ["y", "d_x"]


def test_the_result_itself():
    gradients = hexane.grad(network(), of="y", wrt=["y", "x"]).verify()
    assert list(gradients.inputs) == ["x", "d_y"] and list(gradients.outputs) == ["y", "d_y_1", "d_x"]
    results = gradients.evaluate({"x": np.ones((2, 3)), "d_y": np.full((2, 4), 3.0)})
    assert np.all(results["d_y_1"] == 3)


def test_a_gradient_of_a_gradient():
    b = GraphBuilder()
    x = b.input("x", (4,), "fp64")
    b.output(b.sin(x=b.square(x=x)), name="y")
    first = hexane.grad(b.graph, of="y", wrt=["x"])
    second = hexane.grad(first, of="d_x", wrt=["x"]).verify()
    name = list(second.outputs)[-1]
    x = RNG.normal(size=4)
    found = second.evaluate({"x": x, "d_y": np.ones(4), "d_d_x": np.ones(4)})[name]
    assert np.allclose(found, 2 * np.cos(x**2) - 4 * x**2 * np.sin(x**2))


def test_activations_are_computed_again():
    graph = network()
    x, seed = RNG.normal(size=(2, 3)), RNG.normal(size=(2, 4))
    plain = hexane.grad(graph, of="y", wrt=["x", "w"])
    again = hexane.grad(graph, of="y", wrt=["x", "w"], checkpoint=["h"]).verify()
    assert len(again.ops) == len(plain.ops) + 1
    forward = set(again.ops[: len(graph.ops)])
    kept = {v for op in again.ops[len(graph.ops) :] for v in op.operands() if v.op in forward}
    assert "h" not in {value.name for value in kept}
    for name, value in plain.evaluate({"x": x, "d_y": seed}).items():
        assert np.array_equal(value, again.evaluate({"x": x, "d_y": seed})[name])


def test_a_long_chain_is_computed_again():
    b = GraphBuilder()
    x = b.input("x", (2,), "fp64")
    h = x
    for i in range(1500):
        h = b.sin(x=h, name=f"h{i}")
    b.output(h, name="y")
    gradients = hexane.grad(b.graph, of="y", wrt=["x"], checkpoint=[f"h{i}" for i in range(1400)])
    assert gradients.verify().evaluate({"x": np.ones(2), "d_y": np.ones(2)})["d_x"].shape == (2,)


def _argmax():
    b = GraphBuilder()
    x = b.input("x", (3,), "fp16")
    b.output(b.cast(x=b.reduce_argmax(x=x, name="best"), dtype="fp16"), name="y")
    return b.graph


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"of": "y", "wrt": ["x"]}, ["best", "reduce_argmax", "index"]),
        ({"of": "best", "wrt": ["x"]}, ["best", "reduce_argmax", "int32"]),
        ({"of": "z", "wrt": ["x"]}, ["'z'"]),
        ({"of": "y", "wrt": ["xx"]}, ["'xx'", "did you mean x"]),
        ({"of": "y", "wrt": ["x"], "checkpoint": ["x"]}, ["'x'", "activations"]),
    ],
)
def test_refusals(arguments, words):
    with pytest.raises(hexane.HexaneError) as caught:
        hexane.grad(_argmax(), **arguments)
    for word in words:
        assert word in str(caught.value)


def test_a_mask_from_the_input_is_no_obstacle():
    b = GraphBuilder()
    x = b.input("x", (5,), "fp64")
    positive = b.greater(x=x, y=0.0)
    b.output(b.select(cond=positive, a=b.exp(x=x), b=b.square(x=x)), name="y")
    check(b.graph, {"x": RNG.normal(size=5)}, "y", ["x"])


def test_no_way_is_left_out():
    b = GraphBuilder()
    x = b.input("x", (2, 3), "fp64")
    y = b.op("onnx.CumProd", x=x, axis=0, name="products")
    b.output(b.add(x=y, y=x), name="y")
    with pytest.raises(hexane.HexaneError, match=r"CumProd.*products.*ONNX"):
        hexane.grad(b.graph, of="y", wrt=["x"])


def test_control_flow_is_refused():
    b = GraphBuilder()
    x, flag = b.input("x", (2,), "fp64"), b.input("flag", (), "bool")
    with b.subblock() as true:
        true.set_outputs([b.sin(x=x)])
    with b.subblock() as false:
        false.set_outputs([b.cos(x=x)])
    b.output(b.add(x=b.op("cond", pred=flag, blocks=(true, false), name="branch"), y=x), name="y")
    with pytest.raises(hexane.HexaneError, match=r"cond.*branch.*which block runs"):
        hexane.grad(b.graph, of="y", wrt=["x"])


def test_states_are_refused_where_they_carry_a_value():
    b = GraphBuilder()
    x, state = b.input("x", (2,), "fp16"), b.state("memory", (2,), "fp16")
    before = b.read_state(input=state)
    b.write_state(data=b.sin(x=x), input=state)
    b.output(b.mul(x=before, y=x), name="y")
    b.output(b.read_state(input=state, name="after"), name="z")
    ones = np.ones(2, np.float16)
    results = hexane.grad(b.graph, of="y", wrt=["x"]).verify().evaluate({"x": ones, "memory": 3 * ones, "d_y": ones})
    assert results["d_x"].tolist() == [3, 3]
    with pytest.raises(hexane.HexaneError, match=r"read_state.*after|read_state.*z"):
        hexane.grad(b.graph, of="z", wrt=["x"])


@pytest.mark.parametrize(
    ("height", "width", "ops"),
    [
        (2, 3, []),
        (6, 3, ["reduce_sum"]),
        (6, 9, ["reduce_sum"] * 2),
        (5, 9, ["matmul", "reduce_sum"]),
        (1, 3, ["matmul"]),
    ],
)
def test_gradients_of_copies_are_sums_and_only_others_are_products(height, width, ops):
    """Of 2 x 3 elements, each as often as the others along an axis, or not; an axis that stays takes nothing."""
    b = GraphBuilder()
    x = b.input("x", (1, 2, 2, 3), "fp64")
    b.output(b.resize_nearest_neighbor(x=x, target_size_height=height, target_size_width=width), name="y")
    gradients = check(b.graph, {"x": RNG.normal(size=x.shape)}, "y", ["x"])
    assert [op.type for op in gradients.ops if op.type in ("reduce_sum", "matmul")] == ops
