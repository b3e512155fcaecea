"""The graph's structure: building, checking, rewriting, copying, cutting."""

from __future__ import annotations

import numpy as np
import pytest

from hexane.errors import GraphError, UnsupportedError, UsageError
from hexane.graph import (
    GraphBuilder,
    Op,
    TensorType,
    Value,
    builder_before,
    fold_constants,
    remove_dead,
    replace_op,
    replace_uses,
)


def small():
    b = GraphBuilder()
    x = b.input("x", (1, 3, 8, 8), "fp16")
    y = b.conv(x=x, weight=np.ones((4, 3, 3, 3), np.float16), pad_type="same", name="conv")
    y = b.relu(x=y, name="relu")
    b.output(b.add(x=y, y=1.5, name="out"))
    return b.graph


def test_ops_that_are_written_again_are_those_that_a_builder_writes():
    """The same ops of the same constants, types and names; another type or form is written anew."""

    def network(apart):
        b = GraphBuilder()
        x, narrow = b.input("x", (1, 4, 2, 3), "fp16"), b.input("narrow", (1, 4, 2, 1), "fp16")
        weight = np.arange(16, dtype=np.float16).reshape(4, 4, 1, 1)

        def written(factor):
            return lambda x: b.mul(x=b.sub(x=x, y=b.conv(x=x, weight=weight)), y=factor)

        for i, factor in enumerate((0.5, 0.5, 2.0)):
            for value in (x, narrow):
                y = written(factor)(value) if apart else b.again(factor, value, written(factor))
                b.output(y, name=f"out_{i}_{value.name}")
        return b.graph.verify()

    copied, plain = network(False), network(True)
    assert copied.to_mil() == plain.to_mil()


def test_builder_infers_and_wraps_constants():
    graph = small().verify()
    assert graph.inputs == {"x": TensorType("fp16", (1, 3, 8, 8))}
    assert graph.outputs == {"out": TensorType("fp16", (1, 4, 8, 8))}
    conv = graph.ops[0]
    assert conv.arg("pad_type") == "same" and conv.arg("groups") == 1 and conv.arg("bias") is None
    assert graph.ops[2].inputs["y"].dtype == "fp16"
    out = graph.evaluate({"x": np.ones((1, 3, 8, 8))})["out"]
    assert out.dtype == np.float16 and out[0, 0, 0, 0] == 13.5 and out[0, 0, 4, 4] == 28.5


def test_mistakes_name_the_op():
    b = GraphBuilder()
    x = b.input("x", (1, 3, 8, 8), "fp16")
    with pytest.raises(GraphError, match="first: 3 channels"):
        b.conv(x=x, weight=np.ones((4, 5, 3, 3), np.float16), name="first")
    with pytest.raises(GraphError, match="share a dtype"):
        b.add(x=x, y=np.ones(8, np.float32))
    with pytest.raises(GraphError, match="no parameter 'z'"):
        b.relu(x=x, z=1)
    with pytest.raises(GraphError, match="lacks"):
        b.conv(x=x)
    with pytest.raises(AttributeError):
        b.no_such_op(x=x)
    with pytest.raises(UnsupportedError, match="ios18"):
        GraphBuilder(opset="ios15").op("scaled_dot_product_attention", query=x, key=x, value=x)


def test_inputs_are_checked():
    graph = small()
    with pytest.raises(UsageError, match="missing"):
        graph.evaluate({})
    with pytest.raises(UsageError, match="no input 'y'"):
        graph.evaluate({"y": 1})
    with pytest.raises(UsageError, match="shape"):
        graph.evaluate({"x": np.ones((1, 3, 8, 9))})
    with pytest.raises(UsageError, match="dtype"):
        graph.evaluate({"x": np.full((1, 3, 8, 8), "a")})


def test_verify_finds_broken_structure():
    graph = small()
    relu = graph.ops[1]
    relu.outputs[0].type = TensorType("fp16", (1, 4, 8, 9))
    with pytest.raises(GraphError, match="declared"):
        graph.verify()
    graph = small()
    graph.ops[1].outputs[0].name = "x"
    with pytest.raises(GraphError, match="two values"):
        graph.verify()
    graph = small()
    graph.ops[0].set_input("x", graph.ops[1].output)
    with pytest.raises(GraphError, match="before it is computed"):
        graph.verify()


def test_replace_keeps_the_output_name():
    graph = small()
    add = graph.ops[2]
    with_mul = builder_before(add).mul(x=add.inputs["x"], y=2.0)
    replace_op(add, with_mul)
    graph.verify()
    assert list(graph.outputs) == ["out"] and [op.type for op in graph.ops] == ["conv", "relu", "mul"]
    relu = graph.ops[1]
    replace_uses(graph.ops[2].output, graph.main.inputs[0])
    assert [op.type for op in graph.ops] == ["conv", "relu", "mul", "identity"]
    assert remove_dead(graph.main) == 3
    assert [op.type for op in graph.ops] == ["identity"] and list(graph.outputs) == ["out"]
    assert relu.block is None


