"""The yardstick of fp16 storage: what every converter folds away is stored nowhere."""

import numpy as np

from hexane.chips import get
from hexane.codegen.driver import canonical
from hexane.graph import Graph, GraphBuilder
from hexane.lowering.compilation import Compilation
from hexane.numerics.stored import stored_in_fp16


def test_a_map_that_a_batch_norm_brings_back_is_not_stored_before_it() -> None:
    b, rng = GraphBuilder(), np.random.default_rng(0)
    x = b.input("x", (1, 4, 8, 8), "fp32")
    weight = (rng.normal(size=(6, 4, 1, 1)) * 1e-6).astype(np.float32)  # results below fp16's steps
    zeros, ones = np.zeros(6, np.float32), np.ones(6, np.float32)
    small = b.conv(x=x, weight=weight)
    gamma = np.full(6, 1e4, np.float32)
    y = b.batch_norm(x=small, mean=zeros, variance=ones, gamma=gamma, beta=zeros, epsilon=np.float32(0))
    b.output(y, name="y")
    given = {"x": rng.normal(size=(1, 4, 8, 8)).astype(np.float32)}
    expected = b.graph.evaluate(given)["y"]

    def error(graph: Graph) -> float:
        stored = stored_in_fp16(graph, given)["y"]
        return float(np.linalg.norm(stored - expected) / np.linalg.norm(expected))

    assert error(b.graph) > 0.01
    assert error(canonical(b.graph, Compilation(get("M1")))) < 1e-3
