"""One network has one time, however its file spells it: truth is the spelling that coremltools writes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hexane
from hexane.graph import Graph, GraphBuilder
from hexane.graph.ir import Value

RNG = np.random.default_rng(0)
CHANNELS = 64


def weights(*shape: int) -> np.ndarray:
    return (RNG.normal(size=shape) / 10).astype(np.float32)


def network(behind: Callable[[GraphBuilder, Value], Value], spread: bool = False) -> Graph:
    """Four convolutions with something behind each; ``spread``: each with a batch norm of its own."""
    b = GraphBuilder()
    y = b.input("x", (1, CHANNELS, 32, 32), "fp32")
    for _ in range(4):
        y = b.conv(x=y, weight=weights(CHANNELS, CHANNELS, 3, 3), bias=weights(CHANNELS), pad_type="same")
        if spread:
            numbers = {name: weights(CHANNELS) for name in ("mean", "gamma", "beta")}
            y = b.batch_norm(x=y, variance=np.abs(weights(CHANNELS)) + 1, **numbers)
        y = behind(b, y)
    b.output(y, name="y")
    return b.graph


def gelu_by_erf(b: GraphBuilder, x: Value) -> Value:
    f = np.float32
    return b.mul(x=b.mul(x=x, y=b.add(x=b.erf(x=b.real_div(x=x, y=f(2**0.5))), y=f(1))), y=f(0.5))


def clip(b: GraphBuilder, x: Value) -> Value:
    return b.clip(x=x, alpha=np.float32(0), beta=np.float32(6))


@pytest.mark.parametrize("chip", ["M1", "M4", "A17 Pro"])
@pytest.mark.parametrize(
    ("as_coremltools", "as_others"),
    [
        (network(lambda b, x: b.relu(x=x)), network(lambda b, x: b.relu(x=x), spread=True)),
        (network(lambda b, x: b.gelu(x=x, mode="EXACT")), network(gelu_by_erf)),
        (network(lambda b, x: b.silu(x=x)), network(lambda b, x: b.mul(x=x, y=b.sigmoid(x=x)))),
        (
            network(lambda b, x: b.relu6(x=x)),
            network(lambda b, x: b.clip(x=x, alpha=np.float32(0), beta=np.float32(6))),
        ),
    ],
    ids=["batch norm", "gelu", "silu", "relu6"],
)
def test_one_network_has_one_time(as_coremltools: Graph, as_others: Graph, chip: str) -> None:
    one, other = (hexane.estimate(graph, chip) for graph in (as_coremltools, as_others))
    assert other.parts == one.parts
    assert other.latency_us == one.latency_us


def test_the_network_that_is_asked_about_stays_as_it_is() -> None:
    graph = network(lambda b, x: b.relu(x=x), spread=True)
    before = [op.type for op in graph.main.ops]
    hexane.estimate(graph, "M1")
    assert [op.type for op in graph.main.ops] == before


def test_compressed_weights_are_still_streamed_as_such() -> None:
    graph = network(lambda b, x: b.relu(x=x), spread=True)
    narrow = hexane.compress(network(lambda b, x: b.relu(x=x)), "palette4")
    assert hexane.estimate(narrow, "M4").parts.engine_us <= hexane.estimate(graph, "M4").parts.engine_us