def test_users_follow_every_change():
    graph = small()
    conv, relu, add = graph.ops
    assert conv.output.users == [relu] and relu.output.users == [add]
    add.set_input("y", relu.output)
    assert relu.output.users == [add]
    add.set_input("x", conv.output)
    assert relu.output.users == [add] and conv.output.users == [relu, add]
    with pytest.raises(GraphError, match="still in use"):
        graph.main.remove(relu)


def test_folding_and_dead_code():
    b = GraphBuilder()
    x = b.input("x", (2,), "fp32")
    c = b.add(x=b.const(np.float32([1, 2])), y=3.0)
    c = b.mul(x=c, y=c)
    b.relu(x=x)
    b.output(b.add(x=x, y=c, name="out"))
    graph = b.graph
    assert fold_constants(graph.main) == 2
    assert remove_dead(graph.main) == 1
    assert len(graph.ops) == 1
    assert graph.verify().evaluate({"x": [1, 1]})["out"].tolist() == [17, 26]


def test_clone_and_cut():
    graph = small()
    copy = graph.clone()
    assert copy.verify().equals(graph)
    copy.ops[1].outputs[0].name = "other"
    assert not copy.equals(graph)
    cut = graph.cut(["conv"]).verify()
    assert list(cut.outputs) == ["conv"] and len(cut.ops) == 1 and len(graph.ops) == 3
    with pytest.raises(GraphError, match="did you mean relu"):
        graph.cut(["rellu"])


def test_long_chains_are_no_problem():
    b = GraphBuilder()
    y = b.input("x", (1,), "fp32")
    for _ in range(10_000):
        y = b.add(x=y, y=1.0)
    b.output(y)
    graph = b.graph.verify().clone()
    assert graph.evaluate({"x": [0]})[y.name].tolist() == [10_000]
    assert graph.equals(b.graph)


def test_huge_shapes_are_refused():
    with pytest.raises(GraphError, match="elements"):
        TensorType("fp16", (10**9,))
    with pytest.raises(GraphError, match="rank"):
        TensorType("fp16", (1,) * 40)
    with pytest.raises(GraphError, match="negative"):
        TensorType("fp16", (-1,))


def test_an_op_by_hand():
    x = Value("x", TensorType("fp32", (2,)))
    op = Op("relu", {"x": x})
    with pytest.raises(GraphError, match="no value"):
        op.set_input("x", 3)


def test_many_small_insertions_stay_fast():
    """Every builder that goes on in a function shares its names; inserting is no walk over the graph."""
    b = GraphBuilder()
    y = b.input("x", (1,), "fp32")
    for _ in range(3000):
        y = b.relu(x=y)
    b.output(y)
    for op in list(b.graph.ops):
        inserted = builder_before(op)
        op.set_input("x", inserted.abs(x=op.inputs["x"]))
    assert len(b.graph.verify().ops) == 6000


def test_constants_give_up_the_names_of_their_parameters():
    b = GraphBuilder()
    x = b.input("x", (2,), "fp32")
    total = b.add(x=x, y=1.0)
    shifted = b.add(x=total, y=2.0)
    b.input("axis", (1,), "fp32")
    b.output(b.mul(x=shifted, y=3.0, name="y"))
    graph = b.graph.verify()
    assert list(graph.outputs) == ["y"] and list(graph.inputs) == ["x", "axis"]
    assert sorted(value.name for value in graph.main.constants()) == ["y_1", "y_2", "y_3"]
    assert graph.evaluate({"x": [0, 1], "axis": [0]})["y"].tolist() == [9, 12]


def test_half_values_are_rounded_at_the_border_or_everywhere():
    b = GraphBuilder()
    x = b.input("x", (1,), "fp16")
    big = b.mul(x=x, y=60000.0)
    b.output(b.mul(x=big, y=0.25, name="y"), b.cast(x=big, dtype="fp16", name="z"))
    graph = b.graph.verify()
    assert graph.evaluate({"x": [4]})["y"][0] == 60000  # 240000 on the way is no fp16 value
    assert np.isinf(graph.evaluate({"x": [4]}, typed=True)["y"][0])
    assert np.isinf(graph.evaluate({"x": [4]})["z"][0])
    assert graph.evaluate({"x": [2049]}, typed=True)["y"].dtype == np.float16


def test_some_ops_in_the_order_of_their_block():
    graph = small()
    for _ in range(3):
        for op in list(graph.main.ops):
            builder_before(op).relu(x=graph.main.inputs[0])
    ops = list(graph.main.ops)
    rng = np.random.default_rng(0)
    for count in range(1, len(ops) + 1):
        wanted = [ops[i] for i in rng.choice(len(ops), count, replace=False)]
        assert graph.main.ops.sort(wanted) == tuple(sorted(wanted, key=ops.index))
