"""The one check of every pass: the float32 reference gives the same before and after."""

from __future__ import annotations

import numpy as np

from hexane import chips, passes
from hexane.lowering.compilation import Compilation

M1 = Compilation(chips.get("M1"))

RELATIVE = 2e-4
"""Of the largest magnitude of an output: folded weights round once more, sums run in another order."""


def inputs_of(graph, seed=0):
    rng = np.random.default_rng(seed)
    values = {}
    for value in graph.main.inputs:
        data = rng.standard_normal(value.shape)
        values[value.name] = data.astype({"fp16": np.float16}.get(value.dtype, np.float32))
    return values


def same(graph, names=None, seed=0, tolerance=RELATIVE):
    """Run the passes (all but the change of precision unless named) and compare; returns the new graph."""
    if names is None:
        names = [name for name in passes.available() if name != "half_precision"]
    before_text = [op.type for op in graph.main.ops]
    after = passes.run(graph, M1, names)
    after.verify()
    assert [op.type for op in graph.main.ops] == before_text, "the graph itself must stay as it is"
    given = inputs_of(graph, seed)
    expected, found = graph.evaluate(given), after.evaluate(given)
    assert list(expected) == list(found)
    for name, wanted in expected.items():
        got = found[name]
        assert got.shape == wanted.shape and got.dtype == wanted.dtype, name
        scale = max(1.0, float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)))
        np.testing.assert_allclose(got, wanted, atol=tolerance * scale, rtol=tolerance, err_msg=name)
    return after


def types_of(graph):
    return [op.type for op in graph.main.ops]
