"""Scaling by powers of two: exact in float32, and nearer to it on the engine."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane import chips, passes
from hexane.graph import Graph, GraphBuilder
from hexane.lowering.compilation import Compilation
from hexane.numerics.autoscale import rescaled
from hexane.session.run import run_network

M1 = Compilation(chips.get("M1"))


def _network(behind: str) -> Graph:
    rng = np.random.default_rng(3)
    b = GraphBuilder()
    x = b.input("x", (1, 16, 8, 8), "fp32")
    weight = (rng.standard_normal((8, 16, 1, 1)) * 2.0**-9).astype(np.float32)
    y = b.conv(x=x, weight=weight, bias=(rng.standard_normal(8) * 2.0**-12).astype(np.float32), strides=(1, 1),
               pad_type="valid", dilations=(1, 1), groups=1, name="y")  # fmt: skip
    if behind == "relu":
        y = b.relu(x=y, name="z")
    elif behind == "sigmoid":
        y = b.sigmoid(x=y, name="z")
    b.output(b.mul(x=y, y=np.float32(8.0), name="out"))
    return b.graph


@pytest.mark.parametrize("behind", ["", "relu", "sigmoid"])
def test_the_scaled_network_is_the_same_network(behind: str) -> None:
    graph = passes.run(_network(behind), M1)
    names = {v.name: 5 for op in graph.ops for v in op.outputs}
    scaled = rescaled(graph, names)
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float16)}
    (wanted,), (got,) = graph.evaluate(inputs).values(), scaled.evaluate(inputs).values()
    assert np.array_equal(wanted, got)
    assert not scaled.equals(graph)
    scaled.verify()


def test_a_scaling_stops_where_fp16_ends() -> None:
    graph = passes.run(_network("relu"), M1)
    scaled = rescaled(graph, {v.name: 60 for op in graph.ops for v in op.outputs})
    for op in scaled.ops:
        for value in op.operands():
            if value.is_constant and value.dtype == "fp16":
                data = np.asarray(value.data, np.float32)
                assert np.isfinite(data).all() and np.abs(data[data != 0]).min() >= 2.0**-24


def test_autoscale_brings_a_network_of_tiny_products_nearer() -> None:
    graph = _network("relu")
    inputs = {"x": (np.random.default_rng(0).standard_normal((1, 16, 8, 8)) * 2.0**-5).astype(np.float32)}
    done = run_network(graph, inputs, name="tiny", autoscale=True)
    assert done.autoscale is not None and done.autoscale["layers"]
    before, after = (done.autoscale[key]["out"]["relative"] for key in ("before", "after"))
    assert after < before / 4
    levels = done.program.run(inputs, level="graph")
    assert np.array_equal(levels["out"], done.outputs["out"])
    plain = hexane.compile(graph).stats()["tasks"]
    assert done.program.stats()["tasks"] == plain


def test_autoscale_leaves_a_healthy_network_alone() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 4, 4, 4), "fp16")
    b.output(b.conv(x=x, weight=np.ones((4, 4, 1, 1), np.float16), strides=(1, 1), pad_type="valid",
                    dilations=(1, 1), groups=1, name="y"))  # fmt: skip
    done = run_network(b.graph, {"x": np.ones((1, 4, 4, 4), np.float16)}, name="well", autoscale=True)
    assert done.autoscale is not None and done.autoscale["layers"] == {}
