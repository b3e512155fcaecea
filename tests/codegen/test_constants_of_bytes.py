"""Constants of bytes beside tensors of bytes: the same element in both (docs/reference/engine-h13.md 9.11)."""

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

SHAPE = (1, 4, 4, 32)


@pytest.mark.filterwarnings("error")  # DefectWarning: the check refuses FmtMode of the second task
@pytest.mark.parametrize("chip", ["M1", "M4", "M5"])
@pytest.mark.parametrize("kind", ["concat", "update", "updated"])
def test_a_constant_of_bytes(kind, chip):
    b = GraphBuilder(opset="ios18")
    x, ones = b.input("x", SHAPE if kind != "updated" else (1, 4, 1, 32), "bool"), b.const(np.ones(SHAPE, bool), "bool")
    row = b.const(np.ones((1, 4, 1, 32), bool), "bool")
    place = {"begin": [0, 0, 1, 0], "end": [1, 4, 2, 32]}
    if kind == "concat":
        y = b.concat(values=(x, ones), axis=1)
    else:
        y = b.slice_update(x=x, update=row, **place) if kind == "update" else b.slice_update(x=ones, update=x, **place)
    b.output(y, name="y")
    program = hexane.compile(b.graph, chip)
    assert [segment.kind for segment in program.segments] == ["engine"]
    values = {"x": np.random.default_rng(0).integers(0, 2, x.shape).astype(bool)}
    np.testing.assert_array_equal(program.run(values)["y"], b.graph.evaluate(values)["y"])
