"""Two graphs that differ in one thing: the first difference says which, whichever graph comes first."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hexane.graph import Graph, GraphBuilder
from hexane.graph.compare import difference
from hexane.graph.parts import Op, Value
from hexane.graph.types import TensorType


def network(**changes: Any) -> Graph:
    """A convolution, a branch, a join and a constant output; what a change names is made otherwise."""
    chosen = {
        "opset": "ios17", "input": "x", "shape": (1, 2, 4, 4), "weight": 1.0, "strides": [1, 1], "function": "relu",
        "inner": "sigmoid", "axis": 1, "join": (0, 1), "parts": 2, "stored": 3.0, "outputs": ("c", "b", "k"),
        "bias": False, "conv": "c", "dtype": np.float16, "length": 1,
    } | changes  # fmt: skip
    b = GraphBuilder(opset=chosen["opset"])
    x = b.input(chosen["input"], chosen["shape"], "fp16")
    weight = np.full((2, 2, 1, 1), chosen["weight"], np.float16)
    bias = {"bias": np.zeros(2, np.float16)} if chosen["bias"] else {}
    y = b.conv(x=x, weight=weight, strides=chosen["strides"], **bias, name=chosen["conv"])
    flag = b.input("flag", (), "bool")
    with b.subblock() as true:
        true.set_outputs([b.op(chosen["inner"], x=y)])
    with b.subblock() as false:
        false.set_outputs([b.relu(x=y)])
    branch = b.op("cond", pred=flag, blocks=(true, false), name="branch")
    ends = (y, branch)
    join = b.concat(
        values=[ends[i] for i in chosen["join"]] + [y] * (chosen["parts"] - 2), axis=chosen["axis"], name="j"
    )
    last = b.op(chosen["function"], x=join, name="last")
    stored = b.const(np.full(chosen["length"], chosen["stored"], chosen["dtype"]), name="k")
    values = {"c": y, "b": last, "k": stored}
    for name in chosen["outputs"]:
        b.output(values[name])
    return b.graph


def op(graph: Graph, name: str) -> Op:
    return next(item for item in graph.main.walk() if item.name == name)


def value(graph: Graph, name: str) -> Value:
    return next(result for item in graph.main.walk() for result in item.outputs if result.name == name)


def test_equal_graphs() -> None:
    assert difference(network(), network()) is None and network().equals(network().clone())


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"opset": "ios18"}, "in function 'main': op sets"),
    ({"input": "z"}, "'z'|z"),
    ({"shape": (1, 2, 4, 5)}, r"\[1, 2, 4, 5\]"),
    ({"weight": 1.5}, "weight of conv 'c': constants"),
    ({"strides": [1, 2]}, "strides of conv 'c': constants"),
    ({"bias": True}, "parameters of"),
    ({"function": "sigmoid"}, "sigmoid"),
    ({"inner": "tanh"}, "tanh"),
    ({"axis": -1}, "axis of concat 'j'|j"),
    ({"join": (1, 0)}, "values of concat 'j': .* are different values"),
    ({"parts": 3}, "values of"),
    ({"conv": "d"}, "names or attributes of"),
    ({"stored": 4.0}, "output: constants"),
    ({"dtype": np.float32}, "output: constants"),
    ({"length": 2}, "output: constants"),
    ({"outputs": ("c", "b")}, "outputs"),
    ({"outputs": ("b", "c", "k")}, "output: .* are different values"),
    ({"outputs": ("c", "k", "b")}, "output: "),
]


@pytest.mark.parametrize(("change", "says"), CHANGES, ids=[next(iter(change)) for change, _ in CHANGES])
def test_what_is_built_otherwise(change: dict[str, Any], says: str) -> None:
    one, other = network(), network(**change)
    for text in (difference(one, other), difference(other, one)):
        assert text is not None and re.search(says, text)
    assert not one.equals(other)


EDITS: list[tuple[Callable[[Graph], Any], str]] = [
    (lambda g: g.main.attributes.update(note="a"), "in function 'main': attributes differ"),
    (lambda g: op(g, "c").attributes.update(note="a"), "names or attributes of"),
    (lambda g: setattr(op(g, "last"), "name", None), "names or attributes of"),
    (lambda g: setattr(op(g, "last"), "opset", "ios18"), "relu"),
    (lambda g: setattr(value(g, "last"), "name", "other"), "other"),
    (lambda g: setattr(value(g, "last"), "type", TensorType("fp32", (1, 4, 4, 4))), "fp32"),
    (lambda g: setattr(op(g, "branch"), "blocks", op(g, "branch").blocks[:1]), "cond"),
]


@pytest.mark.parametrize(("edit", "says"), EDITS, ids=[str(number) for number in range(len(EDITS))])
def test_what_is_changed_afterwards(edit: Callable[[Graph], Any], says: str) -> None:
    one, other = network(), network()
    edit(other)
    for text in (difference(one, other), difference(other, one)):
        assert text is not None and says in text


def test_what_is_no_difference() -> None:
    """What a constant inside is called."""
    one, other = network(), network()
    weight = op(other, "c").arg("weight")
    weight.name = "another"
    assert difference(one, other) is None
