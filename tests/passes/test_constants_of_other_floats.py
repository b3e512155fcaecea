"""Constants of fp64 and bf16 beside other floats: fp16 in one rounding, the same on the graph and in tasks."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder


@pytest.mark.parametrize("op_type", ["conv", "conv_transpose"])
@pytest.mark.parametrize("shape", [(3, 3, 2, 1), (64, 64, 3, 3)])
def test_weights_of_fp64_are_rounded_once(op_type: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    # a little above the middle of two fp16 numbers: by way of fp32 they would become ties, half of them rounded down
    weight = 1 + (rng.integers(0, 512, shape) * 2 + 1) * 2.0**-11 + 2.0**-40
    inputs = {"x": rng.uniform(-1, 1, (1, shape[1], 6, 6)).astype(np.float32)}
    results = []
    for values, dtype in ((weight, "fp64"), (weight.astype(np.float16), "fp16")):
        b = GraphBuilder(opset="ios18")
        b.output(b.op(op_type, x=b.input("x", (1, shape[1], 6, 6), "fp32"), weight=b.const(values, dtype)))
        program = hexane.compile(b.graph, "M2")
        assert [segment.kind for segment in program.segments] == ["engine"]
        results += [program.run(inputs, level=level) for level in ("engine", "graph")]
    assert len({next(iter(result.values())).tobytes() for result in results}) == 1


def test_weights_of_bf16_lose_what_those_of_fp16_lose() -> None:
    inputs = {"x": np.full((1, 1, 1, 1), 1e-6, np.float16)}
    for dtype in ("bf16", "fp16"):
        b = GraphBuilder(opset="ios18")
        weight = b.const(np.full((1, 1, 1, 1), -0.5, np.float32 if dtype == "bf16" else np.float16), dtype)
        b.output(b.op("conv", x=b.input("x", (1, 1, 1, 1), "fp16"), weight=weight), name="y")
        program = hexane.compile(b.graph, "M1")
        assert [program.run(inputs, level=level)["y"].item() for level in ("engine", "graph")] == [0.0, 0.0]
