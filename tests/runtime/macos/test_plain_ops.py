"""Ops that Apple's compiler does not take, written as ops that it takes."""

from __future__ import annotations

import numpy as np
import pytest

from hexane import chips
from hexane.graph import GraphBuilder
from hexane.runtime.macos.plain_ops import with_plain_ops

CASES = [
    ((1, 1, 1370), "reflect", [128, 128]),
    ((1, 3, 9, 7), "reflect", [2, 0, 3, 6]),
    ((1, 171, 1), "reflect", [128, 100, 0, 0]),
    ((2, 3, 5, 4), "replicate", [3, 2, 0, 5]),
    ((1, 3, 5, 4), "symmetric", [5, 2, 4, 4]),
]


@pytest.mark.parametrize("shape, mode, pad", CASES)
def test_borders_are_products_of_slices(shape, mode, pad):
    b = GraphBuilder()
    b.output(b.pad(x=b.input("x", shape, "fp16"), pad=pad, mode=mode))
    graph, x = b.graph, {"x": np.random.default_rng(0).normal(size=shape).astype(np.float16)}
    widths = [(0, 0)] * (len(shape) - len(pad) // 2) + list(zip(pad[::2], pad[1::2]))
    wanted = np.pad(x["x"], widths, mode={"replicate": "edge"}.get(mode, mode))
    old, new = graph.clone(), graph.clone()
    with_plain_ops(old, chips.get("M1"))
    with_plain_ops(new, chips.get("M4"))
    assert "pad" not in {op.type for op in old.main.ops} and [op.type for op in new.main.ops] == ["pad"]
    for made in (old, new):
        made.verify()
        (result,) = made.evaluate(x).values()
        np.testing.assert_array_equal(result, wanted)
