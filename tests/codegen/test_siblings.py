"""Products of the same rows share one turned copy."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

from .levels import agreed


def several(rows, k, widths, *, functions=(), second=False):
    """Linear layers of one input; ``functions`` follow the first ones; ``second``: one begins a feed-forward pair."""
    b = GraphBuilder()
    rng = np.random.default_rng(0)
    x = b.input("x", (1, rows, k), "fp16")

    def linear(x, n, name=None):
        weight = (0.1 * rng.normal(size=(n, x.shape[-1]))).astype(np.float16)
        named = {} if name is None else {"name": name}
        return b.linear(x=x, weight=weight, bias=rng.normal(size=n).astype(np.float16), **named)

    for i, n in enumerate(widths):
        y = linear(x, n)
        b.output(getattr(b, functions[i] if i < len(functions) else "relu")(x=y, name=f"y{i}"))
    if second:
        b.output(linear(b.relu(x=linear(x, 64)), 32, "pair"))
    return b.graph


CASES = {
    "three": dict(rows=128, k=96, widths=(64, 64, 32)),
    "functions": dict(rows=100, k=64, widths=(48, 80), functions=("silu", "sigmoid")),
    "with a pair of products beside them": dict(rows=96, k=64, widths=(32, 32), second=True),
    "more rows than fit at once": dict(rows=700, k=1024, widths=(32, 16)),
    "several tasks each": dict(rows=128, k=512, widths=(1376, 1376)),
}


@pytest.mark.parametrize("chip", ["M1", "M2"])
@pytest.mark.parametrize("name", CASES)
def test_bits_and_tasks(name, chip):
    graph, rows = several(**CASES[name]), ("priced-recipes",)  # which would take Apple's chain, one copy too
    program, off = (hexane.compile(graph, chip, without=(*rows, *more)) for more in ((), ("rows-turned-once",)))
    assert program.stats()["tasks"] < off.stats()["tasks"]
    inputs = {"x": np.random.default_rng(1).normal(size=graph.main.inputs[0].shape).astype(np.float16)}
    tasks, others, wanted = agreed(program, inputs), off.run(inputs), graph.evaluate(inputs)
    for output in tasks:
        np.testing.assert_array_equal(tasks[output], others[output])
        np.testing.assert_allclose(tasks[output], wanted[output], atol=0.05)


def test_folded_rows_keep_their_own_copies():
    graph = several(rows=64, k=1024, widths=(512, 512))
    counts = [hexane.compile(graph, without=off).stats()["tasks"] for off in ((), ("rows-turned-once",))]
    assert counts[0] == counts[1]
