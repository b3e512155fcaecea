"""Maps of few channels and reductions in the forms of Apple's compiler: stacked work units, rows as channels, rings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hexane
from hexane.graph import Graph, GraphBuilder, Value

from .levels import agreed

Layer = Callable[[GraphBuilder, Value], Value]


def reduced(name: str, axis: int) -> Layer:
    return lambda b, x: b.op(name, x=x, axes=[axis], keep_dims=True)


CASES: dict[str, tuple[tuple[int, ...], Layer]] = {
    "table of one channel": ((1, 1, 70, 512), lambda b, x: b.sigmoid(x=x)),
    "relu of one channel": ((1, 1, 33, 128), lambda b, x: b.relu(x=x)),
    "table of three channels": ((1, 3, 50, 120), lambda b, x: b.tanh(x=x)),
    "table of twelve channels": ((1, 12, 20, 40), lambda b, x: b.sigmoid(x=x)),
    "a table that stays": ((1, 1, 64, 128), lambda b, x: b.mul(x=b.exp(x=x), y=x)),
    "a table of a map that stays": ((1, 3, 40, 60), lambda b, x: b.sigmoid(x=b.mul(x=x, y=x))),
    "quotient": ((1, 3, 40, 60), lambda b, x: b.real_div(x=x, y=b.exp(x=x))),
    "maximum over channels": ((1, 40, 32, 30), reduced("reduce_max", 1)),
    "sum over channels": ((1, 48, 20, 24), reduced("reduce_sum", 1)),
    "mean of rows": ((1, 1, 90, 200), reduced("reduce_mean", 3)),
    "long row": ((1, 3, 1, 512), reduced("reduce_sum", 3)),
    "sum of columns": ((1, 40, 16, 24), reduced("reduce_sum", 2)),
    "maximum of columns": ((1, 32, 160, 8), reduced("reduce_max", 2)),
    "softmax of long rows": ((1, 8, 64, 128), lambda b, x: b.softmax(x=x, axis=3)),
    "softmax of round rows": ((1, 12, 32, 64), lambda b, x: b.softmax(x=x, axis=3)),
    "a column for all": ((1, 1, 100, 128), lambda b, x: b.mul(x=x, y=b.reduce_sum(x=x, axes=[3], keep_dims=True))),
}  # fmt: skip


def network(name: str) -> Graph:
    shape, layer = CASES[name]
    b = GraphBuilder()
    b.output(layer(b, b.input("x", shape, "fp16")))
    return b.graph


@pytest.mark.parametrize("chip", ["M1", "M2", "M4", "M5", "A19"])
@pytest.mark.parametrize("name", CASES)
def test_bits(name: str, chip: str) -> None:
    graph = network(name)
    inputs = {"x": np.random.default_rng(4).uniform(-1, 1, graph.main.inputs[0].shape).astype(np.float16)}
    (wanted,) = graph.evaluate(inputs).values()
    for dialect in ("default", "apple"):
        program = hexane.compile(graph, chip, dialect=dialect)
        assert [segment.kind for segment in program.segments] == ["engine"]
        (found,) = agreed(program, inputs).values()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=0.004 * np.abs(wanted).max())


def test_idle_cores_take_rows() -> None:
    """One channel on M4: a core with eight work units of twice the pixels, not the whole map at once."""
    (plan,) = hexane.compile(network("table of one channel"), "M4").segments[0].plans
    assert (plan.cores_log2, plan.stack_log2, plan.fat_tile, plan.tile) == (0, 3, True, 8)
