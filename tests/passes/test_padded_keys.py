"""Keys that nobody sees: zeros go behind rows before these are moved, behind the heads where no rows lead there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hexane import chips, passes
from hexane.graph import Graph, GraphBuilder
from hexane.graph.ir import Value
from hexane.lowering.compilation import Compilation
from hexane.lowering.transformations import active

M1 = Compilation(chips.get("M1"), active(generation="h13"))
TOKENS, ROWS = 77, (1, 77, 128)


def moved(shape: list[int], perm: list[int]) -> Callable[[GraphBuilder, Value], Value]:
    return lambda b, x: b.transpose(x=b.reshape(x=x, shape=shape), perm=perm)


def turned(perm: list[int], function: str) -> Callable[[GraphBuilder, Value], Value]:
    return lambda b, x: b.transpose(x=b.op(function, x=x), perm=perm)


FORMS = {
    "rows": (ROWS, moved([1, TOKENS, 4, 32], [0, 2, 1, 3])),
    "features of rows": ((1, 128, TOKENS), moved([1, 4, 32, TOKENS], [0, 1, 3, 2])),
    "heads": ((1, 4, TOKENS, 32), lambda b, x: b.relu(x=x)),
    "tokens of heads": ((1, TOKENS, 4, 32), turned([0, 2, 1, 3], "relu")),
    "tokens of heads, given": ((1, TOKENS, 4, 32), lambda b, x: b.transpose(x=x, perm=[0, 2, 1, 3])),
    "heads turned": ((1, 4, 32, TOKENS), turned([0, 1, 3, 2], "tanh")),
}


def attention(form: str) -> Graph:
    b = GraphBuilder()
    shape, heads = FORMS[form]
    q, k, v = b.input("q", (1, 4, 64, 32), "fp16"), b.input("k", shape, "fp16"), b.input("v", shape, "fp16")
    scores: Value = b.mul(x=b.matmul(x=q, y=heads(b, k), transpose_y=True), y=np.float16(0.125))
    b.output(b.matmul(x=b.softmax(x=scores, axis=-1), y=heads(b, v)), name="y")
    return b.graph


@pytest.mark.parametrize("form", FORMS)
def test_zeros_behind_keys_of_any_origin_change_no_result(form: str) -> None:
    graph, rng = attention(form), np.random.default_rng(0)
    after = passes.run(graph, M1, ["padded_keys"])
    inputs = {value.name: rng.normal(size=value.shape).astype(np.float16) for value in graph.main.inputs}
    step = 2.0**-11  # of fp16 below 1
    np.testing.assert_allclose(after.evaluate(inputs)["y"], graph.evaluate(inputs)["y"], rtol=0, atol=step)
    padded = [tuple(op.inputs["x"].shape) for op in after.main.ops if op.type == "pad"]
    assert len(padded) == 2
    if form == "rows":
        assert padded == [ROWS, ROWS]
    else:
        assert all(shape[:2] == (1, 4) for shape in padded)  # of heads
