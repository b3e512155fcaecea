"""Values keep the network's names through the passes, so that every layer has its error and its op."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import Graph, GraphBuilder
from hexane.report.data import report_data
from hexane.session.run import run_network


def _network(kind: str, depth: int = 4) -> tuple[Graph, list[str]]:
    """Convolutions with an activation that the file writes in parts; the names of the activations' results."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", (1, 8, 12, 12), "fp32")
    names = []
    for i in range(depth):
        weight = (rng.standard_normal((8, 8, 3, 3)) / 8).astype(np.float32)
        y = b.conv(x=x, weight=weight, strides=(1, 1), pad_type="same", dilations=(1, 1), groups=1, name=f"conv{i}")
        if kind == "silu":
            z = b.mul(x=y, y=b.sigmoid(x=y, name=f"gate{i}"), name=f"act{i}")
        elif kind == "hard_swish":
            gate = b.clip(x=b.add(x=y, y=np.float32(3), name=f"shift{i}"), alpha=0.0, beta=6.0, name=f"clip{i}")
            z = b.real_div(x=b.mul(x=y, y=gate, name=f"prod{i}"), y=np.float32(6), name=f"act{i}")
        else:
            erf = b.erf(x=b.mul(x=y, y=np.float32(0.5**0.5), name=f"in{i}"), name=f"erf{i}")
            half = b.mul(x=b.add(x=erf, y=np.float32(1), name=f"one{i}"), y=np.float32(0.5), name=f"half{i}")
            z = b.mul(x=y, y=half, name=f"act{i}")
        names.append(z.name)
        x = b.add(x=z, y=x, name=f"sum{i}")
    b.output(x)
    return b.graph, names


@pytest.mark.parametrize("kind", ["silu", "gelu", "hard_swish"])
def test_every_layer_has_its_error_under_the_networks_name(kind: str) -> None:
    graph, names = _network(kind)
    inputs = {"x": np.random.default_rng(1).standard_normal((1, 8, 12, 12)).astype(np.float32)}
    done = run_network(graph, inputs, name="names", insight=True)
    assert done.insight is not None
    layers = {layer.name: layer for layer in done.insight.layers}
    known = {value.name for op in graph.ops for value in op.outputs}
    assert not [layer.name for layer in layers.values() if layer.error is None and layer.name in known]
    assert set(names) <= set(layers), (names, list(layers))
    assert all(layers[name].error is not None for name in names)


def test_an_activation_belongs_to_its_own_task() -> None:
    """The sigmoid of SiLU is part of the convolution's task, not of the sum behind it."""
    graph, _ = _network("silu")
    inputs = {"x": np.zeros((1, 8, 12, 12), np.float32)}
    done = run_network(graph, inputs, name="names", insight=True)
    assert done.placement is not None
    rows = {row.name: row for row in done.placement.rows}
    for i in range(4):
        assert "sum" not in rows[f"gate{i}"].reason and "sum" not in rows[f"act{i}"].reason
    tasks = {task["op"] for task in report_data(done)["tasks"]}
    assert {f"act{i}" for i in range(4)} <= tasks


def test_a_strided_pointwise_convolution_with_bias_is_on_the_engine() -> None:
    """512 to 1024 channels at 14x14, stride 2: it fits without a bias, and so with one."""
    rng = np.random.default_rng(0)
    for bias in (None, rng.standard_normal(1024).astype(np.float16)):
        b = GraphBuilder()
        x = b.input("x", (1, 512, 14, 14), "fp16")
        weight = (rng.standard_normal((1024, 512, 1, 1)) / 32).astype(np.float16)
        extra = {} if bias is None else {"bias": bias}
        b.output(b.conv(x=x, weight=weight, strides=(2, 2), pad_type="valid", dilations=(1, 1), groups=1, name="y",
                        **extra))  # fmt: skip
        program = hexane.compile(b.graph)
        assert [segment.kind for segment in program.segments] == ["engine"]
        given = {"x": rng.standard_normal((1, 512, 14, 14)).astype(np.float16)}
        found, wanted = program.run(given)["y"], b.graph.evaluate(given)["y"]
        np.testing.assert_allclose(found.astype(np.float32), wanted.astype(np.float32), atol=0.05, rtol=0.01)
